"""Which group a URL names."""

from __future__ import annotations

import pytest

from consumer_sdk.cli.groups.groups import opened_group
from consumer_sdk.errors import ConfigurationError


async def test_share_group_has_no_positions_and_the_error_says_who_shows_its_lag_and_moves_it() -> (
    None
):
    """Before anything is connected to."""
    url = "kafka://127.0.0.1:1/orders?share_group=billing"
    with pytest.raises(
        ConfigurationError, match=r"the command lag .* kafka-share-groups\.sh --reset-offsets"
    ):
        async with opened_group(url, None):
            pytest.fail("it was opened")
