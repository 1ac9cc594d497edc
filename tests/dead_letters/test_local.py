"""Dead letters in a file: exact, once, readable, and beside a store."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from consumer_sdk.abc import StoreItem
from consumer_sdk.dead_letters import LocalDeadLetters
from consumer_sdk.errors import (
    ConfigurationError,
    ConsumerClosedError,
    StoreError,
    TransientStoreError,
)
from consumer_sdk.records import Assignment, DeadLetter, OutcomeKind, Partition
from consumer_sdk.stores import LocalStore

DURABLE, RETRY = OutcomeKind.DURABLE, OutcomeKind.RETRY

LETTER = DeadLetter(
    partition=Partition("orders/eu", "3"),
    position="41",
    key=b"\x00key",
    value=b"\xff\x00value",
    headers=(("type", b"order"), ("type", b"\xff\xfe"), ("none", None), ("empty", b"")),
    timestamp=1_600_000_000_000,
    error="ValueError('bad')",
    error_type="builtins.ValueError",
    attempts=5,
    group="billing",
    failed_at=1_700_000_000.25,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is."""
    return tmp_path / "state.db"


@pytest_asyncio.fixture
async def letters(path: Path) -> AsyncIterator[LocalDeadLetters]:
    """An open file without letters."""
    made = LocalDeadLetters(path, busy_timeout=0.1)
    await made.open()
    yield made
    await made.aclose()


async def send(letters: LocalDeadLetters, *wanted: DeadLetter) -> list[OutcomeKind]:
    """Sends; returns the kinds of the outcomes."""
    return [outcome.kind for outcome in await letters.send(wanted)]


async def test_letter_comes_back_exactly(letters: LocalDeadLetters) -> None:
    """Every field: bytes, absent ones, repeated headers, headers that are no text."""
    bare = replace(LETTER, key=None, value=None, headers=(), timestamp=None, position="42")
    empty = replace(LETTER, key=b"", value=b"", position="43")
    assert await send(letters, LETTER, bare, empty) == [DURABLE] * 3
    assert [stored.letter for stored in await letters.read()] == [LETTER, bare, empty]
    assert await letters.count() == 3


async def test_letters_outlive_the_process(letters: LocalDeadLetters, path: Path) -> None:
    """What is DURABLE is there for whoever opens the file later."""
    await send(letters, LETTER)
    await letters.aclose()
    await letters.open()
    assert [stored.letter for stored in await letters.read()] == [LETTER]


async def test_letter_that_is_sent_again_is_there_once(letters: LocalDeadLetters) -> None:
    """After a crash before the checkpoint the record fails again: one letter, its latest error."""
    again = replace(LETTER, error="later", error_type="Later", attempts=6, failed_at=1.8e9)
    assert await send(letters, LETTER, LETTER) == [DURABLE] * 2
    (first,) = await letters.read()
    assert await send(letters, again) == [DURABLE]
    assert await letters.read() == [first._replace(letter=again)]


@pytest.mark.parametrize(
    "other",
    [
        replace(LETTER, position="410"),
        replace(LETTER, partition=Partition("orders", "3")),
        replace(LETTER, partition=Partition("orders/eu", "4")),
        replace(LETTER, group="shipping"),
        replace(LETTER, value=b"\xff\x00other"),
        replace(LETTER, value=None),
        replace(LETTER, key=LETTER.value, value=LETTER.key),
        replace(LETTER, headers=()),
        replace(LETTER, timestamp=1),
    ],
)
async def test_letter_of_another_record_is_another_letter(
    letters: LocalDeadLetters, other: DeadLetter
) -> None:
    """A record of a stream that was made again has an old one's place, and is still not it."""
    await send(letters, LETTER, other)
    assert [stored.letter for stored in await letters.read()] == [LETTER, other]


async def test_letters_are_read_in_pages_and_one_by_one(letters: LocalDeadLetters) -> None:
    """Oldest first, from any number on."""
    many = [replace(LETTER, position=str(number)) for number in range(250)]
    await send(letters, *many)
    page = await letters.read(limit=10)
    assert [stored.letter for stored in page] == many[:10]
    rest = await letters.read(after=page[-1].id, limit=1000)
    assert [stored.letter for stored in rest] == many[10:]
    assert [stored.letter async for stored in letters.letters()] == many
    with pytest.raises(ConfigurationError, match="limit"):
        await letters.read(limit=0)


async def test_deleted_letters_are_gone_and_their_numbers_too(letters: LocalDeadLetters) -> None:
    """An operator who reads from a number on never misses a letter that came after a delete."""
    await send(letters, LETTER, replace(LETTER, position="42"))
    ids = [stored.id for stored in await letters.read()]
    assert await letters.delete([*ids, 999]) == 2
    assert await letters.count() == 0
    await send(letters, LETTER)
    (stored,) = await letters.read(after=ids[-1])
    assert stored.letter == LETTER


async def test_letter_that_cannot_be_stored_is_retry_alone(letters: LocalDeadLetters) -> None:
    """What SQLite refuses does not hold up the others."""
    await letters._thread.run(lambda db: db.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 9999))
    large = replace(LETTER, position="1", value=b"x" * 20_000)
    strange = replace(LETTER, position="2", timestamp=2**70)
    outcomes = await letters.send([large, strange, LETTER])
    assert [outcome.kind for outcome in outcomes] == [RETRY, RETRY, DURABLE]
    assert "cannot take a letter of orders/eu/3" in str(outcomes[0].error)
    assert [stored.letter for stored in await letters.read()] == [LETTER]


async def test_error_text_of_undecodable_bytes_is_stored(letters: LocalDeadLetters) -> None:
    """An error that quotes a strange file name is no reason to lose the letter."""
    await send(letters, replace(LETTER, error="no such file: \udcff"))
    (stored,) = await letters.read()
    assert stored.letter.error == "no such file: \\udcff"


async def test_locked_file_is_retry_and_passes(letters: LocalDeadLetters, path: Path) -> None:
    """An outage is never raised from send; operators' calls raise what passes."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        outcomes = await letters.send([LETTER, LETTER])
        assert [outcome.kind for outcome in outcomes] == [RETRY, RETRY]
        assert isinstance(outcomes[0].error, TransientStoreError)
        with pytest.raises(TransientStoreError):
            await letters.delete([1])
        assert await letters.count() == 0
    assert await send(letters, LETTER) == [DURABLE]


async def test_cancelled_send_is_written_nevertheless(letters: LocalDeadLetters) -> None:
    """And sent again it is there once."""
    task = asyncio.create_task(letters.send([LETTER]))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert await letters.count() == 1
    assert await send(letters, LETTER) == [DURABLE]
    assert await letters.count() == 1


async def test_sending_nothing_has_no_outcomes(letters: LocalDeadLetters) -> None:
    """Zero letters, zero outcomes."""
    assert await letters.send([]) == []


async def test_store_and_letters_share_a_file(letters: LocalDeadLetters, path: Path) -> None:
    """One file for checkpoints and dead letters; either may be closed first."""
    store = LocalStore(path)
    await store.open()
    assignment = Assignment(Partition("orders", "0"), 1)
    await store.claim("g", [assignment])
    outcomes, (saved,) = await asyncio.gather(
        send(letters, LETTER), store.save("g", [StoreItem(assignment, "text")])
    )
    assert (outcomes, saved.kind) == ([DURABLE], DURABLE)
    await letters.aclose()
    assert await store.peek("g", [assignment.partition]) == {assignment.partition: "text"}
    await store.aclose()


async def test_file_is_readable_by_its_owner_alone(letters: LocalDeadLetters, path: Path) -> None:
    """Letters hold whole records."""
    await send(letters, LETTER)
    modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.glob("*")}
    assert modes == {0o600}


async def test_person_can_read_the_table(letters: LocalDeadLetters, path: Path) -> None:
    """Where it came from, what was wrong and the headers, with nothing but the sqlite3 shell."""
    await send(letters, LETTER)
    with closing(sqlite3.connect(path)) as shell:
        row = shell.execute(
            'SELECT "group", stream, partition, position, error, attempts, headers, value'
            " FROM dead_letters"
        ).fetchone()
    headers = '[["type", "order"], ["type", {"base64": "//4="}], ["none", null], ["empty", ""]]'
    assert row == ("billing", "orders/eu", "3", "41", LETTER.error, 5, headers, LETTER.value)


async def test_unusable_file_is_a_store_error_at_open(tmp_path: Path) -> None:
    """Found before any record is fetched."""
    with pytest.raises(StoreError, match="is a directory"):
        await LocalDeadLetters(tmp_path).open()


async def test_closed_letters_are_a_clear_error(letters: LocalDeadLetters) -> None:
    """And closing is idempotent."""
    await letters.aclose()
    await letters.aclose()
    with pytest.raises(ConsumerClosedError, match="not open"):
        await letters.send([LETTER])
    assert "state.db" in repr(letters)
