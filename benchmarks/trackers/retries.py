"""What failing records cost: their nack, their next delivery, their ack."""

from __future__ import annotations

import gc
from random import Random
from statistics import median
from typing import Any

from benchmarks.trackers.ours import Ours
from benchmarks.trackers.runs import RUN, make_run
from benchmarks.trackers.timing import Stopwatch

__all__ = ["costs"]

_RECORDS = 50_000
_LONGEST = 60.0
_AT_ONCE = 100


def costs(*, rounds: int, shrink: int) -> dict[str, Any]:
    """Microseconds a record, with up to 50 000 that wait for their retry in random order."""
    records = max(_RECORDS // shrink, RUN)
    found = [_round(records, seed) for seed in range(rounds + 1)][1:]
    steps = found[0].keys()
    return {"retry_us": {step: median(each[step] for each in found) for step in steps}}


def _round(records: int, seed: int) -> dict[str, float]:
    dice, tracker = Random(seed), Ours().tracker
    runs = [make_run(first) for first in range(0, records, RUN)]
    for run in runs:
        tracker.track(run, 0.0)
    failing = [(message, dice.random() * _LONGEST) for run in runs for message in run.messages]
    dice.shuffle(failing)
    nacks, dues, acks = Stopwatch(), Stopwatch(), Stopwatch()
    gc.collect()
    with nacks:
        for message, delay in failing:
            tracker.nack(message.index, 1, 0.0, delay, message)
    times = sorted(delay for _, delay in failing)[_AT_ONCE - 1 :: _AT_ONCE]
    with dues:
        ready = [entry for now in times for entry in tracker.due(now).ready]
    with acks:
        for index, _, _ in ready:
            tracker.ack(index)
    watches = {"nack": nacks, "due": dues, "ack after a retry": acks}
    return {step: watch.seconds / records * 1e6 for step, watch in watches.items()}
