"""Flushing and encoding the state of a tracker with holes, by how many there are.

A tracker is measured right after it was made, so that it has nothing cached from an earlier
flush. All sizes come to the same number of holes: many small trackers, or one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.trackers.ours import Ours
from benchmarks.trackers.runs import ASSIGNMENT, RUN, make_run
from benchmarks.trackers.timing import Stopwatch, medians, ratio, take_turns
from consumer_sdk.records import Checkpoint
from consumer_sdk.trackers import encode_checkpoint, encode_checkpoint_bytes

__all__ = ["EVERY_SECOND", "ONE_MORE", "encodings", "flushes"]

EVERY_SECOND = "1 in 2 a hole"
ONE_MORE = "1 in 2, one more ack"
_SIZES = (1_000, 10_000, 100_000)
_RECORDS = {2: 200_000, 10: 1_000_000, 100: 1_000_000}
"""How many records are tracked for a measurement, where one in so many is a hole."""


def flushes(*, rounds: int, shrink: int) -> dict[str, Any]:
    """Nanoseconds a hole in a first flush, and in the next one after a single ack."""
    curves, growth = {}, {}
    for one_in in _RECORDS:
        found = take_turns(_sides(_first_flush, one_in, shrink), rounds)
        growth[one_in] = ratio(found, max(found), min(found))
        curves[f"1 in {one_in} a hole"] = medians(found)
    again = take_turns(_sides(_second_flush, 2, shrink), rounds)
    curves[ONE_MORE] = medians(again)
    return {"flush_cost_growth": growth[2], "curves": {"flush": curves}}


def encodings(*, rounds: int, shrink: int) -> dict[str, Any]:
    """Nanoseconds a hole to encode a checkpoint; every second record is a hole."""
    curves, growth = {}, {}
    for form, encode in _FORMS.items():
        found = take_turns(_sides(_encoding(encode), 2, shrink), rounds)
        growth[form] = ratio(found, max(found), min(found))
        curves[form] = medians(found)
    return {
        "encode_cost_growth": growth["binary"],
        "encode_json_cost_growth": growth["JSON"],
        "curves": {"encode": curves},
    }


def _sides(
    measure: Callable[[Ours, Stopwatch], None], one_in: int, shrink: int
) -> dict[int, Callable[[], float]]:
    total = _RECORDS[one_in] // one_in // shrink
    sizes = [size // shrink for size in _SIZES if size // shrink <= total]
    return {holes: partial(_nanoseconds, measure, holes, one_in, total) for holes in sizes}


def _nanoseconds(
    measure: Callable[[Ours, Stopwatch], None], holes: int, one_in: int, total: int
) -> float:
    watch = Stopwatch()
    for _ in range(total // holes):
        measure(_with_holes(holes, one_in), watch)
    return watch.seconds / total * 1e9


def _with_holes(holes: int, one_in: int) -> Ours:
    """One record in so many is a hole."""
    ours, end = Ours(), holes * one_in
    for first in range(0, end, RUN):
        ours.track(make_run(first, min(RUN, end - first)))
    ack = ours.ack
    for index in range(end):
        if index % one_in:
            ack(index)
    return ours


def _first_flush(ours: Ours, watch: Stopwatch) -> None:
    with watch:
        ours.flush()


def _second_flush(ours: Ours, watch: Stopwatch) -> None:
    ours.flush()
    ours.ack(0)
    with watch:
        ours.flush()


def _encoding(encode: Callable[[Checkpoint], object]) -> Callable[[Ours, Stopwatch], None]:
    def measure(ours: Ours, watch: Stopwatch) -> None:
        checkpoint = ours.tracker.checkpoint(0.0, 0.0)
        with watch:
            encode(checkpoint)

    return measure


def _json(checkpoint: Checkpoint) -> object:
    return encode_checkpoint(
        checkpoint,
        broker="kafka",
        partition=ASSIGNMENT.partition,
        encode_position=str,
        max_size=4_000_000,
    )


def _binary(checkpoint: Checkpoint) -> object:
    return encode_checkpoint_bytes(checkpoint, broker="kafka", partition=ASSIGNMENT.partition)


_FORMS: dict[str, Callable[[Checkpoint], object]] = {"binary": _binary, "JSON": _json}
