"""Half an hour at 5 000 records a second with handlers that wait and fail: nothing grows."""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from consumer_sdk.testing.servers import KafkaServer, KinesaliteServer, PulsarServer
from tests.integration.faults.soaking import EVERY, Sample
from tests.integration.faults.worlds import KafkaWorld, KinesisWorld, Member, PulsarWorld, World

pytestmark = [pytest.mark.campaign(minutes=30), pytest.mark.alone]

RATE = 5_000
SECONDS = 1800.0
WARM_UP = 0.1
"""Of the time: modules are loaded, and pools filled."""
WINDOW = 1 / 6
"""Of the time, at its beginning and at its end: five of thirty minutes."""
GROWTH = 1.1
KEYS = 5_003
"""A key's records wait for each other: with few keys, they could not be handled at this rate."""
ENOUGH = 0.95
"""Of the records: fewer are no such load."""
LATENCY_SLACK = 0.02
"""Seconds by which half of the latencies may differ though nothing grows: less than a tick of the producer."""


async def soak(world: World) -> None:
    """One process, whose samples of the end are those of the beginning."""
    world.keys = KEYS
    await world.create()
    file = world.folder / "lines.samples"
    async with world.members_gone():
        member = await world.join(program="tests.integration.faults.soaking")
        async with world.producing(RATE):
            until = asyncio.get_running_loop().time() + SECONDS
            while asyncio.get_running_loop().time() < until:
                member.check()
                await asyncio.sleep(1)
        count = len(world.ledger.produced)
        assert count >= ENOUGH * RATE * SECONDS, f"{count} were produced: the machine is too busy"
        await _until_done(file, count, member)
    samples = read(file)
    busy = [each for each in samples if each.done < count]
    skipped = busy[int(len(busy) * WARM_UP) :]
    size = max(int(len(busy) * WINDOW), 1)
    first, last = skipped[:size], skipped[-size:]
    _report(world, first, last, samples[-1])
    _report_sends(world, [(part[0].at - EVERY, part[-1].at) for part in (first, last)])
    for name in ("memory", "files"):
        before, after = _medians(first, last, lambda s, n=name: getattr(s, n))  # type: ignore[misc]
        assert after <= before * GROWTH + (name != "memory"), f"{name}: {before} → {after}"
    # Each handler that waits is a task: what a burst leaves when it is over would grow.
    before, after = (min(sample.tasks for sample in part) for part in (first, last))
    assert after <= before * GROWTH + 1, f"tasks: {before} → {after}"
    for name in ("half", "most"):
        before, after = _medians(first, last, lambda s, n=name: getattr(s, n))  # type: ignore[misc]
        assert after <= before * GROWTH + LATENCY_SLACK, f"latency, {name}: {before} → {after}"


async def _until_done(file: Path, count: int, member: Member) -> None:
    async with asyncio.timeout(SECONDS + 300):
        while not (found := read(file)) or found[-1].done < count:
            member.check()
            await asyncio.sleep(EVERY / 4)


def read(file: Path) -> list[Sample]:
    """All samples; a line that is being written is not there yet."""
    text = file.read_text() if file.exists() else ""
    return [Sample(**json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines()]


def _medians(
    first: Sequence[Sample], last: Sequence[Sample], value: Callable[[Sample], float]
) -> tuple[float, float]:
    return statistics.median(map(value, first)), statistics.median(map(value, last))


def _report(world: World, first: Sequence[Sample], last: Sequence[Sample], end: Sample) -> None:
    rows = [
        f"{what} {_medians(first, last, value)[0]:.3g} → {_medians(first, last, value)[1]:.3g}"
        for what, value in (
            ("MB", lambda s: s.memory / 2**20),
            ("descriptors", lambda s: s.files),
            ("tasks, half of the time", lambda s: s.tasks),
            ("ms, half", lambda s: s.half * 1000),
            ("ms, 99 %", lambda s: s.most * 1000),
        )
    ]
    print(  # noqa: T201 - what a campaign was run for
        f"{world.broker}: {SECONDS:.0f} s at {RATE}/s, {end.done} records, 0 lost, {end.again} again, "
        f"{end.seconds / SECONDS:.0%} of a processor; {', '.join(rows)}"
    )


def _report_sends(world: World, parts: Sequence[tuple[float, float]]) -> None:
    """What the server alone takes, whose pauses are in the latencies."""
    taken = [sorted(took for at, took in world.sends if a <= at < b) for a, b in parts]
    shown = [
        f"{each[len(each) * 99 // 100] * 1000:.3g}, at most {each[-1] * 1000:.3g}" for each in taken
    ]
    print(f"{world.broker}: a send of 99 %, ms: {' → '.join(shown)}")  # noqa: T201 - likewise


@pytest.mark.kafka
async def test_kafka_stays_as_it_is(kafka_server: KafkaServer, tmp_path: Path) -> None:
    """Commits are the broker's."""
    await soak(KafkaWorld(kafka_server, tmp_path))


@pytest.mark.kinesis
async def test_kinesis_stays_as_it_is(tmp_path: Path) -> None:
    """Leases and checkpoints are in a file; so are the records: a server with millions in memory pauses for longer."""
    async with KinesaliteServer(options={"path": str(tmp_path / "records")}) as server:
        await soak(KinesisWorld(server, tmp_path))


@pytest.mark.pulsar
async def test_pulsar_stays_as_it_is(pulsar_server: PulsarServer, tmp_path: Path) -> None:
    """A queue, with all that is open in between."""
    await soak(PulsarWorld(pulsar_server, tmp_path, "key_shared"))
