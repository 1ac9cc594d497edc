"""What a running query tells of itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["busy", "ended_at", "finished", "input_rows", "until", "until_read"]

PATIENCE = 120
"""Seconds after which a query counts as stuck."""


def finished(query: StreamingQuery) -> None:
    """Wait for the end of a query.

    Raises:
        TimeoutError: it is stuck.
        StreamingQueryException: it failed.
    """
    if not query.awaitTermination(PATIENCE):
        query.stop()
        raise TimeoutError(f"the query has not ended after {PATIENCE} s")


def until(query: StreamingQuery, is_so: Callable[[], bool]) -> None:
    """Wait for something that a running query does.

    Raises:
        TimeoutError: it does not do it.
        StreamingQueryException: it failed.
    """
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        if (error := query.exception()) is not None:
            raise error
        if time.monotonic() > deadline:
            raise TimeoutError(f"{input_rows(query)} rows, and no more after {PATIENCE} s")
        time.sleep(0.1)


def until_read(query: StreamingQuery, rows: int) -> None:
    """Wait until a query has processed that many rows, with the errors of `until`."""
    until(query, lambda: input_rows(query) >= rows)


def busy(query: StreamingQuery) -> list[dict[str, Any]]:
    """The progress of every micro-batch that had rows, in order."""
    return [_plain(each) for each in query.recentProgress if each["numInputRows"]]


def _plain(progress: Any) -> dict[str, Any]:
    return {
        "rows": progress["numInputRows"],
        "timestamp": progress["timestamp"],
        "ms": dict(progress["durationMs"]),
    }


def input_rows(query: StreamingQuery) -> int:
    """The rows of all its micro-batches."""
    return sum(each["rows"] for each in busy(query))


def ended_at(progress: dict[str, Any]) -> float:
    """When a micro-batch was done, in seconds since the epoch."""
    began = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return began + float(progress["ms"]["triggerExecution"]) / 1000
