"""Rows that are given up, and what a destination then holds."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consumer_sdk.dead_letters import LocalDeadLetters
from consumer_sdk.records import DeadLetter, Partition
from consumer_sdk.spark_bridge.columns import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items()) + ", reason string"


def letter(at: int, **changes: Any) -> DeadLetter:
    """The letter of record ``at``."""
    fields: dict[str, Any] = {
        "partition": Partition("orders", str(at % 3)),
        "position": str(at),
        "key": b"key %d" % at,
        "value": b"\xff value %d" % at,
        "headers": [("trace", b"1"), ("none", None)],
        "timestamp": 1_600_000_000_000 + at,
        "error": f"reason {at}",
        "error_type": "rejected",
        "attempts": 1,
        "group": "etl",
        "failed_at": 0.0,
    }
    return DeadLetter(**fields | changes)


def rows(spark: SparkSession, numbers: Iterable[int], *, topic: str = "orders") -> DataFrame:
    """The rows of such letters."""
    return spark.createDataFrame([_row(letter(at), topic) for at in numbers], SCHEMA)


def _row(one: DeadLetter, topic: str) -> tuple[Any, ...]:
    assert one.timestamp is not None
    assert one.key is not None
    assert one.value is not None
    number, offset = int(one.partition.id), int(one.position)
    when = dt.datetime.fromtimestamp(one.timestamp / 1000, dt.UTC)
    headers = [(name, value and bytearray(value)) for name, value in one.headers]
    record = (bytearray(one.key), bytearray(one.value), topic, number, offset, when, None, headers)
    return (*record, one.partition.id, one.position, one.error)


def stored(path: Path) -> list[DeadLetter]:
    """What a file of letters holds, by position."""

    async def read() -> list[DeadLetter]:
        letters = LocalDeadLetters(path)
        await letters.open()
        try:
            return [each.letter async for each in letters.letters()]
        finally:
            await letters.aclose()

    return sorted(asyncio.run(read()), key=lambda each: int(each.position))
