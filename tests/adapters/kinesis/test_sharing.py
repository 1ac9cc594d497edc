"""Groups that share a busy shard: none starves another; on virtual time, with the limits of AWS."""

from __future__ import annotations

import pytest

from benchmarks.kinesis.sharing import shared_shard


@pytest.mark.parametrize(
    "groups, share, seconds", [(1, 0.98, 0.5), (2, 0.9, 2), (5, 0.5, 4)], ids=str
)
def test_groups_on_one_shard_get_what_is_written_soon(
    groups: int, share: float, seconds: float
) -> None:
    """They do not know of each other: who is refused takes less, and each leaves a gap."""
    found = shared_shard(groups, 45.0, seed=1)
    assert found.worst_share >= share
    assert found.percentile(99) <= seconds
