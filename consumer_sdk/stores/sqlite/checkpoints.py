"""Checkpoints and pins as rows of our SQLite file: what its thread does with them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any

from consumer_sdk.errors import CheckpointFormatError
from consumer_sdk.records import Assignment, Outcome, Partition
from consumer_sdk.stores.fencing import (
    NOBODY,
    Stamp,
    Write,
    judge,
    overwritten,
    refused,
    take,
)
from consumer_sdk.stores.sqlite.file import Database

__all__ = ["check", "claim", "delete", "names", "peek", "pin", "pins", "save", "unpin"]

READ_ROW = """SELECT writer, fence, serial, text FROM checkpoints
    WHERE "group" = ? AND partition = ?"""
READ_TEXT = """SELECT text FROM checkpoints WHERE "group" = ? AND partition = ?"""
LIST = """SELECT partition FROM checkpoints WHERE "group" = ? AND text IS NOT NULL
    ORDER BY partition"""
CLAIM = """INSERT INTO checkpoints ("group", partition, writer, fence, serial)
    VALUES (?, ?, ?, ?, ?) ON CONFLICT ("group", partition) DO UPDATE
    SET writer = excluded.writer, fence = excluded.fence, serial = excluded.serial"""
SAVE = """UPDATE checkpoints
    SET text = ?, serial = ?, updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
    WHERE "group" = ? AND partition = ? AND writer = ? AND serial < ?
    AND typeof(text) IN ('text', 'null') AND typeof(fence) IN ('integer', 'null')
    AND typeof(serial) = 'integer'"""
DELETE = f"""UPDATE checkpoints
    SET text = NULL, writer = '{NOBODY}', serial = 0,
    fence = CASE typeof(fence) WHEN 'integer' THEN fence END, updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
    WHERE "group" = ? AND partition = ?"""  # noqa: S608 - a constant of ours
PURGE = """DELETE FROM checkpoints WHERE "group" = ? AND partition = ? AND text = ?"""
PIN = """INSERT INTO pins ("group", stream, start) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"""
READ_PIN = """SELECT start FROM pins WHERE "group" = ? AND stream = ?"""
UNPIN = """DELETE FROM pins WHERE "group" = ? AND stream = ?"""
READ_PINS = """SELECT stream, start FROM pins WHERE "group" = ? ORDER BY stream"""


def check(database: Database) -> None:
    """Looks for damage."""
    database.check("checkpoints")


def claim(
    group: str, assignments: Sequence[Assignment], writer: str, database: Database
) -> dict[Assignment, tuple[Stamp, str | None] | Outcome]:
    """For each: the stamp it got and the text, or why it was refused."""
    with database.transaction() as connection:
        return {a: _claim_one(connection, group, a, writer) for a in assignments}


def _claim_one(
    connection: sqlite3.Connection, group: str, assignment: Assignment, writer: str
) -> tuple[Stamp, str | None] | Outcome:
    key = (group, assignment.partition.path)
    row = connection.execute(READ_ROW, key).fetchone()
    stored, text = _read(*key, row) if row else (None, None)
    # Two claims of one partition in one call must not share a writer.
    stamp = take(stored, assignment.fence, f"{writer}.{assignment.epoch}")
    if stamp is None:
        return refused(stored)
    connection.execute(CLAIM, (*key, *stamp))
    return stamp, text


def save(group: str, plan: Sequence[Write | Outcome], database: Database) -> list[Outcome]:
    """The outcome of each step of the plan; those without a write stay as they are."""
    with database.transaction() as connection:
        return [s if isinstance(s, Outcome) else _write(connection, group, s) for s in plan]


def _write(connection: sqlite3.Connection, group: str, write: Write) -> Outcome:
    key = (group, write.partition.path)
    writer, _, serial = write.stamp
    if connection.execute(SAVE, (write.text, serial, *key, writer, serial)).rowcount:
        return Outcome.durable()
    row = connection.execute(READ_ROW, key).fetchone()
    try:
        stored, _ = _read(*key, row) if row else (None, None)
    except CheckpointFormatError as error:
        return overwritten(error)
    return judge(stored, write.stamp) or refused(stored)


def peek(
    group: str, partitions: Sequence[Partition], database: Database
) -> dict[Partition, str | None]:
    """The texts that are stored."""
    texts: dict[Partition, str | None] = {}
    with database.reading() as connection:
        for partition in partitions:
            key = (group, partition.path)
            row = connection.execute(READ_TEXT, key).fetchone()
            texts[partition] = _text(*key, row[0]) if row else None
    return texts


def names(group: str, database: Database) -> Sequence[Partition]:
    """The partitions that have a checkpoint, in order."""
    with database.reading() as connection:
        return [_partition(group, text) for (text,) in connection.execute(LIST, (group,))]


def _read(group: str, partition: str, row: Sequence[Any]) -> tuple[Stamp, str | None]:
    """SQLite keeps what it is given, whatever a column is declared to be."""
    writer, fence, serial, text = row
    if type(writer) is not str or type(serial) is not int or type(fence) not in (int, NoneType):
        raise _foreign(group, partition, f"({writer!r:.80}, {fence!r:.80}, {serial!r:.80})")
    return Stamp(writer, fence, serial), _text(group, partition, text)


def _text(group: str, partition: str, text: Any) -> str | None:
    if text is not None and not isinstance(text, str):
        raise _foreign(group, partition, repr(text)[:80])
    return text


def _partition(group: str, text: Any) -> Partition:
    try:
        return Partition.parse(text)
    except (TypeError, ValueError) as error:
        raise _foreign(group, repr(text)[:80], "no name of a partition") from error


def _foreign(group: str, partition: str, what: str) -> CheckpointFormatError:
    return CheckpointFormatError(
        f"the row of group {group!r}, partition {partition} holds no checkpoint that can be read "
        f"({what}): nothing was changed. Delete it, put a copy back, or use another path"
    )


def delete(group: str, partitions: Sequence[Partition], database: Database) -> None:
    """Leaves tombstones with the fences, also of rows that cannot be read."""
    with database.transaction() as connection:
        connection.executemany(DELETE, [(group, p.path) for p in partitions])


def purge(group: str, checkpoints: Mapping[Partition, str], database: Database) -> None:
    """Removes rows that still have these texts."""
    with database.transaction() as connection:
        connection.executemany(PURGE, [(group, p.path, text) for p, text in checkpoints.items()])


def pin(group: str, stream: str, start: str, database: Database) -> str:
    """The pin that is stored now."""
    with database.transaction() as connection:
        connection.execute(PIN, (group, stream, start))
        (stored,) = connection.execute(READ_PIN, (group, stream)).fetchone()
        return _start(group, stream, stored)


def pins(group: str, database: Database) -> dict[str, str]:
    """The pins that are stored, by stream."""
    with database.reading() as connection:
        rows = connection.execute(READ_PINS, (group,))
        return {stream: _start(group, stream, start) for stream, start in rows}


def unpin(group: str, stream: str, database: Database) -> bool:
    """Deletes a pin; whether there was one."""
    with database.transaction() as connection:
        return connection.execute(UNPIN, (group, stream)).rowcount > 0


def _start(group: str, stream: str, start: Any) -> str:
    if not isinstance(start, str):
        raise CheckpointFormatError(
            f"the start that group {group!r} has pinned for {stream!r} cannot be read "
            f"({start!r:.80}): nothing was changed. Delete it with the store's unpin() or "
            f"`consumer-sdk checkpoints unpin`, put a copy back, or use another path"
        )
    return start
