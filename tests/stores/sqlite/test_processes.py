"""The local store between processes: races, kill -9, a full disk, a fork."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from consumer_sdk.records import Partition
from consumer_sdk.stores import LocalStore

ROOT = Path(__file__).parents[3]
KILLS = 10


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is."""
    return tmp_path / "state.db"


def start(role: str, path: Path, argument: object = "") -> subprocess.Popen[str]:
    """Starts a process of `tests.stores.local_child`."""
    command = [sys.executable, "-W", "error", "-m", "tests.stores.local_child"]
    return subprocess.Popen(
        [*command, role, str(path), str(argument)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(child: subprocess.Popen[str]) -> list[str]:
    """Waits for its end; returns its lines."""
    out, err = child.communicate(timeout=300)
    assert child.returncode == 0, err
    return out.splitlines()


async def stored(path: Path) -> dict[str, str]:
    """Every checkpoint of the group, read by a store of our own."""
    store = LocalStore(path)
    await store.open()
    try:
        texts = await store.peek("g", await store.list("g"))
        return {partition.id: text or "" for partition, text in texts.items()}
    finally:
        await store.aclose()


async def test_processes_that_open_a_new_file_together_all_can_write(path: Path) -> None:
    """Making the file, its tables and its log is safe against others that do the same."""
    children = [start("save_one", path, number) for number in range(6)]
    assert [finish(child) for child in children] == [["durable"]] * 6
    assert await stored(path) == {str(number): "1" for number in range(6)}


async def test_objects_that_open_a_new_file_together_all_can_write(tmp_path: Path) -> None:
    """The same within one process, where locks belong to the process; often enough to race."""
    for number in range(20):
        stores = [LocalStore(tmp_path / f"{number}.db") for _ in range(6)]
        await asyncio.gather(*(store.open() for store in stores))
        starts = [await store.pin("g", "orders", str(n)) for n, store in enumerate(stores)]
        assert starts == ["0"] * len(stores)
        await asyncio.gather(*(store.aclose() for store in stores))


async def test_racing_processes_lose_no_update(path: Path) -> None:
    """Two owners that take a partition from each other never overwrite one another.

    Every durable save was built on the one before it: the stored number counts them.
    """
    children = [start("compete", path, 150) for _ in range(2)]
    durable = sum(int(line) for child in children for line in finish(child))
    assert await stored(path) == {"0": str(durable)}
    assert durable


async def test_killed_writer_leaves_what_was_durable(path: Path) -> None:
    """Kill -9 in the middle of writing, ten times: no acknowledged save is gone.

    And the file is whole, and all partitions are of one and the same save.
    """
    acknowledged = 0
    for kill in range(KILLS):
        with start("count_up", path) as child:
            assert child.stdout is not None
            for _ in range(3 + kill):
                acknowledged = int(child.stdout.readline())
            child.kill()
            rest = child.stdout.read()
        acknowledged = int((["", *rest.splitlines()][-1]) or acknowledged)
        numbers = {int(text.split()[0]) for text in (await stored(path)).values()}
        assert len(numbers) == 1
        assert acknowledged <= numbers.pop() <= acknowledged + 1
    with closing(sqlite3.connect(path)) as shell:
        assert shell.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_files_that_may_not_grow_are_retry_and_passes(path: Path) -> None:
    """A limit on file sizes makes writes fail as a full disk does: RETRY with a reason.

    Claims raise what is tried again, the last durable save stays, with space all goes on.
    """
    kind, error, durable, raised, after = finish(start("fill_up", path, 300_000))
    assert (kind, raised, after) == ("retry", "TransientStoreError", "durable")
    assert "disk" in error
    assert int(durable) > 1
    assert await stored(path) == {"0": f"{int(durable) + 1} on"}


def on_a_disk_of_its_own(disk: Path, script: str) -> list[str]:
    """Runs a script where ``disk`` has one megabyte; returns its lines."""
    unshare = [shutil.which("unshare") or "false", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody mount a disk of his own")
    disk.mkdir()
    script = f"mount -t tmpfs -o size=1m tmpfs {disk} && {script}"  # gone with the process
    ended = subprocess.run(
        [*unshare, "sh", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


async def test_full_disk_is_retry_and_passes(tmp_path: Path) -> None:
    """A file system without space left: RETRY that says so, nothing lost, and then it goes on."""
    disk, copy = tmp_path / "disk", tmp_path / "copy.db"
    child = f"{sys.executable} -W error -m tests.stores.local_child"
    said = on_a_disk_of_its_own(
        disk,
        f"head -c 500000 /dev/zero > {disk}/ballast && "
        f"{child} fill_disk {disk}/state.db {disk}/ballast && cp {disk}/state.db {copy}",
    )
    kind, error, durable, raised, after = said
    assert (kind, raised, after) == ("retry", "TransientStoreError", "durable")
    assert "the disk is full: free some space" in error
    assert int(durable) > 1
    assert await stored(copy) == {"0": f"{int(durable) + 1} on"}


async def test_forked_child_is_told_and_harms_nothing(path: Path) -> None:
    """Using, opening or closing the store after a fork: a clear error; the parent goes on."""
    error, opened, outcome = finish(start("fork", path))
    assert "before this process was forked" in error
    assert (opened, outcome) == ("not opened", "durable")
    assert await stored(path) == {"0": "1 parent"}


async def test_dead_processes_hold_no_lock(path: Path) -> None:
    """What a killed process had locked is free at once."""
    with start("count_up", path) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.kill()
    store = LocalStore(path, busy_timeout=0.01)
    await store.open()
    await store.delete("g", [Partition("orders", "0")])
    await store.aclose()
