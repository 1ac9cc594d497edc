"""Which group a URL names."""

from __future__ import annotations

import pytest

from consumer_sdk.cli.groups.groups import opened_group
from consumer_sdk.errors import ConfigurationError


async def test_share_group_has_no_positions_and_the_error_says_who_shows_its_lag() -> None:
    """Before anything is connected to."""
    url = "kafka://127.0.0.1:1/orders?share_group=billing"
    with pytest.raises(
        ConfigurationError, match=r"kafka-share-groups\.sh --describe --group billing"
    ):
        async with opened_group(url, None):
            pytest.fail("it was opened")
