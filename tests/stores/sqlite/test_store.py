"""The local store's file: whose it is, who may read it, what is said when it cannot be used."""

# ruff: noqa: ASYNC240 - these tests have their loop for themselves, and their files are small

from __future__ import annotations

import asyncio
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from consumer_sdk import Consumer, Message, Reject
from consumer_sdk.abc import StoreItem
from consumer_sdk.dead_letters.local import LocalDeadLetters
from consumer_sdk.errors import ConfigurationError, StoreError, TransientStoreError
from consumer_sdk.records import Assignment, OutcomeKind, Partition
from consumer_sdk.stores import LocalStore
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker
from consumer_sdk.testing.memory.dead_letters import MemoryDeadLetters

FIRST = Partition("orders", "0")


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[LocalStore]:
    """An open store that does not wait long for a locked file."""
    store = LocalStore(path, busy_timeout=0.1)
    await store.open()
    try:
        yield store
    finally:
        await store.aclose()


async def put(store: LocalStore, text: str, partition: Partition = FIRST) -> OutcomeKind:
    """Claims and saves."""
    assignment = Assignment(partition, 1)
    await store.claim("g", [assignment])
    (outcome,) = await store.save("g", [StoreItem(assignment, text)])
    return outcome.kind


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is."""
    return tmp_path / "state.db"


@pytest.fixture
def foreign(path: Path) -> Path:
    """Another program's database, in SQLite's older mode."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE checkpoints (theirs TEXT)")
        other.execute("INSERT INTO checkpoints VALUES ('precious')")
        other.commit()
    return path


async def test_new_file_is_readable_by_its_owner_alone(path: Path) -> None:
    """Mode 0600, also of the write-ahead log and its index, whatever the umask allows."""
    async with opened(path) as store:
        await put(store, "text")
        files = sorted(path.parent.iterdir())
        assert [file.name for file in files] == ["state.db", "state.db-shm", "state.db-wal"]
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


async def test_mode_of_an_existing_file_is_left_alone(path: Path) -> None:
    """An operator who lets a group read the file is not overruled."""
    async with opened(path):
        pass
    path.chmod(0o640)
    async with opened(path) as store:
        await put(store, "text")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


async def test_person_can_read_the_table(path: Path) -> None:
    """Group, partition, text and when, with nothing but the sqlite3 shell."""
    async with opened(path) as store:
        await put(store, '{"watermark":"41"}', Partition("a/b", "0"))
        with closing(sqlite3.connect(path)) as shell:
            row = shell.execute(
                'SELECT "group", partition, text, fence, serial, updated_at LIKE "20__-__-__T%Z"'
                " FROM checkpoints"
            ).fetchone()
    assert row == ("g", "a%2Fb/0", '{"watermark":"41"}', None, 1, 1)


async def test_file_is_closed_without_its_log(path: Path) -> None:
    """After aclose one whole file remains, which can be copied."""
    async with opened(path) as store:
        await put(store, "text")
    assert [file.name for file in path.parent.iterdir()] == ["state.db"]


async def test_foreign_database_is_refused_and_untouched(foreign: Path) -> None:
    """Another program's database: StoreError, and not a byte of it changes."""
    before = foreign.read_bytes()
    with pytest.raises(StoreError, match="another program's database: choose another path"):
        await LocalStore(foreign).open()
    assert foreign.read_bytes() == before
    assert [file.name for file in foreign.parent.iterdir()] == [foreign.name]


async def test_foreign_database_with_a_version_alone_is_refused(path: Path) -> None:
    """No tables yet, but a user_version: somebody's, and not ours."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 3")
    with pytest.raises(StoreError, match="another program's"):
        await LocalStore(path).open()


async def test_newer_version_is_refused_and_untouched(path: Path) -> None:
    """A file of a newer consumer_sdk is not written by this one."""
    async with opened(path) as store:
        await put(store, "text")
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 2")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"version 2 .* knows version 1: upgrade"):
        await LocalStore(path).open()
    with closing(sqlite3.connect(path)) as newer:
        assert newer.execute("PRAGMA user_version").fetchone() == (2,)
        assert newer.execute("SELECT text FROM checkpoints").fetchone() == ("text",)
    assert len(path.read_bytes()) == len(before)


@pytest.mark.parametrize("content", [b"not a database" * 100, b"{}", bytes(4096)])
async def test_other_file_is_refused_and_untouched(path: Path, content: bytes) -> None:
    """A file that is no database at all: StoreError that names the way out."""
    path.write_bytes(content)
    with pytest.raises(StoreError, match="no SQLite database: move it away"):
        await LocalStore(path).open()
    assert path.read_bytes() == content


@pytest.mark.parametrize("damage", ["pages", "truncated"])
async def test_damaged_file_is_found_at_open(path: Path, damage: str) -> None:
    """Overwritten pages, or a lost tail: said before any record is fetched."""
    async with opened(path) as store:
        grants = [Assignment(Partition("orders", str(number)), 1) for number in range(300)]
        await store.claim("g", grants)
        await store.save("g", [StoreItem(a, "x" * 500) for a in grants])
    whole = path.read_bytes()
    half = len(whole) // 2
    garbage = b"\xa5" * (len(whole) - half)
    path.write_bytes(whole[:half] if damage == "truncated" else whole[:half] + garbage)
    with pytest.raises(StoreError, match="damaged") as caught:
        await LocalStore(path).open()
    assert not isinstance(caught.value, TransientStoreError)


async def test_link_to_a_missing_file_makes_it_private(tmp_path: Path) -> None:
    """The file at the end of a link is ours as well, and readable by its owner alone."""
    (tmp_path / "link").symlink_to(tmp_path / "target")
    async with opened(tmp_path / "link") as store:
        assert await put(store, "text") is OutcomeKind.DURABLE
    assert stat.S_IMODE((tmp_path / "target").stat().st_mode) == 0o600


async def test_empty_file_is_taken(path: Path) -> None:
    """What `touch` makes, or a kill right after the making, is a database without tables."""
    path.touch()
    async with opened(path) as store:
        assert await put(store, "text") is OutcomeKind.DURABLE


@pytest.mark.parametrize(
    "place, message",
    [
        (".", "is a directory: give the path of a file"),
        ("missing/state.db", "missing: make that directory first"),
        ("file/state.db", "is no directory"),
        ("x" * 300, "File name too long"),
        ("loop", "unable to open database file: let this user write"),
    ],
)
async def test_place_that_cannot_be_is_named(tmp_path: Path, place: str, message: str) -> None:
    """Each bad path has its own words, at open."""
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(StoreError, match=message):
        await LocalStore(tmp_path / place).open()


@pytest.mark.parametrize("name", [":memory:", "file:x?mode=memory", "with space ü"])
async def test_special_names_are_plain_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """No name means anything else than a file to SQLite: checkpoints are never in memory."""
    monkeypatch.chdir(tmp_path)
    async with opened(Path(name)) as store:
        await put(store, "text")
    assert (tmp_path / name).stat().st_size > 0


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_impossible_path_is_a_configuration_error(path: str) -> None:
    """Found when the store is built."""
    with pytest.raises(ConfigurationError, match="path="):
        LocalStore(path)


@pytest.mark.parametrize("timeout", [0, -1.0, float("inf"), float("nan")])
def test_impossible_timeout_is_a_configuration_error(timeout: float) -> None:
    """Found when the store is built."""
    with pytest.raises(ConfigurationError, match="busy_timeout"):
        LocalStore("x", busy_timeout=timeout)


@pytest.mark.parametrize("act", ["deleted", "replaced"])
async def test_file_that_went_away_takes_no_writes(path: Path, act: str) -> None:
    """A save into a file that nobody will ever find again is not DURABLE."""
    async with opened(path) as store:
        assignment = Assignment(FIRST, 1)
        await store.claim("g", [assignment])
        path.unlink()
        if act == "replaced":
            path.touch()
        with pytest.raises(StoreError, match="deleted or replaced"):
            await store.save("g", [StoreItem(assignment, "text")])
        with pytest.raises(StoreError, match="deleted or replaced"):
            await store.peek("g", [FIRST])


@pytest.mark.parametrize("what", ["store", "dead letters"])
async def test_file_that_went_away_ends_the_consumer_with_an_error(path: Path, what: str) -> None:
    """Nothing could be saved any more, however often that is tried."""
    broker = MemoryBroker()
    broker.create_stream("s")
    for n in range(3):
        broker.append("s", b"%d" % n)
    store = LocalStore(path) if what == "store" else None
    letters = LocalDeadLetters(path) if what == "dead letters" else MemoryDeadLetters()

    async def handle(message: Message) -> None:
        path.unlink(missing_ok=True)
        raise Reject("no")

    consumer = Consumer(MemoryAdapter(broker, "s", group="g"), store=store, dead_letters=letters)
    with pytest.raises(StoreError, match="deleted or replaced"):
        await asyncio.wait_for(consumer.run(handle), 60)


async def test_locked_file_is_transient_and_says_whose_fault_it_is(path: Path) -> None:
    """Claim, delete, pin and unpin raise what the runtime tries again; reading goes on."""
    async with opened(path) as store:
        await put(store, "text")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(TransientStoreError, match="another program keeps it locked"):
                await store.claim("g", [Assignment(FIRST, 2)])
            with pytest.raises(TransientStoreError):
                await store.delete("g", [FIRST])
            with pytest.raises(TransientStoreError):
                await store.pin("g", "orders", "latest")
            with pytest.raises(TransientStoreError):
                await store.unpin("g", "orders")
            assert await store.peek("g", [FIRST]) == {FIRST: "text"}
            assert await store.list("g") == [FIRST]


async def test_locked_file_is_transient_at_open(path: Path) -> None:
    """A backup in progress does not make the file unusable for good."""
    async with opened(path):
        pass
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TransientStoreError, match="locked"):
            await LocalStore(path, busy_timeout=0.05).open()


async def test_full_disk_is_retry_and_passes(path: Path) -> None:
    """A file that may not grow: RETRY for all, nothing half-written, and then it goes on."""
    partitions = [Partition("orders", str(number)) for number in range(3)]
    async with opened(path) as store:
        grants = [Assignment(partition, 1) for partition in partitions]
        await store.claim("g", grants)
        await store.save("g", [StoreItem(a, "before") for a in grants])
        limit = "PRAGMA max_page_count = {}"
        await store._thread.run(lambda db: db.connection.execute(limit.format(1)).fetchone())
        small, *large = grants
        items = [StoreItem(small, "during"), *(StoreItem(a, "x" * 100_000) for a in large)]
        outcomes = await store.save("g", items)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.RETRY}
        assert "the disk is full: free some space" in str(outcomes[0].error)
        assert set((await store.peek("g", partitions)).values()) == {"before"}
        await store._thread.run(lambda db: db.connection.execute(limit.format(10**6)).fetchone())
        outcomes = await store.save("g", items)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.DURABLE}


async def test_repr_names_the_file(path: Path) -> None:
    """What a log line shows."""
    assert repr(LocalStore(path)) == f"LocalStore({str(path)!r})"
