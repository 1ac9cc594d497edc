"""``lag``, ``explain``, ``tail``, ``checkpoints show`` and ``reset``, on real servers."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consumer_sdk import Consumer
from tests.cli.worlds import World, golden, kafka_world, status, world_of

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KafkaServer

BROKERS = [
    pytest.param("kafka", marks=pytest.mark.kafka),
    pytest.param("kafka+store", marks=pytest.mark.kafka),
    pytest.param("pulsar", marks=pytest.mark.pulsar),
    pytest.param("pulsar+store", marks=pytest.mark.pulsar),
    pytest.param("kinesis+store", marks=pytest.mark.kinesis),
]
COUNT = 6


@dataclass(frozen=True, slots=True)
class Seen:
    """A group that has settled 0, 1 and 3 of six records, with a hole at 2, and runs no more.

    Attributes:
        url: its consumers'.
        store: theirs.
        group: the group's name, which no other test has: a broker knows it whatever its streams are.
    """

    world: World
    stream: str
    url: str
    store: str | None
    group: str

    async def run(self, *command: str) -> int:
        """Calls a command on it."""
        options = [] if self.store is None else ["--store", self.store]
        return await status(*command, self.url, *options)

    async def consume(self, count: int, acked: Sequence[bytes] = ()) -> list[bytes | None]:
        """The values of the next records; those that are named are settled."""
        values: list[bytes | None] = []
        consumer = Consumer(self.url, store=self.store, drain_timeout=0.1)
        async with consumer, asyncio.timeout(120):
            async for message in consumer:
                values.append(message.value)
                if message.value in acked:
                    message.ack()
                if len(values) == count:
                    break
            await consumer.flush()
        return values


@pytest.fixture(params=BROKERS)
def place(request: pytest.FixtureRequest) -> tuple[str, str, World]:
    """Each broker's name, whether there is a store, and the server."""
    broker, _, store = request.param.partition("+")
    return broker, store, world_of(request, broker)


@pytest.fixture
async def seen(place: tuple[str, str, World], tmp_path: Path) -> Seen:
    """Such a group in each place."""
    broker, store, world = place
    stream = await world.stream()
    await world.write(stream, [(b"k%d" % (at % 2), b"v%d" % at) for at in range(COUNT)])
    group = f"billing-{uuid.uuid4().hex[:8]}"
    url = world.url(stream, **{"subscription" if broker == "pulsar" else "group": group})
    made = Seen(world, stream, url, f"sqlite://{tmp_path}/state.db" if store else None, group)
    assert len(await made.consume(COUNT, [b"v0", b"v1", b"v3"])) == COUNT
    return made


async def test_group_that_does_not_run_is_explained_and_set_back(
    seen: Seen, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its hole and its lag are told; a reset is shown first, and the next start follows it."""
    assert await seen.run("explain", "--json") == 0
    (row,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (row["records"], row["holes"], row["settled_above"]) == (3, 1, 1), row
    assert row["seconds"] > 0
    assert row["pinned_by"] is not None
    assert await seen.run("lag", "--fail-above", "3") == 0
    assert await seen.run("lag", "--fail-above", "2") == 1
    assert "is 3 records behind, above 2" in capsys.readouterr().err

    assert await seen.run("checkpoints", "reset", "--to", "earliest") == 0
    out = capsys.readouterr().out
    assert "repeats 3, skips 0\n" in out
    assert out.endswith("nothing was written; --yes does it\n")
    assert await seen.run("checkpoints", "reset", "--to", "earliest", "--shift", "1", "--yes") == 0
    assert "repeats 2, skips 0\n" in capsys.readouterr().out
    assert await seen.consume(COUNT - 1) == [b"v%d" % at for at in range(1, COUNT)]

    assert await seen.run("checkpoints", "reset", "--to", "latest", "--yes") == 0
    assert await seen.run("lag", "--json") == 0
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (row["records"], row["seconds"], row["pinned_by"]) == (0, 0.0, None)
    await seen.world.write(seen.stream, [(b"k", b"new")])
    assert await seen.consume(1) == [b"new"]


@pytest.mark.parametrize("place", [BROKERS[2]], indirect=True)
async def test_message_in_chunks_is_not_lost_by_a_reset(
    seen: Seen, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reset to its last chunk, which is its position, is refused; one to the end is not."""
    await seen.world.write(seen.stream, [(b"k", bytes(6 * 2**20)), (b"k", b"last")])
    assert await status("tail", seen.url, "--last", "2", "--json") == 0
    large, last = map(json.loads, capsys.readouterr().out.splitlines()[-2:])
    reset = ["checkpoints", "reset", "--yes", "--to"]
    assert await seen.run(*reset, large["position"]) == 1
    assert "a message in chunks ends at" in capsys.readouterr().err
    assert await seen.run(*reset, last["position"]) == 0
    assert await seen.run(*reset, "latest") == 0


@pytest.mark.parametrize("place", [BROKERS[0], BROKERS[2], BROKERS[4]], indirect=True)
async def test_last_records_of_a_key_are_shown(
    seen: Seen, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """As they are, or as JSON."""
    assert await status("tail", seen.url, "--last", "4", "--key", "k1") == 0
    assert capsysbinary.readouterr().out == b"v3\nv5\n"
    assert await status("tail", seen.url, "--from", "1h", "-n", "1", "--json") == 0
    row = json.loads(capsysbinary.readouterr().out)
    assert (row["key"], row["value"]) == ("k0", "v0")


@pytest.mark.parametrize("place", [BROKERS[0]], indirect=True)
async def test_group_that_runs_is_not_reset(seen: Seen, capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused with who runs, and Kafka refuses it even when it is forced."""
    consumer = Consumer(seen.url)
    async with consumer, asyncio.timeout(120):
        await anext(aiter(consumer))
        assert await seen.run("checkpoints", "reset", "--to", "latest", "--yes") == 3
        assert f"group {seen.group!r} runs, stop it first" in capsys.readouterr().err
        assert await seen.run("checkpoints", "reset", "--to", "latest", "--yes", "--force") == 1
        assert "0 partitions were reset, 1 were not" in capsys.readouterr().err


@pytest.mark.parametrize("place", [BROKERS[0]], indirect=True)
async def test_people_read_one_line_for_each_partition(
    seen: Seen, capsys: pytest.CaptureFixture[str]
) -> None:
    """Golden files have it."""
    for command in (
        ["explain"],
        ["checkpoints", "show"],
        ["checkpoints", "reset", "--to", "4"],
        ["lag"],
        ["tail", "--format", "hex", "--last", "2"],
    ):
        if command[0] == "tail":
            assert await status(*command, seen.url) == 0
        else:
            assert await seen.run(*command) == 0
        name = "-".join(command[:2] if command[0] == "checkpoints" else command[:1])
        golden(
            f"{name}.txt", capsys.readouterr().out, {seen.stream: "STREAM", seen.group: "billing"}
        )


@pytest.fixture
async def shared(kafka_server: KafkaServer) -> Seen:
    """A share group that has not begun, and six records."""
    world = kafka_world(kafka_server)
    stream = await world.stream()
    await world.write(stream, [(b"k", b"v%d" % at) for at in range(COUNT)])
    group = f"resizing-{uuid.uuid4().hex[:8]}"
    return Seen(world, stream, world.url(stream, share_group=group), None, group)


@pytest.mark.kafka
async def test_share_group_is_explained_and_its_lag_counts_what_is_not_settled(
    shared: Seen, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before it has begun, and behind a hole; its broker tells no holes."""
    assert await shared.run("explain") == 0
    assert "\tno position: nothing is settled, 6 records" in capsys.readouterr().out
    assert len(await shared.consume(COUNT, [b"v0", b"v1", b"v3"])) == COUNT
    assert await shared.run("explain", "--json") == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["start"], row["end"], row["records"]) == ("2", "6", 3)
    assert (row["holes"], row["settled_above"], row["pinned_by"]) == (None, 1, None)
    assert row["seconds"] > 0
    assert await shared.run("explain") == 0
    assert " s, 1 above settled\n" in capsys.readouterr().out
    assert await shared.run("lag", "--fail-above", "3") == 0
    assert await shared.run("lag", "--fail-above", "2") == 1
    assert "is 3 records behind, above 2" in capsys.readouterr().err
    assert await status("lag", shared.url, "--store", "sqlite:///state.db") == 2
    assert "has no store: leave --store out" in capsys.readouterr().err


@pytest.mark.kafka
async def test_check_of_a_run_says_how_far_its_share_group_has_come(
    shared: Seen, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody joins it for that."""
    file = tmp_path / "consumer.toml"
    run = 'app = "tests.cli.run.apps:handle"\n[run]\nordering = "none"\n'
    file.write_text(f'{run}[consumer]\nurl = "{shared.url}"\n')
    assert await status("run", "--config", str(file), "--check") == 0
    out = capsys.readouterr().out
    assert f"share group {shared.group}, with nobody joined:\n" in out
    assert out.endswith("\tthe share group has not begun: 6 records\n")
    await shared.consume(COUNT, [b"v0", b"v1", b"v3"])
    assert await status("run", "--config", str(file), "--check") == 0
    assert ": 3 records, 1 of those behind it settled\n" in capsys.readouterr().out


@pytest.mark.parametrize("place", [BROKERS[0]], indirect=True)
@pytest.mark.parametrize(
    "options, words",
    [
        (["--to", "yesterday"], "--to yesterday: give earliest, latest, a time such as 2h"),
        (["--to", "2026-05-01T12:00:00"], "could be any time zone's"),
        (["--partition", "7", "--to", "latest"], "--partition 7: there is none, only 0"),
        ([], "where to? give --to, --shift or both"),
    ],
)
async def test_reset_that_cannot_work_says_why(
    seen: Seen, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, and one line."""
    assert await seen.run("checkpoints", "reset", *options) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
