"""What open trees keep in memory, as `tracemalloc` counts it: each size in its own process."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

from benchmarks.trackers.memory import traced
from benchmarks.trackers.runs import RUN, make_run
from benchmarks.trackers.trees import make_holding
from consumer_sdk.trackers.trees.table import FIRST_EDGE, TreeTable

__all__ = ["of_messages", "of_table"]


def of_table(*, records: int, one_in: int) -> dict[str, Any]:
    """Bytes of the table for each open tree, where one in so many trees stays open."""
    owner = object()
    gc.collect()
    tracemalloc.start()
    table = TreeTable()
    for number in range(records * one_in):
        root = table.open(owner)
        if number % one_in:
            table.xor(root, FIRST_EDGE)
    kept = traced()
    line = "all open" if one_in == 1 else f"1 in {one_in} open"
    return {"curves": {"roots": {line: {records: kept / records}}}}


def of_messages(*, records: int) -> dict[str, Any]:
    """Bytes that ``message.tree()`` adds to a message in flight, the branches left out."""
    holding = make_holding()
    runs = [make_run(first) for first in range(0, records, RUN)]
    for run in runs:
        holding.track(run)
    gc.collect()
    tracemalloc.start()
    for run in runs:
        for message in run.messages:
            message.tree()
    return {"tree_bytes_per_message": traced() / (len(runs) * RUN)}
