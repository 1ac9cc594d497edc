"""How much of a checkpoint the metadata of a Kafka commit holds: no server, one seed."""

from __future__ import annotations

import random

from consumer_sdk.adapters.kafka.commits.metadata import MOST, read_metadata, write_metadata
from consumer_sdk.records import Checkpoint, Partition

__all__ = ["holes_that_fit"]

SEED = 1
RECORDS = 80_000
GROUP = "billing"
ORDERS = Partition("orders", "0")


def holes_that_fit(settled: float = 0.5) -> int:
    """Settled ranges that come back of more than fit, where records are done in random order.

    Args:
        settled: the part of the records above the first hole that is settled.
    """
    first = 10**9
    chance = random.Random(SEED)
    done = [first + n for n in range(1, RECORDS) if chance.random() < settled]
    checkpoint = Checkpoint(first - 1, first, _ranges(done), identity="i" * 22)
    text = write_metadata(checkpoint, first, group=GROUP, partition=ORDERS, limit=MOST).data
    committed, _ = read_metadata(text, first, group=GROUP, partition=ORDERS, identity=None)
    return len(committed.checkpoint.ranges)


def _ranges(positions: list[int]) -> tuple[tuple[int, int], ...]:
    ranges: list[tuple[int, int]] = []
    for position in positions:
        if ranges and ranges[-1][1] == position - 1:
            ranges[-1] = (ranges[-1][0], position)
        else:
            ranges.append((position, position))
    return tuple(ranges)
