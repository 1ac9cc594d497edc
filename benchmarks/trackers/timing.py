"""How anything is timed here: CPU time, a collected heap, sides that take turns.

The clock is the CPU time of the process. Nothing here waits, so that on an idle machine it is the
wall clock, and on a busy one the others' share is left out (their effect on caches is not).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Hashable, Mapping
from statistics import median
from typing import TypeVar

__all__ = ["Stopwatch", "best", "medians", "ratio", "take_turns"]

Side = TypeVar("Side", bound=Hashable)


class Stopwatch:
    """Adds up the CPU seconds of the ``with`` blocks that it times.

    The collector runs inside of them as it does in a service; what earlier work left behind is
    collected by `take_turns`.
    """

    __slots__ = ("_began", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._began = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.process_time() - self._began


def take_turns(sides: Mapping[Side, Callable[[], float]], rounds: int) -> dict[Side, list[float]]:
    """What each side measured in each round, after one round that does not count.

    Opposite order in every second round, and a collected heap before each turn.
    """
    found: dict[Side, list[float]] = {side: [] for side in sides}
    for number in range(rounds + 1):
        for side in list(sides)[:: -1 if number % 2 else 1]:
            gc.collect()
            found[side].append(sides[side]())
    return {side: figures[1:] for side, figures in found.items()}


def medians(found: Mapping[Side, list[float]]) -> dict[Side, float]:
    """The median of each side."""
    return {side: median(figures) for side, figures in found.items()}


def best(found: Mapping[Side, list[float]]) -> dict[Side, float]:
    """The least of each side: for a rate, as whatever else a machine does only adds to a time."""
    return {side: min(figures) for side, figures in found.items()}


def ratio(found: Mapping[Side, list[float]], over: Side, under: Side) -> float:
    """The median of the rounds' ratios: what slows a whole round down cancels out."""
    return median(a / b for a, b in zip(found[over], found[under], strict=True))
