"""Leases in a SQLite file, for processes on one host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from consumer_sdk.leases.backend import LeasePlace, Reading
from consumer_sdk.stores.sqlite.file import Database
from consumer_sdk.stores.sqlite.thread import SqliteThread

__all__ = ["LocalLeasePlace", "leased_streams"]

T = TypeVar("T")
Key = tuple[str, str]

TABLES = (
    """CREATE TABLE IF NOT EXISTS leases (
        "group" TEXT NOT NULL, stream TEXT NOT NULL, version INTEGER NOT NULL, text TEXT NOT NULL,
        PRIMARY KEY ("group", stream))""",
    """CREATE TABLE IF NOT EXISTS members (
        "group" TEXT NOT NULL, stream TEXT NOT NULL, member TEXT NOT NULL, count INTEGER NOT NULL,
        PRIMARY KEY ("group", stream, member))""",
)
READ = """SELECT version, text FROM leases WHERE "group" = ? AND stream = ?"""
READ_MEMBERS = """SELECT member, count FROM members WHERE "group" = ? AND stream = ?"""
READ_STREAMS = """SELECT stream FROM leases WHERE "group" = ? ORDER BY stream"""
HAS_LEASES = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'leases'"
WRITE_FIRST = """INSERT INTO leases ("group", stream, version, text) VALUES (?, ?, 1, ?)
    ON CONFLICT DO NOTHING"""
WRITE = """UPDATE leases SET version = version + 1, text = ?
    WHERE "group" = ? AND stream = ? AND version = ?"""
RENEW = """INSERT INTO members ("group", stream, member, count) VALUES (?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET count = excluded.count"""
BURY = """DELETE FROM members WHERE "group" = ? AND stream = ? AND member = ? AND count = ?"""
LEAVE = """DELETE FROM members WHERE "group" = ? AND stream = ? AND member = ?"""


class LocalLeasePlace(LeasePlace):
    """The leases of one group and stream, in tables that are made when they are first used.

    Args:
        thread: of a file that is open.
    """

    __slots__ = ("_has_tables", "_key", "_thread")

    def __init__(self, thread: SqliteThread, group: str, stream: str) -> None:
        self._thread = thread
        self._key = group, stream
        self._has_tables = False

    async def read(self) -> Reading:
        return await self._run(partial(_read, self._key))

    async def replace(self, version: int, text: str) -> bool:
        return await self._run(partial(_replace, self._key, version, text))

    async def renew(self, member: str, count: int, dead: Mapping[str, int]) -> None:
        await self._run(partial(_renew, self._key, member, count, dict(dead)))

    async def leave(self, member: str) -> None:
        await self._run(partial(_leave, self._key, member))

    async def _run(self, work: Callable[[Database], T]) -> T:
        if not self._has_tables:  # a file may be older than leases are
            await self._thread.run(_make_tables)
            self._has_tables = True
        return await self._thread.run(work)


def leased_streams(group: str, database: Database) -> Sequence[str]:
    """The streams of which a group has leases; a file may be older than leases are."""
    with database.reading() as connection:
        (has_leases,) = connection.execute(HAS_LEASES).fetchone()
        rows = connection.execute(READ_STREAMS, (group,)).fetchall() if has_leases else ()
    return [stream for (stream,) in rows]


def _make_tables(database: Database) -> None:
    with database.transaction() as connection:
        for statement in TABLES:
            connection.execute(statement)


def _read(key: Key, database: Database) -> Reading:
    with database.reading() as connection:
        version, text = connection.execute(READ, key).fetchone() or (0, None)
        members = dict(connection.execute(READ_MEMBERS, key).fetchall())
    return Reading(version, text, members)


def _replace(key: Key, version: int, text: str, database: Database) -> bool:
    with database.transaction() as connection:
        if version == 0:
            return bool(connection.execute(WRITE_FIRST, (*key, text)).rowcount)
        return bool(connection.execute(WRITE, (text, *key, version)).rowcount)


def _renew(key: Key, member: str, count: int, dead: Mapping[str, int], database: Database) -> None:
    with database.transaction() as connection:
        connection.executemany(BURY, [(*key, other, last) for other, last in dead.items()])
        connection.execute(RENEW, (*key, member, count))


def _leave(key: Key, member: str, database: Database) -> None:
    with database.transaction() as connection:
        connection.execute(LEAVE, (*key, member))
