"""``consumer-sdk dead-letters``, on real servers and files."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk.cli.letters.listing import opened_letters
from consumer_sdk.dead_letters.urls import dead_letters_from_url
from consumer_sdk.records import DeadLetter
from consumer_sdk.stores import LocalStore
from tests.cli.worlds import (
    World,
    golden,
    letter_of,
    status,
    world_of,
)

BROKERS = [
    pytest.param("kafka", marks=pytest.mark.kafka),
    pytest.param("pulsar", marks=pytest.mark.pulsar),
    pytest.param("kinesis", marks=pytest.mark.kinesis),
    pytest.param("sqlite", marks=pytest.mark.kafka),
]


@dataclass(frozen=True, slots=True)
class Grave:
    """Four letters of one stream: of ValueError, KeyError, ValueError, KeyError.

    Attributes:
        options: what a command needs beside the URL.
        to: where to send, where the letters do not know.
    """

    world: World
    stream: str
    url: str
    options: list[str]
    to: list[str]

    async def run(self, command: str, *more: str) -> int:
        """Calls it."""
        return await status("dead-letters", command, self.url, *self.options, *more)


@pytest.fixture(params=BROKERS)
def place(request: pytest.FixtureRequest) -> tuple[str, World]:
    """Each kind of place, and the server of its records."""
    kind = request.param
    return kind, world_of(request, "kafka" if kind == "sqlite" else kind)


@pytest.fixture
async def grave(place: tuple[str, World], tmp_path: Path) -> Grave:
    """Letters in such a place."""
    kind, world = place
    stream = await world.stream()
    options: list[str] = []
    is_file = kind == "sqlite"
    url = f"sqlite://{tmp_path}/letters.db" if is_file else world.url(await world.stream())
    if kind == "kinesis":
        store = LocalStore(tmp_path / "state.db")
        await store.open()
        await store.aclose()
        options = ["--store", f"sqlite://{tmp_path}/state.db"]
    await bury(url, stream, world)
    to = ["--to", world.url()] if is_file else []
    return Grave(world, stream, url, options, to)


async def bury(url: str, stream: str, world: World, first: int = 0, count: int = 4) -> None:
    """Writes letters as a consumer does."""
    is_file = url.startswith("sqlite")
    letters = dead_letters_from_url(url if is_file else world.writing_url(url.partition("?")[0]))
    await letters.open()
    for at in range(first, first + count):
        error = "KeyError" if at % 2 else "ValueError"
        key, value = b"k%d" % at, b"v%d \xff" % at
        letter = letter_of((stream, world.partition, at), key, value, error)
        (outcome,) = await letters.send([letter])
        assert outcome.is_done, outcome
    await letters.aclose()


def rows(out: str) -> list[dict[str, Any]]:
    """What ``--json`` wrote."""
    return [json.loads(line) for line in out.splitlines()]


async def test_letters_are_listed_sent_again_and_purged(
    grave: Grave, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not chosen stays; the stream has the records as they were."""
    assert await grave.run("list", "--json") == 0
    listed = rows(capsys.readouterr().out)
    assert [each["position"] for each in listed] == ["0", "1", "2", "3"]
    assert {each["stream"] for each in listed} == {grave.stream}
    assert await grave.run("replay", "--error-type", "KeyError", *grave.to) == 0
    assert capsys.readouterr().out.endswith("would send 2; --yes does it\n")
    assert await grave.world.read(grave.stream) == []

    assert await grave.run("replay", "--error-type", "KeyError", "--yes", *grave.to) == 0
    captured = capsys.readouterr()
    assert captured.out.endswith("sent 2\n"), captured
    sent = await grave.world.read(grave.stream)
    assert sorted(sent) == [(b"k1", b"v1 \xff", []), (b"k3", b"v3 \xff", [])]
    assert await grave.run("list", "--json") == 0
    assert [each["position"] for each in rows(capsys.readouterr().out)] == ["0", "2"]

    assert await grave.run("purge", "--limit", "1", "--yes") == 0
    assert capsys.readouterr().out.endswith("purged 1\n")
    assert await grave.run("show", "--json") == 0
    (shown,) = rows(capsys.readouterr().out)
    assert (shown["position"], shown["value"]) == ("2", {"base64": "djIg/w=="})


@pytest.mark.kafka
@pytest.mark.parametrize("place", ["kafka"], indirect=True)
async def test_people_read_one_line_for_each_letter(
    grave: Grave, capsys: pytest.CaptureFixture[str]
) -> None:
    """Golden files have it; a record that is no letter is shown, and never chosen."""
    await grave.world.write(grave.url.rpartition("/")[2].partition("?")[0], [(b"a", b"foreign")])
    for name in ("list", "show", "replay", "purge"):
        assert await grave.run(name) == 0
        golden(f"dead-letters-{name}.txt", capsys.readouterr().out, {grave.stream: "STREAM"})
    assert await grave.run("purge", "--yes") == 0
    capsys.readouterr()
    assert await grave.run("list") == 0
    assert capsys.readouterr().out == "0@4\tno dead letter: it has no header dlq.failed-at\n"


async def test_malformed_url_is_a_line_and_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A bracket that is not closed."""
    assert await status("dead-letters", "list", "kafka://[h/t") == 2
    assert "'kafka://[h/t': Invalid IPv6 URL" in capsys.readouterr().err


async def test_send_that_fails_leaves_the_letters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says why; nothing is gone."""
    url = f"sqlite://{tmp_path}/letters.db"
    world = World(None, "", {}, "0")
    await bury(url, "orders", world)
    command = ("dead-letters", "replay", url, "--yes")
    assert await status(*command[:-1]) == 2
    assert "give --to URL" in capsys.readouterr().err
    assert await status(*command) == 2
    assert "give --to URL" in capsys.readouterr().err
    nowhere = "kafka://127.0.0.1:1?connect_timeout=0.1"
    assert await status(*command, "--to", nowhere) == 1
    captured = capsys.readouterr()
    assert captured.out == "sent 0\n"
    (line,) = captured.err.splitlines()
    assert "4 of 4 letters were not stored, and stay: connecting" in line
    assert await status("dead-letters", "list", url, "--json") == 0
    assert len(rows(capsys.readouterr().out)) == 4


async def test_letter_goes_only_after_it_was_dealt_with(tmp_path: Path) -> None:
    """Cut short in the middle: what was answered for is gone, the rest is handed over again."""
    url = f"sqlite://{tmp_path}/letters.db"
    await bury(url, "orders", World(None, "", {}, "0"))
    seen: list[str] = []

    async def deal(letters: Sequence[DeadLetter]) -> Sequence[bool]:
        seen.extend(letter.position for letter in letters)
        if len(seen) == 2:
            raise asyncio.CancelledError
        return [letter.position != "0" for letter in letters]

    async with opened_letters(url, None, None) as letters:
        with pytest.raises(asyncio.CancelledError):
            await letters.deal(lambda _: True, deal, at_once=1, limit=9)
        await letters.deal(lambda _: True, deal, at_once=1, limit=2)
        assert seen == ["0", "1", "0", "1"]
        assert [found.letter.position async for found in letters.all() if found.letter] == [
            *("0", "2", "3")
        ]


@pytest.mark.campaign
@pytest.mark.parametrize("place", [BROKERS[0]], indirect=True)
async def test_two_replays_at_the_same_time_send_all(
    place: tuple[str, World], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each ends well, although the other one has had letters that it counted; none is left."""
    _, world = place
    stream, letters = await world.stream(2), await world.stream(2)
    url = world.url(letters)
    other = World(world.server, world.base, {}, "1")
    await bury(url, stream, world, 0, 100)
    await bury(url, stream, other, 100, 100)
    command = ("dead-letters", "replay", url, "--yes", "--rate", "20", "--error-type", "KeyError")
    assert {*await asyncio.gather(status(*command), status(*command))} == {0}
    assert {key for key, _, _ in await world.read(stream)} == {b"k%d" % n for n in range(1, 200, 2)}
    capsys.readouterr()
    assert await status("dead-letters", "list", url, "--error-type", "KeyError") == 0
    assert capsys.readouterr().out == ""


@pytest.mark.campaign
@pytest.mark.parametrize("place", [BROKERS[0], BROKERS[3]], indirect=True)
async def test_killed_replay_loses_nothing(grave: Grave) -> None:
    """Whenever it is killed, the next replay sends the rest, and what was not confirmed once more."""
    await bury(grave.url, grave.stream, grave.world, 4, 96)
    command = [
        "dead-letters",
        "replay",
        grave.url,
        *grave.options,
        "--yes",
        "--rate",
        "20",
        *grave.to,
    ]
    for _ in range(3):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "consumer_sdk", *command, stdout=subprocess.DEVNULL
        )
        before = len(await grave.world.read(grave.stream))
        async with asyncio.timeout(120):
            while len(await grave.world.read(grave.stream)) < before + 8:
                await asyncio.sleep(0.2)
        process.kill()
        await process.wait()
    assert await status(*command) == 0
    sent = [key for key, _, _ in await grave.world.read(grave.stream)]
    assert {*sent} == {b"k%d" % at for at in range(100)}
    assert len(sent) < 100 + 3 * 4 * 2
