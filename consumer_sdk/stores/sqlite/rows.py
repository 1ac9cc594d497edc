"""Checkpoints, pinned starts and leases as rows of the SQLite file: what its thread does with them.

Each function is one transaction. It takes the database as its last argument, so that a store binds the
others and hands the rest to the thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any

from consumer_sdk.errors import CheckpointFormatError
from consumer_sdk.leases.backend import Reading
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

__all__ = [
    "check",
    "claim",
    "delete",
    "leased_streams",
    "leave",
    "make_lease_tables",
    "names",
    "peek",
    "pin",
    "pins",
    "purge",
    "read_leases",
    "renew",
    "replace_leases",
    "save",
    "unpin",
]

Key = tuple[str, str]
"""Group and stream."""

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
LEASE_TABLES = (
    """CREATE TABLE IF NOT EXISTS leases (
        "group" TEXT NOT NULL, stream TEXT NOT NULL, version INTEGER NOT NULL, text TEXT NOT NULL,
        PRIMARY KEY ("group", stream))""",
    """CREATE TABLE IF NOT EXISTS members (
        "group" TEXT NOT NULL, stream TEXT NOT NULL, member TEXT NOT NULL, count INTEGER NOT NULL,
        PRIMARY KEY ("group", stream, member))""",
)
READ_LEASES = """SELECT version, text FROM leases WHERE "group" = ? AND stream = ?"""
READ_MEMBERS = """SELECT member, count FROM members WHERE "group" = ? AND stream = ?"""
READ_STREAMS = """SELECT stream FROM leases WHERE "group" = ? ORDER BY stream"""
HAS_LEASES = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'leases'"
FIRST_LEASES = """INSERT INTO leases ("group", stream, version, text) VALUES (?, ?, 1, ?)
    ON CONFLICT DO NOTHING"""
WRITE_LEASES = """UPDATE leases SET version = version + 1, text = ?
    WHERE "group" = ? AND stream = ? AND version = ?"""
RENEW = """INSERT INTO members ("group", stream, member, count) VALUES (?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET count = excluded.count"""
REMOVE_DEAD = (
    """DELETE FROM members WHERE "group" = ? AND stream = ? AND member = ? AND count = ?"""
)
LEAVE = """DELETE FROM members WHERE "group" = ? AND stream = ? AND member = ?"""


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


# -- leases


def leased_streams(group: str, database: Database) -> Sequence[str]:
    """The streams of which a group has leases; a file may be older than leases are."""
    with database.reading() as connection:
        (has_leases,) = connection.execute(HAS_LEASES).fetchone()
        rows = connection.execute(READ_STREAMS, (group,)).fetchall() if has_leases else ()
    return [stream for (stream,) in rows]


def make_lease_tables(database: Database) -> None:
    """They are made when they are first used: a file may be older than leases are."""
    with database.transaction() as connection:
        for statement in LEASE_TABLES:
            connection.execute(statement)


def read_leases(key: Key, database: Database) -> Reading:
    """See `LeaseBackend.read`."""
    with database.reading() as connection:
        version, text = connection.execute(READ_LEASES, key).fetchone() or (0, None)
        members = dict(connection.execute(READ_MEMBERS, key).fetchall())
    return Reading(version, text, members)


def replace_leases(key: Key, version: int, text: str, database: Database) -> bool:
    """See `LeaseBackend.replace`."""
    with database.transaction() as connection:
        if version == 0:
            return bool(connection.execute(FIRST_LEASES, (*key, text)).rowcount)
        return bool(connection.execute(WRITE_LEASES, (text, *key, version)).rowcount)


def renew(key: Key, member: str, count: int, dead: Mapping[str, int], database: Database) -> None:
    """See `LeaseBackend.renew`."""
    with database.transaction() as connection:
        connection.executemany(REMOVE_DEAD, [(*key, other, last) for other, last in dead.items()])
        connection.execute(RENEW, (*key, member, count))


def leave(key: Key, member: str, database: Database) -> None:
    """See `LeaseBackend.leave`."""
    with database.transaction() as connection:
        connection.execute(LEAVE, (*key, member))
