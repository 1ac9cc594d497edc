"""What the machines of feeders and readers need not agree on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from consumer_sdk.spark_bridge import SparkFeed
from tests.spark_bridge.feeding import messages, offsets, rows

DAY = 86_400.0


def set_clocks(directory: Path, seconds: float) -> None:
    """Give the newest files times that are off by so much, and older ones times in between."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    for place, path in enumerate(paths, start=1):
        moment = path.stat().st_mtime + seconds * place / len(paths)
        os.utime(path, (moment, moment))


@pytest.mark.parametrize("seconds", [DAY, -DAY])
async def test_clocks_that_disagree_change_no_order_and_lose_nothing(
    tmp_path: Path, seconds: float
) -> None:
    """Trap 23, clock skew: numbers order the feed, and no file's time is asked for."""
    for first in (0, 10, 20):
        async with SparkFeed(tmp_path, max_wait=0.0, max_rows=5) as feed:
            await feed.write(messages(first, first + 9))
        set_clocks(tmp_path, seconds)
    async with SparkFeed(tmp_path, max_wait=0.0) as feed:
        await feed.write(messages(0, 34))
    assert [row["offset"] for row in rows(tmp_path)] == list(range(35))
    assert offsets(tmp_path) == list(range(35))
