"""Who runs when, and what is kept of it; pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypedDict

__all__ = ["BATCHES", "STREAMS", "Standings", "failed", "stream_group", "turns"]

BATCHES = ("jvm", "ours", "naive", "arrow_fixed", "arrow_lists")
STREAMS = ("jvm", "ours")
_REASON = 2_000  # characters


class Standings(TypedDict):
    """What a contest came to: the runs of every contestant, and why some have none."""

    runs: dict[str, list[float]]
    failures: dict[str, str]


One: TypeAlias = Callable[[str, int], float]
"""Runs a contestant in a round; round 0 is a warm-up."""


def turns(names: Sequence[str], rounds: int, one: One) -> Standings:
    """Every contestant in every round, in opposite order in every second one.

    The warm-up's figures are left out. Who raises runs no further; the others go on.
    """
    found = Standings(runs={name: [] for name in names}, failures={})
    for number in range(rounds + 1):
        for name in names[:: -1 if number % 2 else 1]:
            if name not in found["failures"]:
                _run(found, name, number, one)
    return found


def _run(found: Standings, name: str, number: int, one: One) -> None:
    try:
        figure = one(name, number)
    except Exception as error:  # noqa: BLE001 - the others go on, and the report says it
        found["failures"][name] = _reason(error)
        found["runs"][name].clear()
        return
    if number:
        found["runs"][name].append(figure)


def _reason(error: Exception) -> str:
    """In one line: a Python error comes in many lines of Spark's."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' | '.join(lines)}"[:_REASON]


def failed() -> Standings:
    """Of a contest that did not take place."""
    return Standings(runs={}, failures={})


def stream_group(prefix: str, number: int) -> str:
    """The group that ours commits to in a round."""
    return f"{prefix}-{number}"
