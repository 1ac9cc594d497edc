"""Imports in processes of their own: killed in the middle, and of files larger than memory."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.stores import Entry, LocalStore
from consumer_sdk.stores.exchange.lines import Lines, line_of
from tests.stores.exchange_world import GROUP, entry, exported, opened

ROOT = Path(__file__).parents[3]
BATCH = 500


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A process of `tests.stores.import_child`."""
    command = [sys.executable, "-W", "error", "-m", "tests.stores.import_child"]
    return subprocess.run(
        command + list(map(str, arguments)), cwd=ROOT, capture_output=True, text=True, check=False
    )


def write(path: Path, entries: Iterable[Entry]) -> None:
    """An export."""
    lines = Lines()
    with path.open("wb") as file:
        for line in (lines.first, *map(line_of, entries)):
            lines.add(line.encode())
            file.write(line.encode())
        file.write(lines.last.encode())


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.campaign)])
@pytest.mark.parametrize("save", [pytest.param(0, marks=pytest.mark.campaign), 2])
async def test_import_that_was_killed_is_done_again(tmp_path: Path, save: int, when: str) -> None:
    """What was saved is whole and stays; the second run writes the rest, and no line is lost."""
    checkpoint = Checkpoint(41, 42, ((50, 59),))
    partitions = sorted(Partition("orders", str(number)) for number in range(4 * BATCH))
    state, path = tmp_path / "state.db", tmp_path / "export.jsonl"
    write(path, (entry(checkpoint, partition) for partition in partitions))
    saved = (save + (when == "after")) * BATCH

    assert run(state, path, save, when).returncode == -signal.SIGKILL
    async with opened(LocalStore(state)) as store:
        assert len(await store.list(GROUP)) == saved
    again = run(state, path)
    assert again.stdout.startswith(f"wrote {4 * BATCH - saved}, kept {saved} "), again.stderr
    async with opened(LocalStore(state)) as store:
        assert await exported(store) == path.read_bytes()


@pytest.mark.parametrize(
    "lines, ranges, limit",
    [
        pytest.param(100, 10_000, 20_000_000, id="large"),
        pytest.param(100_000, 25, 50_000_000, id="many"),
    ],
)
@pytest.mark.campaign
def test_file_is_larger_than_the_memory_that_it_takes(
    tmp_path: Path, lines: int, ranges: int, limit: int
) -> None:
    """One batch and the names of the partitions are in memory, beside the interpreter."""
    state, path, empty = (tmp_path / name for name in ("state.db", "export.jsonl", "empty.jsonl"))
    checkpoint = Checkpoint(41, 42, tuple((100 + 3 * n, 101 + 3 * n) for n in range(ranges)))
    write(empty, [])
    write(path, (entry(checkpoint, Partition("orders", str(n))) for n in range(lines)))
    least = int(run(state, empty).stdout.split()[-1])
    done = run(state, path)

    assert done.stdout.startswith(f"wrote {lines}, kept 0 "), done.stderr
    taken = (int(done.stdout.split()[-1]) - least) * 1024
    assert taken < limit < path.stat().st_size
