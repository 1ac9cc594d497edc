"""``tail``: shows a stream's last records, or those from a time on, without joining a group."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from consumer_sdk.cli.groups.groups import of_partitions, opened_reader
from consumer_sdk.cli.times import parse_time, shown_time
from consumer_sdk.dead_letters.letter_rows import encode_value
from consumer_sdk.range_reads import PartitionRange, RangeReader
from consumer_sdk.records import AtTime, Partition, Position, StartPoint

__all__ = ["tail"]

LOOK = 0.5
"""Seconds between two looks for more."""


async def tail(arguments: Namespace) -> None:
    """Writes records; with ``-f`` it goes on until it is interrupted."""
    left = arguments.count
    async with opened_reader(arguments.url) as (reader, _group):
        async for row in _rows(reader, arguments):
            if arguments.key is not None and row["key"] != arguments.key.encode():
                continue
            _write(row, arguments)
            if left is not None and (left := left - 1) == 0:
                return


async def _rows(reader: RangeReader, arguments: Namespace) -> AsyncIterator[dict[str, Any]]:
    partitions = of_partitions(await reader.partitions(), arguments.partition)
    ends = await reader.positions(partitions, StartPoint.LATEST)
    at = await _starts(reader, ends, arguments)
    while True:
        for partition, end in ends.items():
            async for row in _read(reader, PartitionRange(partition, at[partition], end)):
                yield row
        if not arguments.follow:
            return
        sys.stdout.flush()
        at = {partition: max(at[partition], end) for partition, end in ends.items()}
        await asyncio.sleep(LOOK)
        ends = await reader.positions(partitions, StartPoint.LATEST)


async def _starts(
    reader: RangeReader, ends: Mapping[Partition, Position], arguments: Namespace
) -> dict[Partition, Position]:
    if arguments.start is not None:
        since = AtTime(parse_time(arguments.start, time.time()))
        found = await reader.positions(ends.keys(), since)
        return {each: end if found[each] is None else found[each] for each, end in ends.items()}
    first = await reader.positions(ends.keys(), StartPoint.EARLIEST)
    return {
        each: await _back(reader, PartitionRange(each, first[each], end), arguments.last)
        for each, end in ends.items()
    }


async def _back(reader: RangeReader, whole: PartitionRange, last: int) -> Position:
    """The position about ``count`` records before the end of a partition."""
    if not whole.start < whole.stop:
        return whole.stop
    skipped = (await reader.records([whole]))[whole.partition] - last
    return await reader.cut(whole, skipped) if skipped > 0 else whole.start


async def _read(reader: RangeReader, wanted: PartitionRange) -> AsyncIterator[dict[str, Any]]:
    if not wanted.start < wanted.stop:
        return
    parts: Any = reader.read_range(wanted, with_headers=True)
    async with aclosing(parts):
        async for columns in parts:
            for at, position in enumerate(columns.positions):
                yield {
                    "stream": wanted.partition.stream,
                    "partition": wanted.partition.id,
                    "position": reader.encode_position(position),
                    "timestamp": columns.timestamps[at],
                    "key": columns.keys[at],
                    "headers": columns.headers[at] if columns.headers else (),
                    "value": columns.values[at],
                }


def _write(row: Mapping[str, Any], arguments: Namespace) -> None:
    """Writes one record; in the format raw, its value as it is and a line feed."""
    headers = [[name, encode_value(value)] for name, value in row["headers"]]
    if arguments.format == "json" or arguments.json:
        shown = {
            **row,
            "key": encode_value(row["key"]),
            "value": encode_value(row["value"]),
            "headers": headers,
        }
        sys.stdout.write(json.dumps(shown) + "\n")
        return
    if arguments.headers or arguments.format == "hex":
        seconds = None if row["timestamp"] is None else row["timestamp"] / 1000
        place = f"{row['stream']}/{row['partition']}@{row['position']}"
        fields = [place, shown_time(seconds), f"key {encode_value(row['key'])!r}"]
        fields += [f"{name}={text}" for name, text in headers] if arguments.headers else []
        sys.stdout.write("\t".join(fields) + "\n")
    value = row["value"] or b""
    sys.stdout.flush()
    sys.stdout.buffer.write(
        (value.hex(" ").encode() if arguments.format == "hex" else value) + b"\n"
    )
