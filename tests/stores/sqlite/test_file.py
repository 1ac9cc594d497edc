"""The local store's open file: what SQLite's errors become, how it is opened, what a transaction leaves behind."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk.errors import StoreError, TransientStoreError
from consumer_sdk.stores.sqlite.file import WAL_TRIES, Database, translate

PIN = "INSERT INTO pins VALUES ('g', 's', 'earliest')"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is."""
    return tmp_path / "state.db"


def opened(path: Path) -> closing[Database]:
    """An open file, which does not wait long for others."""
    return closing(Database(path, busy_timeout=0.05))


def pins(database: Database) -> int:
    """How many there are."""
    with database.reading() as connection:
        return int(connection.execute("SELECT count(*) FROM pins").fetchone()[0])


def failed(code: int) -> sqlite3.OperationalError:
    """What SQLite raises."""
    error = sqlite3.OperationalError("said so")
    error.sqlite_errorcode = code
    return error


def connect_by(monkeypatch: pytest.MonkeyPatch, factory: type[sqlite3.Connection]) -> None:
    """Files that are opened from now on get such connections."""
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=factory))


# -- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error, kind, words",
    [
        (failed(sqlite3.SQLITE_BUSY), TransientStoreError, "another program keeps it locked"),
        (failed(sqlite3.SQLITE_BUSY_SNAPSHOT), TransientStoreError, "keeps it locked"),
        (failed(sqlite3.SQLITE_IOERR_WRITE), TransientStoreError, "the disk failed"),
        (failed(sqlite3.SQLITE_FULL), TransientStoreError, "free some space"),
        (failed(sqlite3.SQLITE_CORRUPT_INDEX), StoreError, "move it away"),
        (failed(sqlite3.SQLITE_READONLY_DIRECTORY), StoreError, "let this user write"),
        (failed(sqlite3.SQLITE_MISUSE), StoreError, "not expected"),
        (sqlite3.ProgrammingError("said so"), StoreError, "not expected"),
        (PermissionError(errno.EACCES, "said so"), StoreError, "let this user write"),
        (OSError(errno.EROFS, "said so"), StoreError, "let this user write"),
        (OSError(errno.ENAMETOOLONG, "said so"), StoreError, "choose another path"),
    ],
)
def test_error_tells_whether_it_passes_and_what_to_do(
    path: Path, error: sqlite3.Error | OSError, kind: type[StoreError], words: str
) -> None:
    """By the first byte of SQLite's code, whatever its other bytes say more exactly."""
    found = translate(error, path)
    assert type(found) is kind
    assert str(found).startswith(f"{path}: said so: ")
    assert words in str(found)


def test_damage_that_raises_no_error_is_found(path: Path) -> None:
    """A row without what each has: SQLite reads it, and tells of it when it is asked."""
    with opened(path):
        pass
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA writable_schema = ON")
        (schema,) = other.execute("SELECT sql FROM sqlite_master WHERE name = 'pins'").fetchone()
        put = "UPDATE sqlite_master SET sql = ? WHERE name = 'pins'"
        other.execute(put, (schema.replace("start TEXT NOT NULL", "start TEXT"),))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("INSERT INTO pins VALUES ('g', 's', NULL)")
        other.execute("PRAGMA writable_schema = ON")
        other.execute(put, (schema,))
    with opened(path) as database, pytest.raises(StoreError, match=r"NULL value in pins\.start: "):
        database.check("pins")


# -- opening ---------------------------------------------------------------------------------


def test_file_says_whose_it_is_and_of_which_version(path: Path) -> None:
    """Files that exist say so: another number would make them another program's."""
    with opened(path) as database:
        assert database.connection.execute("PRAGMA application_id").fetchone() == (0x63736462,)
        assert database.connection.execute("PRAGMA user_version").fetchone() == (1,)


class Careless(sqlite3.Connection):
    """Of a SQLite that was built to wait for no disk."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        super().execute("PRAGMA synchronous = OFF")


def test_commit_waits_for_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However SQLite was built: what was committed outlives a loss of power."""
    connect_by(monkeypatch, Careless)
    with opened(path) as database:
        assert database.connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert database.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_copy_without_a_log_gets_one(path: Path) -> None:
    """``VACUUM INTO``, an operator's backup, writes a file in SQLite's older mode."""
    copy = path.with_name("copy.db")
    with opened(path) as database:
        database.connection.execute(PIN)
        database.connection.execute("VACUUM INTO ?", (str(copy),))
    with opened(copy) as database:
        assert database.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert pins(database) == 1


def test_file_that_is_made_between_two_looks_is_not_taken_for_anothers(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. This process sees no application_id. 2. Another one makes the file. 3. This one sees a version."""
    others: list[Callable[[], object]] = []

    class Raced(sqlite3.Connection):
        def execute(self, statement: str, /, *parameters: Any) -> sqlite3.Cursor:
            if statement == "PRAGMA user_version" and others:
                others.pop()()
            return super().execute(statement, *parameters)

    def make() -> None:
        with suppress(TransientStoreError), opened(path):
            pass

    connect_by(monkeypatch, Raced)
    others.append(make)
    with opened(path) as database:
        assert pins(database) == 0
    assert not others


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int | str], list[str]]:
    """What SQLite answers to a change of the mode, an error's code or a mode, one after another; and all that is said."""
    answers: list[int | str] = []
    said: list[str] = []

    class Scripted(sqlite3.Connection):
        def execute(self, statement: str, /, *parameters: Any) -> sqlite3.Cursor:
            said.append(statement)
            if not statement.startswith("PRAGMA journal_mode") or not answers:
                return super().execute(statement, *parameters)
            if isinstance(answer := answers.pop(0), int):
                raise failed(answer)
            return super().execute("SELECT ?", (answer,))

    connect_by(monkeypatch, Scripted)
    return answers, said


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY])
def test_mode_that_others_hold_up_is_tried_again(
    path: Path, modes: tuple[list[int | str], list[str]], code: int
) -> None:
    """SQLite does not wait for them there: so a lock is taken in between, which waits."""
    answers, said = modes
    answers += [code] * (WAL_TRIES - 1)
    with opened(path) as database:
        assert pins(database) == 0
    assert said.count("BEGIN EXCLUSIVE") == WAL_TRIES - 1


@pytest.mark.parametrize(
    "code, tries, words",
    [
        (sqlite3.SQLITE_BUSY, WAL_TRIES, "keeps it locked"),
        (sqlite3.SQLITE_IOERR_LOCK, 1, "the disk failed"),
    ],
)
def test_mode_that_cannot_be_changed_is_an_error(
    path: Path, modes: tuple[list[int | str], list[str]], code: int, tries: int, words: str
) -> None:
    """After some tries, where trying may help."""
    answers, said = modes
    answers += [code] * 2 * WAL_TRIES
    with pytest.raises(TransientStoreError, match=words):
        Database(path, busy_timeout=0.05)
    assert sum("journal_mode" in statement for statement in said) == tries


def test_disk_without_shared_memory_is_refused(
    path: Path, modes: tuple[list[int | str], list[str]]
) -> None:
    """SQLite stays in its older mode there, without an error."""
    modes[0].append("delete")
    with pytest.raises(StoreError, match="choose a local disk"):
        Database(path, busy_timeout=0.05)


# -- transactions ----------------------------------------------------------------------------


def test_failed_transaction_locks_out_nobody(path: Path) -> None:
    """Others can write at once, before this one does anything else."""
    with opened(path) as mine, opened(path) as other:
        with pytest.raises(ZeroDivisionError), mine.transaction() as connection:
            connection.execute(PIN)
            _ = 1 / 0
        with other.transaction() as connection:
            connection.execute(PIN)
        assert pins(mine) == 1


def test_transaction_that_was_left_open_is_undone(path: Path) -> None:
    """Where even the rollback failed, the next transaction begins with it."""
    with opened(path) as database:
        database.connection.execute("BEGIN")
        database.connection.execute(PIN)
        with database.transaction():
            pass
        assert pins(database) == 0
