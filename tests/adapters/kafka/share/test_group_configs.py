"""What the limits of a share group mean for its records."""

from __future__ import annotations

import pytest

from consumer_sdk.adapters.kafka.share.group_configs import GroupLimits


@pytest.mark.parametrize("deliveries, at", [(2, 2), (3, 3), (4, 3), (5, 4), (10, 9)])
def test_dead_letter_is_written_with_a_delivery_in_reserve_where_there_are_enough(
    deliveries: int, at: int
) -> None:
    """Of two or three deliveries, handlers get all but the last."""
    assert GroupLimits(deliveries=deliveries).dead_letter_at == at
