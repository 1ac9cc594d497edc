"""``consumer-sdk leases``, and what deletes and imports make of ends."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from consumer_sdk.abc import CheckpointStore, Leases, StoreItem
from consumer_sdk.leases.stores import evict
from consumer_sdk.records import Assignment, Checkpoint, Partition
from consumer_sdk.records.leases import Lease
from consumer_sdk.stores import LocalStore
from tests.cli.groups.test_checkpoints import refused, run
from tests.cli.worlds import golden
from tests.stores.exchange_world import GROUP, entry, opened

ENDED, HELD, FREE = (Partition("orders", id_) for id_ in ("ended", "held", "free"))
END = Checkpoint((8, 0), (8, 0), ended=True)


def orders_of(store: CheckpointStore) -> Leases:
    """A member of the group, which has not joined."""
    leases = store.leases(GROUP, "orders")
    assert leases is not None
    return leases


@pytest.fixture
async def state(tmp_path: Path) -> str:
    """The URL of a store with a partition that has ended, one that is held, and one that is free."""
    async with opened(LocalStore(tmp_path / "state.db")) as store:
        leases = orders_of(store)
        await leases.sync({"ended": (), "held": (), "free": ("ended",)})
        fences = await leases.take({"ended": 0, "held": 0})
        claim = Assignment(ENDED, 1, fences["ended"])
        await store.claim(GROUP, [claim])
        await store.save(GROUP, [StoreItem(claim, entry(END, ENDED, broker="kinesis").text)])
        await leases.release({"ended": fences["ended"]}, ended=True)
        await leases.renew()
    return f"sqlite://{tmp_path}/state.db"


async def leases_of(state: str) -> dict[str, Lease]:
    """What is stored."""
    async with opened(LocalStore(state.removeprefix("sqlite://"))) as store:
        return dict((await orders_of(store).view()).leases)


def test_list_says_who_holds_what_since_when_and_what_has_ended(state: str) -> None:
    """A line for each, for people."""
    lines = [
        line.split("\t") for line in run("list", state, GROUP, topic="leases").stdout.splitlines()
    ]
    assert [line[0] for line in lines] == ["orders/ended", "orders/free", "orders/held"]
    assert [line[1] for line in lines[:2]] == ["ended", "nobody's"]
    assert lines[2][1].startswith("held by ")
    assert lines[2][1].endswith(f"/{socket.gethostname()}/{os.getpid()}")
    assert lines[0][2].startswith("since 20")
    assert lines[1][2:] == ["since -", "fence 0"]
    assert run("list", state, "other", topic="leases").stdout == ""
    assert run("list", state, GROUP, "--stream", "other", topic="leases").stdout == ""


async def test_release_and_reopen_take_what_list_writes(tmp_path: Path) -> None:
    """Whatever the names hold, it is one line, and one field."""
    state = f"sqlite://{tmp_path}/odd.db"
    async with opened(LocalStore(tmp_path / "odd.db")) as store:
        leases = store.leases(GROUP, "a/b\n%\t日")
        assert leases is not None
        await leases.sync({"[red]p q": ()})
        await leases.take({"[red]p q": 0})
    (line,) = run("list", state, GROUP, topic="leases").stdout.splitlines()
    named = ["--partition", line.split("\t")[0]]
    done = run("release", state, GROUP, *named, "--yes", "--force", topic="leases")
    assert done.stdout.startswith(f"{named[1]}\theld by ")
    assert done.returncode == 0
    assert run("reopen", state, GROUP, *named, topic="leases").stdout == "reopened 0\n"


def test_list_of_odd_content_has_a_line_for_each(state: str) -> None:
    """A time that is no date, and a name that no terminal can show."""
    row = {"owner": "\udc80", "fence": 1, "since": 10**30}
    text = json.dumps({"version": 1, "fence": 1, "leases": {"held": row}})
    with closing(sqlite3.connect(state.removeprefix("sqlite://"))) as file, file:
        file.execute("UPDATE leases SET text = ?", (text,))
    (line,) = run("list", state, GROUP, topic="leases").stdout.splitlines()
    assert line.split("\t") == [
        "orders/held",
        "held by \\udc80, who is gone",
        "since -",
        "fence 1",
    ]


def test_list_as_json_has_all_that_is_stored(state: str) -> None:
    """An object for each, in order."""
    lines = run("list", state, GROUP, "--json", topic="leases").stdout.splitlines()
    ended, free, held = map(json.loads, lines)
    assert (ended["ended"], held["ended"], held["is_member"]) == (True, False, True)
    assert (free["parents"], free["owner"], free["since"]) == (["ended"], None, None)
    assert held["since"] > 1.7e9


async def test_reopened_end_is_taken_back_in_the_checkpoint_and_the_lease(state: str) -> None:
    """What was settled stays settled; a second time there is nothing to do."""
    named = ["--partition", f"{ENDED}", "--partition", f"{HELD}", "--partition", "orders/9"]
    assert run("reopen", state, GROUP, *named, topic="leases").stdout == "reopened 1\n"
    assert "settled up to 8:0" in run("list", state, GROUP).stdout
    assert "ended" not in run("list", state, GROUP).stdout.replace("orders/ended", "")
    leases = await leases_of(state)
    assert (leases["ended"].ended, leases["held"].owner is None) == (False, False)
    assert run("reopen", state, GROUP, *named, topic="leases").stdout == "reopened 0\n"


def test_reopen_and_remove_as_json_say_how_many(state: str) -> None:
    """An object each."""
    reopened = run("reopen", state, GROUP, "--partition", f"{ENDED}", "--json", topic="leases")
    assert json.loads(reopened.stdout) == {"reopened": 1}
    removed = run("remove", state, GROUP, "--stream", "orders", "--json", topic="leases")
    assert json.loads(removed.stdout) == {"removed": 1}


async def test_release_says_what_it_would_do_and_frees_the_lease_of_a_holder_that_is_gone(
    state: str,
) -> None:
    """It is nobody's then; its fence stays, so that the next take has a higher one."""
    with closing(sqlite3.connect(state.removeprefix("sqlite://"))) as file, file:
        file.execute("DELETE FROM members")
    before = (await leases_of(state))["held"]
    assert before.owner is not None
    named = ["--partition", f"{HELD}", "--partition", f"{HELD}"]
    names = {before.owner: "HOLDER"}
    would = run("release", state, GROUP, *named, topic="leases")
    golden("leases-release-dry.txt", would.stdout, names)
    assert (await leases_of(state))["held"] == before
    done = run("release", state, GROUP, *named, "--yes", topic="leases")
    assert (done.returncode, done.stderr) == (0, "")
    golden("leases-release.txt", done.stdout, names)
    after = (await leases_of(state))["held"]
    assert (after.owner, after.fence) == (None, before.fence)


async def test_release_from_a_holder_that_seems_to_live_is_forced_or_refused(state: str) -> None:
    """Nothing of it is done when one is refused; as JSON it says what became of each."""
    named = ["release", state, GROUP, "--partition", f"{HELD}", "--json"]
    (row,) = map(json.loads, run(*named, topic="leases").stdout.splitlines())
    assert (row["is_member"], row["released"]) == (True, False)
    without_json = run(*named[:-1], topic="leases").stdout
    assert without_json.splitlines()[0].endswith("\twould be released with --force")
    refused(run(*named, "--yes", topic="leases"), 3, "seems to live", "--force", row["owner"])
    assert (await leases_of(state))["held"].owner == row["owner"]
    (row,) = map(json.loads, run(*named, "--yes", "--force", topic="leases").stdout.splitlines())
    assert row["released"] is True
    assert (await leases_of(state))["held"].owner is None


@pytest.mark.parametrize(
    "partition, words",
    [
        ("orders/9", "there is no such lease"),
        ("other/held", "there is no such lease"),
        (f"{FREE}", "is nobody's"),
        (f"{ENDED}", "has ended: `leases reopen` takes that back"),
    ],
)
async def test_release_of_what_nobody_holds_is_refused(
    state: str, partition: str, words: str
) -> None:
    """And nothing else is released then."""
    named = ["--partition", f"{HELD}", "--partition", partition, "--yes", "--force"]
    refused(run("release", state, GROUP, *named, topic="leases"), 2, partition, words)
    assert (await leases_of(state))["held"].owner is not None


async def test_release_that_comes_too_late_says_so(
    state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one has taken it since it was looked at, and keeps it."""

    async def take_before(
        store: CheckpointStore, group: str, seen: Mapping[Partition, int]
    ) -> set[Partition]:
        await orders_of(store).take({HELD.id: seen[HELD]})
        return await evict(store, group, seen)

    monkeypatch.setattr("consumer_sdk.cli.groups.leases.evict", take_before)
    named = ["--partition", f"{HELD}", "--yes", "--force"]
    done = run("release", state, GROUP, *named, topic="leases")
    assert done.stdout.endswith("\tstays\n")
    assert done.returncode == 1
    assert "orders/held: changed hands meanwhile" in done.stderr
    assert (await leases_of(state))["held"].owner is not None


async def test_release_of_what_its_holder_has_let_go_meanwhile_is_done(
    state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is nobody's, as was asked for; so it is too where the reply to the first try was lost."""

    async def evict_before(
        store: CheckpointStore, group: str, seen: Mapping[Partition, int]
    ) -> set[Partition]:
        await evict(store, group, seen)
        return await evict(store, group, seen)

    monkeypatch.setattr("consumer_sdk.cli.groups.leases.evict", evict_before)
    named = ["--partition", f"{HELD}", "--yes", "--force"]
    done = run("release", state, GROUP, *named, topic="leases")
    assert done.stdout.endswith("\treleased\n")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("which", [["--all"], ["--stream", "orders"], ["--partition", f"{ENDED}"]])
async def test_delete_takes_ends_back(state: str, which: list[str]) -> None:
    """A group that is started anew would leave these partitions out."""
    assert run("delete", state, GROUP, *which).stdout == "deleted 1\nreopened 1 that had ended\n"
    assert not (await leases_of(state))["ended"].ended


async def test_delete_takes_back_an_end_without_a_checkpoint(state: str, tmp_path: Path) -> None:
    """As a delete of an older version has left it, or one that was killed."""
    async with opened(LocalStore(tmp_path / "state.db")) as store:
        leases = orders_of(store)
        await leases.release(await leases.take({"free": 0}), ended=True)
    assert run("delete", state, GROUP, "--stream", "other").stdout == "deleted 0\n"
    assert run("delete", state, GROUP, "--all").stdout == "deleted 1\nreopened 2 that had ended\n"
    assert not any(lease.ended for lease in (await leases_of(state)).values())


@pytest.mark.parametrize("is_kept", [False, True], ids=["written", "kept"])
async def test_import_over_an_end_takes_it_back(
    state: str,
    tmp_path: Path,
    is_kept: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """A backup of before; also where an import was killed before it had done this."""
    backup = f"sqlite://{tmp_path}/backup.db"
    async with opened(LocalStore(tmp_path / "backup.db")) as store:
        claim = Assignment(ENDED, 1)
        await store.claim(GROUP, [claim])
        text = entry(Checkpoint((5, 0), (5, 0)), ENDED, broker="kinesis").text
        await store.save(GROUP, [StoreItem(claim, text)])
    if is_kept:
        async with opened(LocalStore(tmp_path / "state.db")) as store:
            await store.claim(GROUP, [claim])
            await store.save(GROUP, [StoreItem(claim, text)])
    exported = run("export", backup, GROUP).stdout
    forced = run("import", state, "-", "--force", given=exported)
    assert forced.stdout.startswith(f"wrote {not is_kept:d}, kept {is_kept:d}")
    leases = await leases_of(state)
    assert (leases["ended"].ended, leases["held"].owner is None) == (False, False)


async def test_import_of_an_end_leaves_it(state: str) -> None:
    """It says that all is settled."""
    exported = run("export", state, GROUP).stdout
    assert run("import", state, "-", "--force", given=exported).stdout.startswith("wrote 0, kept 1")
    assert (await leases_of(state))["ended"].ended


def test_command_line_that_cannot_work_has_status_2(state: str) -> None:
    """It says what is missing or wrong."""
    refused(run("reopen", state, GROUP, topic="leases"), 2, "--partition")
    refused(run("reopen", state, GROUP, "--partition", "a", topic="leases"), 2, "a")
    refused(run("list", "sqlite:/nowhere/state.db", GROUP, topic="leases"), 2, "no file")


async def test_damaged_leases_stop_no_other_stream_and_can_be_removed(
    state: str, tmp_path: Path
) -> None:
    """They are named, with the partition. What is taken afterwards has a higher fence than ever."""
    async with opened(LocalStore(tmp_path / "state.db")) as store:
        other = store.leases(GROUP, "other")
        assert other is not None
        await other.sync({"1": ()})
    with closing(sqlite3.connect(state.removeprefix("sqlite://"))) as file, file:
        text = '{"version":1,"fence":7,"leases":{"held":{"fence":"7"}}}'
        file.execute("UPDATE leases SET text = ? WHERE stream = 'orders'", (text,))
    shown = run("list", state, GROUP, topic="leases")
    assert (shown.returncode, shown.stdout.split("\t")[0]) == (1, "other/1")
    assert "the leases of 'orders'" in shown.stderr
    assert "held: fence is '7'" in shown.stderr
    assert run("list", state, GROUP, "--stream", "other", topic="leases").returncode == 0
    assert run("delete", state, GROUP, "--stream", "other").returncode == 0
    assert run("delete", state, GROUP, "--partition", "other/1").returncode == 0
    assert "leases remove" in run("delete", state, GROUP, "--partition", f"{HELD}").stderr
    gone = ["--stream", "orders"]
    assert run("remove", state, GROUP, *gone, topic="leases").stdout == "removed 1\n"
    assert run("remove", state, GROUP, "--stream", "none", topic="leases").stdout == "removed 0\n"
    async with opened(LocalStore(tmp_path / "state.db")) as store:
        leases = orders_of(store)
        assert (await leases.view()).leases == {}
        await leases.sync({"ended": ()})
        (fence,) = (await leases.take({"ended": 0})).values()
        claim = Assignment(ENDED, 1, fence)
        assert isinstance((await store.claim(GROUP, [claim]))[claim], str)
