"""Dead letters in a SQLite file, for operators to read and to send again."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import NamedTuple, final

from consumer_sdk.abc import DeadLetters
from consumer_sdk.dead_letters.letter_rows import COLUMNS, from_row, to_row
from consumer_sdk.errors import ConfigurationError, StoreError
from consumer_sdk.records import DeadLetter, Outcome
from consumer_sdk.stores.sqlite.file import Database, FileGoneError, SqliteThread

__all__ = ["LocalDeadLetters", "StoredLetter"]

SEND = f"""INSERT INTO dead_letters ({COLUMNS}, digest)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT ("group", stream, partition, position, digest) DO UPDATE
    SET error = excluded.error, error_type = excluded.error_type,
        attempts = excluded.attempts, failed_at = excluded.failed_at"""  # noqa: S608 - our names
READ = f"""SELECT id, {COLUMNS}
    FROM dead_letters WHERE id > ? ORDER BY id LIMIT ?"""  # noqa: S608 - our names
COUNT = "SELECT count(*) FROM dead_letters"
DELETE = "DELETE FROM dead_letters WHERE id = ?"

PAGE = 100


class StoredLetter(NamedTuple):
    """A dead letter and its number in the file; numbers grow and are never used again."""

    id: int
    letter: DeadLetter


@final
class LocalDeadLetters(DeadLetters):
    """Dead letters in a SQLite file on a local disk; it may be a `LocalStore`'s file.

    A letter may be sent again, because a reply was lost or the process was killed before its record
    was settled. It is in the file once, with its latest error: two letters are the same if group,
    partition, position *and* record are. The table ``dead_letters`` is for people too: headers are
    JSON, and key and value are the record's own bytes. The file is created with mode 0600.

    Args:
        path: the file. It is created if it is missing; its directory is not.
        busy_timeout: seconds to wait while another process writes.

    Raises:
        ConfigurationError: the path is empty, or the timeout is no positive number.

    Cancellation: of any method leaves the file whole; a letter is written nevertheless.
    Concurrency: used from another event loop or a forked child, `ConsumerClosedError`.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout: float = 5.0) -> None:
        self._thread = SqliteThread(
            path, busy_timeout=busy_timeout, name="consumer_sdk.dead_letters.local"
        )

    def __repr__(self) -> str:
        return f"LocalDeadLetters({str(self._thread.path)!r})"

    async def open(self) -> None:
        """Opens or makes the file.

        Raises:
            StoreError: it cannot be used; says what to do.
            ConsumerClosedError: it is open in another event loop.
        """
        await self._thread.open(_no_check)

    async def send(self, letters: Sequence[DeadLetter]) -> list[Outcome]:
        """Writes all of them in one transaction.

        Returns:
            DURABLE or RETRY for each letter. A letter that SQLite cannot store (a value of more
            than a gigabyte) is a RETRY; the others are stored.

        Raises:
            ConsumerClosedError: this is not open here.
            StoreError: the file was deleted or replaced, so no letter can be stored any more.
        """
        try:
            return await self._thread.run(partial(_send, list(letters)))
        except FileGoneError:
            raise
        except StoreError as error:
            return [Outcome.retry(error) for _ in letters]

    async def read(self, *, after: int = 0, limit: int = PAGE) -> list[StoredLetter]:
        """The first ``limit`` letters whose number is above ``after``, oldest first.

        Raises:
            StoreError: the file cannot be read.
        """
        if limit < 1:
            raise ConfigurationError(f"limit={limit!r}: give at least 1")
        return await self._thread.run(partial(_read, after, limit))

    async def letters(self) -> AsyncIterator[StoredLetter]:
        """All letters, oldest first, a page at a time: memory does not grow with their number.

        Raises:
            StoreError: the file cannot be read.
        """
        last = 0
        while page := await self.read(after=last):
            for stored in page:
                yield stored
            last = page[-1].id

    async def count(self) -> int:
        """How many letters there are.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._thread.run(_count)

    async def delete(self, ids: Sequence[int]) -> int:
        """Deletes letters by their numbers; returns how many there were.

        Raises:
            StoreError: nothing was deleted.
        """
        return await self._thread.run(partial(_delete, list(ids)))

    async def aclose(self) -> None:
        """Finishes what is under way and closes the file. Idempotent and bounded."""
        await self._thread.aclose()


def _no_check(database: Database) -> None:
    """Letters may be many, and damage to old ones must not stop new ones."""


def _send(letters: Sequence[DeadLetter], database: Database) -> list[Outcome]:
    with database.transaction() as connection:
        return [_send_one(connection, letter, database) for letter in letters]


def _send_one(connection: sqlite3.Connection, letter: DeadLetter, database: Database) -> Outcome:
    try:
        connection.execute(SEND, to_row(letter))
    except (sqlite3.DataError, sqlite3.ProgrammingError, OverflowError, UnicodeError) as error:
        # Of this letter alone; the transaction goes on. Errors of the disk end it.
        refusal = StoreError(f"{database.path} cannot take a letter of {letter.partition}: {error}")
        refusal.__cause__ = error
        return Outcome.retry(refusal)
    return Outcome.durable()


def _read(after: int, limit: int, database: Database) -> list[StoredLetter]:
    with database.reading() as connection:
        return [
            StoredLetter(id_, from_row(row))
            for id_, *row in connection.execute(READ, (after, limit))
        ]


def _count(database: Database) -> int:
    with database.reading() as connection:
        return int(connection.execute(COUNT).fetchone()[0])


def _delete(ids: Sequence[int], database: Database) -> int:
    with database.transaction() as connection:
        return connection.executemany(DELETE, [(i,) for i in ids]).rowcount
