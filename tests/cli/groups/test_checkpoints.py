"""``consumer-sdk checkpoints``: what an operator types, sees and is told."""

from __future__ import annotations

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tomllib
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from consumer_sdk.cli import main
from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.stores import LocalStore
from consumer_sdk.testing.servers import ZooKeeperEndpoint
from tests.stores.exchange.test_legacy_znodes import storm
from tests.stores.exchange_world import FIRST, GROUP, SECOND, entry, opened, own

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-W", "error", "-m", "consumer_sdk"]
Done = subprocess.CompletedProcess[str]


@pytest.fixture
async def state(tmp_path: Path) -> str:
    """The URL of a store with two checkpoints and a pinned start."""
    async with opened(LocalStore(tmp_path / "state.db")) as store:
        await own(store, entry(Checkpoint(41, 42)), entry(Checkpoint(7, 8), SECOND))
        await store.pin(GROUP, "orders", "time:1")
    return f"sqlite://{tmp_path}/state.db"


def run(*arguments: object, given: str = "", topic: str = "checkpoints") -> Done:
    """``consumer-sdk checkpoints …``, in a thread, which has an event loop of its own."""
    command = [topic, *map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.MonkeyPatch.context() as patch,
        ThreadPoolExecutor(1) as thread,
    ):
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        status = thread.submit(status_of, command).result()
    return Done(command, status, out.getvalue(), err.getvalue())


def status_of(command: list[str]) -> int:
    """With what a process would end."""
    try:
        return main(command)
    except SystemExit as end:
        return int(str(end.code))


def process(*arguments: object, given: str = "") -> Done:
    """The same as a process."""
    command = [*COMMAND, "checkpoints", *map(str, arguments)]
    return subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, cwd=ROOT
    )


def refused(done: Done, status: int, *words: str) -> None:
    """It failed with one line that says what and no traceback."""
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    line = done.stderr.splitlines()[-1]
    assert line.startswith("consumer-sdk: ") or status == 2
    assert "Traceback" not in done.stderr
    assert all(word in line for word in words), line


def test_export_is_imported_through_a_pipe(state: str, tmp_path: Path) -> None:
    """Standard output into standard input; then the stores export the same."""
    target = f"sqlite://{tmp_path}/other.db"
    exported = process("export", state, GROUP)
    assert (exported.returncode, exported.stderr) == (0, "exported 3\n")

    would = run("import", target, "-", "--dry-run", given=exported.stdout)
    assert would.stdout == "would write 3, kept 0 that were there\n"
    done = process("import", target, "-", given=exported.stdout)
    assert (done.returncode, done.stdout) == (0, "wrote 3, kept 0 that were there\n")
    assert run("export", target, GROUP).stdout == exported.stdout


def test_export_of_a_file_is_imported_from_it(state: str, tmp_path: Path) -> None:
    """And again, which changes nothing."""
    path, target = tmp_path / "export.jsonl", f"sqlite://{tmp_path}/other.db"
    done = run("export", state, GROUP, "--stream", "orders", "--json")
    assert json.loads(done.stderr) == {"exported": 3}
    path.write_text(done.stdout)

    assert run("import", target, path).stdout == "wrote 3, kept 0 that were there\n"
    assert run("import", target, path).stdout == "wrote 0, kept 3 that were there\n"


async def test_import_that_is_refused_has_its_own_status(state: str, tmp_path: Path) -> None:
    """A script can tell it from an outage; ``--force`` overwrites."""
    exported = run("export", state, GROUP).stdout
    async with opened(LocalStore(tmp_path / "state.db")) as store:
        await own(store, entry(Checkpoint(99, 100)))

    done = run("import", state, "-", given=exported)
    refused(done, 3, "nothing was written", "stdin, line 3", "orders/0", "the store is ahead")
    assert "99" in run("list", state, GROUP).stdout
    assert run("import", state, "-", "--force", given=exported).stdout.startswith("wrote 1,")
    assert "99" not in run("list", state, GROUP).stdout


async def test_list_is_for_people(state: str, tmp_path: Path) -> None:
    """A line for each; what cannot be read is said, and shown."""
    third = Partition("a b", "2")
    async with opened(LocalStore(tmp_path / "state.db")) as store:
        await own(store, entry(Checkpoint(1, 2), third)._replace(text="text"))

    assert run("list", state, GROUP).stdout.splitlines() == [
        "orders\tpinned time:1",
        "a%20b/2\tno checkpoint that can be read: 'text'",
        "orders/0\tkafka: settled up to 41, reads on at 42, 0 ranges above, 0 failed records",
        "orders/1\tkafka: settled up to 7, reads on at 8, 0 ranges above, 0 failed records",
    ]


@pytest.mark.parametrize(
    "which, left",
    [
        (["--partition", "orders/0"], [SECOND]),
        (["--partition", "orders/0", "--partition", "orders/1"], []),
        (["--partition", "orders/9"], [FIRST, SECOND]),
        (["--stream", "payments"], [FIRST, SECOND]),
        (["--stream", "orders"], []),
        (["--all"], []),
    ],
)
async def test_delete_deletes_what_is_named(
    state: str, tmp_path: Path, which: list[str], left: list[Partition]
) -> None:
    """And nothing else."""
    done = run("delete", state, GROUP, *which)

    assert done.returncode == 0
    async with opened(LocalStore(tmp_path / "state.db")) as store:
        assert await store.list(GROUP) == left


@pytest.mark.parametrize(
    "which, said",
    [
        (["--partition", "orders/0"], []),
        (["--stream", "orders"], ["orders", "orders%405f0c%23v2"]),
        (["--stream", "other"], []),
        (["--all"], ["orders", "orders2", "orders%405f0c%23v2"]),
    ],
)
async def test_delete_says_which_starts_stay_pinned(
    state: str, tmp_path: Path, which: list[str], said: list[str]
) -> None:
    """A group without checkpoints would start from them again."""
    async with opened(LocalStore(tmp_path / "state.db")) as store:
        await store.pin(GROUP, "orders@5f0c#v2", "time:2")
        await store.pin(GROUP, "orders2", "time:3")
    done = run("delete", state, GROUP, *which)

    assert done.stdout.startswith("deleted ")
    assert [line.split()[-1] for line in done.stderr.splitlines()] == said


async def test_unpin_deletes_the_start_that_list_has_named(state: str, tmp_path: Path) -> None:
    """By the name in its line, whatever is in that; a second time there is none."""
    async with opened(LocalStore(tmp_path / "state.db")) as store:
        await store.pin(GROUP, "100%/a b@5f0c#v2", "time:2")
    listed = [line.split("\t") for line in run("list", state, GROUP).stdout.splitlines()]
    names = [name for name, what in listed if what.startswith("pinned")]

    assert len(names) == 2
    for name in names:
        assert run("unpin", state, GROUP, name).stdout == "unpinned 1\n"
        assert run("unpin", state, GROUP, name).stdout == "unpinned 0\n"
    assert "pinned" not in run("list", state, GROUP).stdout
    assert run("delete", state, GROUP, "--all").stderr == ""


def test_start_that_cannot_be_read_is_unpinned(state: str, tmp_path: Path) -> None:
    """It ends a list with its name, is no obstacle to a delete, and then is gone."""
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as shell:
        shell.execute("UPDATE pins SET start = x'ff'")

    refused(run("list", state, GROUP), 1, "'orders'", "checkpoints unpin")
    done = run("delete", state, GROUP, "--all")
    assert (done.returncode, done.stdout) == (0, "deleted 2\n")
    assert "still pinned: the start" in done.stderr
    assert run("unpin", state, GROUP, "orders").stdout == "unpinned 1\n"
    assert run("list", state, GROUP).stdout == ""


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], ["COMMAND"]),
        (["export"], ["STORE_URL"]),
        (["export", "memory://", GROUP], ["names no store"]),
        (["export", "sqlite:/nowhere/state.db", GROUP], ["no file"]),
        (["list", "sqlite:/nowhere/state.db", GROUP], ["no file"]),
        (["delete", "sqlite:/nowhere/state.db", GROUP, "--all"], ["no file"]),
        (["delete", "sqlite:/nowhere/state.db", GROUP], ["--all"]),
        (["unpin", "sqlite:/nowhere/state.db", GROUP, "orders"], ["no file"]),
        (["unpin", f"sqlite:{__file__}", GROUP], ["STREAM"]),
        (["import", "zookeeper://zk1/..", os.devnull], ["root="]),
        (["import-storm", "zk1", "/.", "id", "--topic", "t", "sqlite:x", GROUP], ["root="]),
    ],
)
def test_command_line_that_cannot_work_has_status_2(arguments: list[str], words: list[str]) -> None:
    """It says what is missing or wrong."""
    refused(run(*arguments), 2, *words)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["import", "sqlite:/nowhere/state.db", os.devnull], ["/nowhere"]),
        (["import", "sqlite::state:", "/nowhere/export.jsonl"], ["/nowhere/export.jsonl"]),
        (["export", f"sqlite:{__file__}", GROUP], ["test_checkpoints.py"]),
    ],
)
def test_failure_is_one_line_and_has_status_1(arguments: list[str], words: list[str]) -> None:
    """No traceback, whatever it is."""
    refused(run(*arguments), 1, *words)


def test_damaged_file_is_refused_by_its_line(state: str) -> None:
    """A cut one too, of which a part could be read."""
    exported = run("export", state, GROUP).stdout
    cut = "".join(exported.splitlines(keepends=True)[:-1])

    refused(run("import", state, "-", given=cut), 1, "stdin, line 5", "ends too early")


def test_argument_that_is_no_text_is_refused(state: str) -> None:
    """Bytes that are no UTF-8, as a shell may pass them on."""
    command = [*map(os.fsencode, COMMAND), b"checkpoints", b"export", state.encode(), b"\xff"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    refused(done, 2, "not valid text")


def test_reader_that_has_gone_ends_an_export_quietly(state: str) -> None:
    """As ``| head -1`` does."""
    with subprocess.Popen(
        [*COMMAND, "checkpoints", "export", state, GROUP],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        complaint = child.stderr.read()
        assert child.wait() == 1
    assert "Traceback" not in complaint
    assert "Exception" not in complaint


def test_interrupt_ends_it_without_a_traceback(tmp_path: Path) -> None:
    """Ctrl-C while it waits for standard input."""
    with subprocess.Popen(
        [*COMMAND, "checkpoints", "import", f"sqlite:{tmp_path}/state.db", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as child:
        assert child.stdin is not None
        assert child.stderr is not None
        child.stdin.write(b"x" * 1_000_000)  # more than a pipe takes: it is reading
        child.stdin.flush()
        child.send_signal(signal.SIGINT)
        assert child.wait() == 130
        assert child.stderr.read() == b"consumer-sdk: interrupted\n"


@pytest.mark.zookeeper
def test_storm_and_kinesis_spouts_are_taken_over(
    zookeeper_server: ZooKeeperEndpoint, tmp_path: Path
) -> None:
    """From one ZooKeeper into another store, and out of ZooKeeper again."""
    hosts, root = zookeeper_server.hosts, f"/cli-{uuid.uuid4().hex}"
    shell = KazooClient(hosts)
    shell.start(timeout=300)
    try:
        shell.create(f"{root}/größter spout/partition_0", storm(partition=0), makepath=True)
        shell.create(f"{root}/topology/clicks/shard-0/state", b'{"checkpoint":"7"}', makepath=True)
        shell.create(f"{root}/topology/clicks/shard-1", makepath=True)
    finally:
        shell.stop()
        shell.close()
    target = f"zookeeper://{hosts}{root}/sdk"

    spout = ("import-storm", hosts, root, "größter spout")
    storm_spout = (*spout, "--topic", "orders", target, GROUP)
    assert run(*storm_spout, "--dry-run").stdout.startswith("would write 1,")
    assert run(*storm_spout).stdout == "wrote 1, kept 0 that were there\n"
    kinesis_spout = run("import-kinesis-spout", hosts, root, "topology", "clicks", target, GROUP)
    assert kinesis_spout.stdout == "wrote 1, kept 0 that were there\n"
    assert f"nothing to import from {root}/topology/clicks/shard-1/state" in kinesis_spout.stderr
    assert [line.split(",")[0] for line in run("list", target, GROUP).stdout.splitlines()] == [
        f"clicks/shard-0\tkinesis: settled up to 7:{2**63 - 1}",
        "orders/0\tkafka: settled up to 41",
    ]
    exported = run("export", target, GROUP).stdout
    local = f"sqlite://{tmp_path}/state.db"
    assert run("import", local, "-", given=exported).stdout.startswith("wrote 2,")
    assert run("export", local, GROUP).stdout == exported


def test_script_is_the_module() -> None:
    """What an installation calls ``consumer-sdk`` is there, and is what ``-m`` runs."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["consumer-sdk"].partition(":")

    assert callable(getattr(import_module(module), name))
    shown = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True)
    assert "checkpoints" in shown.stdout


def test_json_has_what_people_are_told(state: str) -> None:
    """An object for each line."""
    done = [
        run(*command, "--json")
        for command in (
            ("list", state, GROUP),
            ("unpin", state, GROUP, "orders"),
            ("delete", state, GROUP, "--all"),
        )
    ]
    assert [each.returncode for each in done] == [0, 0, 0]
    pin, first, second = map(json.loads, done[0].stdout.splitlines())
    assert (pin["stream"], pin["partition"], pin["pin"]) == ("orders", None, "time:1")
    assert {each["partition"] for each in (first, second)} == {FIRST.id, SECOND.id}
    assert json.loads(first["checkpoint"])["version"] == 1
    assert json.loads(done[1].stdout) == {"unpinned": 1}
    assert json.loads(done[2].stdout) == {"deleted": 2, "reopened": 0}
