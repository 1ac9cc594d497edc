"""What the trackers are fed with: runs of messages, and acks in random order within a window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, TypeAlias

from consumer_sdk.records import Assignment, Message, Partition, Run

__all__ = ["ASSIGNMENT", "RUN", "Kind", "Steps", "blocks", "entry", "make_run", "offset", "scatter"]

ASSIGNMENT = Assignment(Partition("topic", "0"), 1)
RUN = 500
"""Records in a run, as many as a fetch brings by default."""
_BLOCK = 20
_BYTES = 100

Kind: TypeAlias = Callable[[int], Any]
"""Makes the position of record number so and so, which is also its index."""
Steps: TypeAlias = list[tuple[Run, Sequence[int]]]
"""Runs, and after each the indices to ack."""


def offset(index: int) -> int:
    """Kafka's kind of position."""
    return index


def entry(index: int) -> tuple[int, int, int]:
    """Pulsar's kind of position: ledger, entry, index in the entry's batch."""
    return 7, index // 10, index % 10


def make_run(first: int, count: int = RUN, kind: Kind = offset) -> Run:
    """Records ``first`` and on, made as the adapters make them and bound as the runtime does."""
    messages = []
    for index in range(first, first + count):
        message = Message()
        message.assignment = ASSIGNMENT
        message.position = kind(index)
        message.key = message.value = None
        message.headers = ()
        message.timestamp = 0
        message.index = index
        messages.append(message)
    return Run(ASSIGNMENT, messages, size=_BYTES * count, ascends=True)


def scatter(window: int, records: int, run: int, seed: int = 1) -> list[list[int]]:
    """Which records to ack after each run, so that ``window`` are in flight: any of them."""
    dice, flying, minted = Random(seed), list(range(window)), window
    steps = []
    for _ in range(records // run):
        flying += range(minted, minted + run)
        minted += run
        steps.append([_draw(flying, dice) for _ in range(run)])
    return steps


def _draw(flying: list[int], dice: Random) -> int:
    at = int(dice.random() * len(flying))
    flying[at], flying[-1] = flying[-1], flying[at]
    return flying.pop()


def blocks(
    acks: Sequence[Sequence[int]], first: int, run: int, kind: Kind = offset
) -> Iterator[Steps]:
    """The runs from record ``first`` on, each with its acks, made a few at a time.

    A service tracks messages that were just made, not ones that left the cache long ago.
    """
    for start in range(0, len(acks), _BLOCK):
        part = enumerate(acks[start : start + _BLOCK], start)
        yield [(make_run(first + number * run, run, kind), indices) for number, indices in part]
