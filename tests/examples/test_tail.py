"""The example of a consumer of one's own: nothing is lost, and a restart goes on where it was."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.examples.running import example, lines

LINES = [f"line {number}" for number in range(300)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An empty file to follow."""
    path = tmp_path / "app.log"
    path.touch()
    return path


def tail(path: Path) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    """The example, following ``path``."""
    return example("tail.py", str(path), "--store", f"{path}.db")


def append(path: Path, texts: Iterable[str], end: str = "\n") -> None:
    """Writes lines at the end of the file."""
    with path.open("a") as file:
        file.writelines(f"{text}{end}" for text in texts)


async def shown(process: asyncio.subprocess.Process, count: int) -> list[str]:
    """The next lines that it handles, without their positions, in the file's order."""
    found = [line.split(" ", 1) for line in await lines(process, count)]
    return [text for _, text in sorted(found, key=lambda pair: int(pair[0]))]


async def stop(process: asyncio.subprocess.Process) -> list[str]:
    """Stops it, and returns what it has handled meanwhile."""
    process.send_signal(signal.SIGTERM)
    rest, _ = await process.communicate()
    assert process.returncode == 0
    return rest.decode().splitlines()


async def test_tail_stopped_and_started_goes_on_where_it_was(path: Path) -> None:
    """What one run has handled the next one does not see; half a line waits for its end."""
    append(path, LINES[:3])
    async with tail(path) as process:
        append(path, ["half"], end="")
        assert await shown(process, 3) == LINES[:3]
        assert await stop(process) == []
    append(path, [" a line", *LINES[3:5]])
    async with tail(path) as process:
        assert await shown(process, 3) == ["half a line", *LINES[3:5]]
        assert await stop(process) == []


async def test_line_that_always_fails_goes_to_the_dead_letters_once(path: Path) -> None:
    """It stops nobody, is tried three times, and is over for the next run."""
    append(path, ["good", "bad", "fine"])
    dead = path.with_name("app.log.dead")
    async with tail(path) as process:
        assert await shown(process, 2) == ["good", "fine"]
        while not dead.exists() or not dead.stat().st_size:
            await asyncio.sleep(0.01)
        assert await stop(process) == []
    append(path, ["last"])
    async with tail(path) as process:
        assert await shown(process, 1) == ["last"]
        assert await stop(process) == []
    assert dead.read_text() == "bad\n"


async def test_tail_killed_again_and_again_loses_no_line(path: Path) -> None:
    """``kill -9`` between any two lines: each line is handled, in one run or another."""
    found: list[str] = []
    for kill in range(4):
        append(path, LINES[kill * 75 : kill * 75 + 75])
        async with tail(path) as process:
            found += await lines(process, 20 + 10 * kill)
            process.kill()
            rest, _ = await process.communicate()
            found += rest.decode().splitlines()
    append(path, ["end"])
    async with tail(path) as process:
        while {line.split(" ", 1)[1] for line in found} < {*LINES, "end"}:
            found += await lines(process, 1)
        await stop(process)
    assert {line.split(" ", 1)[1] for line in found} == {*LINES, "end"}


async def test_second_tail_of_a_file_ends_the_first(path: Path) -> None:
    """The store takes no more from whoever was there before: it ends at its next flush."""
    append(path, LINES[:1])
    async with tail(path) as first:
        assert await shown(first, 1) == LINES[:1]
        async with tail(path) as second:
            while first.returncode is None:
                append(path, ["one of them handles it"])
                await asyncio.sleep(0.05)
            assert first.returncode == 1
            append(path, ["last"])
            while await shown(second, 1) != ["last"]:
                pass
            await stop(second)
