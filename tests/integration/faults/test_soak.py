"""Half an hour at 5 000 records a second with handlers that wait and fail: nothing grows."""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from consumer_sdk.testing.servers import KafkaServer, KinesaliteServer, PulsarServer
from tests.integration.faults.ledger import Ledger
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
    async with world.members_gone():
        member = await world.join(program="tests.integration.faults.soaking")
        file = world.folder / "lines.samples"
        async with world.producing(RATE):
            await _sleep(SECONDS, member)
        count = len(world.ledger.produced)
        assert count >= ENOUGH * RATE * SECONDS, f"{count} were produced: the machine is too busy"
        await _until_done(file, count, member)
        samples = read(file)
        first, last = _windows([each for each in samples if each.done < count])
        _report(world, first, last, samples[-1])
        _check_resources(first, last)
        if grown := [name for name in ("half", "most") if _has_grown(name, first, last)]:
            young, old = await _beside_a_young_process(world, file)
            _report(world, young, old, samples[-1], "young, old: ")
            assert not [name for name in grown if _has_grown(name, young, old)]


async def _beside_a_young_process(world: World, file: Path) -> tuple[list[Sample], list[Sample]]:
    """Samples of another member, and of the old one meanwhile.

    Latencies have the server's and the producer's age in them, too. Only what the old member alone has is its own.
    """
    world.ledger = Ledger(world.folder / "young")
    member = await world.join(program="tests.integration.faults.soaking")
    async with world.producing(RATE):
        await _sleep(SECONDS * (WARM_UP + WINDOW), member)
    size = _size(SECONDS / EVERY)
    young, old = read(world.folder / "young.samples")[-size:], read(file)[-size:]
    assert all(each.half for each in (*young, *old)), "one of them has handled nothing"
    return young, old


async def _sleep(seconds: float, member: Member) -> None:
    until = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until:
        member.check()
        await asyncio.sleep(1)


def _windows(busy: Sequence[Sample]) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """What is compared: of the beginning, and of the end."""
    size, begin = _size(len(busy)), int(len(busy) * WARM_UP)
    return busy[begin : begin + size], busy[-size:]


def _size(count: float) -> int:
    return max(int(count * WINDOW), 1)


def _check_resources(first: Sequence[Sample], last: Sequence[Sample]) -> None:
    for name in ("memory", "files"):
        before, after = _medians(first, last, lambda s, n=name: getattr(s, n))  # type: ignore[misc]
        assert after <= before * GROWTH + (name != "memory"), f"{name}: {before} → {after}"
    # Each handler that waits is a task: what a burst leaves when it is over would grow.
    before, after = (min(sample.tasks for sample in part) for part in (first, last))
    assert after <= before * GROWTH + 1, f"tasks: {before} → {after}"


def _has_grown(name: str, first: Sequence[Sample], last: Sequence[Sample]) -> bool:
    before, after = _medians(first, last, lambda s: getattr(s, name))
    return after > before * GROWTH + LATENCY_SLACK


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


def _report(
    world: World, first: Sequence[Sample], last: Sequence[Sample], end: Sample, what: str = ""
) -> None:
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
        f"{end.seconds / SECONDS:.0%} of a processor; {what}{', '.join(rows)}, "
        f"ms, 99 % of the sends {_longest_sends(world, first):.3g} → {_longest_sends(world, last):.3g}"
    )


def _longest_sends(world: World, samples: Sequence[Sample]) -> float:
    """Milliseconds that 99 % of the sends took at most meanwhile: the server's own pauses are in the latencies."""
    since, until = samples[0].at - EVERY, samples[-1].at
    taken = sorted(took for at, took in world.sends if since <= at < until)
    return taken[len(taken) * 99 // 100] * 1000


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
