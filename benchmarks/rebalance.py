"""``python -m benchmarks rebalance``: how long a rebalance holds up the partitions that do not move.

Four members share 12 partitions of a real Kafka, at 1 000 records a second, and a fifth one joins. Of each partition
whose owner stays, the longest time between two records with their handlers is compared with that of as long a time
without a rebalance. What the producer itself waited between the two is taken off. A round's figure is the worst of
these partitions; a figure is the median of the rounds.

Each member is a process. In one process the members would share an event loop, and what one of them does in the
rebalance would count as a pause of the others. The fifth one is started before, so that its imports do not count.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, TypeAlias

from benchmarks import kafka_topic
from benchmarks.harness import Say
from benchmarks.latency_feed import Feed
from benchmarks.markdown import figure, table
from benchmarks.ours.kafka_member import MemberJob
from benchmarks.process import ContestantError
from consumer_sdk.testing.servers import ExternalKafka, KafkaServer, external_address

__all__ = ["AIMS", "figures", "measure", "tables"]

AIMS = {
    "rebalance_pause_ms_eager": "-",
    "rebalance_pause_ms_cooperative": "≤ 50",
    "rebalance_pause_ms_consumer": "≤ 50",
}
MODES: dict[str, dict[str, Any]] = {
    "eager": {"protocol": "classic", "partition_assignment_strategy": ["roundrobin"]},
    "cooperative": {"protocol": "classic", "partition_assignment_strategy": ["cooperative-sticky"]},
    "consumer": {"protocol": "consumer"},
}
"""How the group rebalances → the adapter's options."""
MEMBERS = 4
PARTITIONS = 12
RATE = 1_000
ROUNDS = 3
CALM = 1.0
"""Seconds before the join, and after the new member has its share, that count as part of the rebalance."""
PATIENCE = 120.0


Times: TypeAlias = Mapping[int, Sequence[tuple[float, float]]]
"""By partition: when each record was with its handler, and when it was sent."""


@dataclass(frozen=True, slots=True)
class Round:
    """What was seen in one rebalance, in seconds.

    Attributes:
        stay: by partition that the same member had all the time: the longest gap in the rebalance.
        calm: of the same partitions: the longest gap without a rebalance.
        move: of the other partitions: the longest gap in the rebalance.
    """

    stay: Mapping[int, float]
    calm: Mapping[int, float]
    move: Mapping[int, float]

    @property
    def pause(self) -> float:
        """The worst of the partitions that stay."""
        return max(gap - self.calm[partition] for partition, gap in self.stay.items())


async def measure(*, quick: bool, say: Say) -> dict[str, Any]:
    """The figures of `AIMS`, on a Kafka of its own."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a new topic's sends are retried
    address = external_address("CONSUMER_SDK_KAFKA")
    server = ExternalKafka(address) if address else KafkaServer()
    async with server:
        return await figures(server, quick=quick, say=say)


async def figures(server: KafkaServer | ExternalKafka, *, quick: bool, say: Say) -> dict[str, Any]:
    """The figures of `AIMS`, what else was seen, and the load before and after."""
    rounds: dict[str, list[Round]] = {mode: [] for mode in MODES}
    failures: dict[str, str] = {}
    before = os.getloadavg()[0]
    for _ in range(1 if quick else ROUNDS):
        for mode, options in MODES.items():
            try:
                found = await _round(server, options)
            except (ContestantError, TimeoutError) as error:
                failures[mode] = str(error).splitlines()[-1]
                say(f"  {mode} failed:\n{error}")
                continue
            rounds[mode].append(found)
            say(f"  {mode:12} {len(found.stay)} stay: paused {found.pause * 1e3:8.1f} ms")
    load = [round(each, 1) for each in (before, os.getloadavg()[0])]
    return _report(rounds) | {"load": load, "failures": failures}


def _report(rounds: Mapping[str, Sequence[Round]]) -> dict[str, Any]:
    pauses = {f"rebalance_pause_ms_{mode}": _ms(r.pause for r in of) for mode, of in rounds.items()}
    seen = {
        mode: {
            "stay": min(len(r.stay) for r in of),
            "calm_ms": _ms(max(r.calm.values()) for r in of),
            "stay_ms": _ms(max(r.stay.values()) for r in of),
            "move_ms": _ms(max(r.move.values()) for r in of),
        }
        for mode, of in rounds.items()
        if of
    }
    return pauses | {"rebalances": seen}


def _ms(seconds: Iterable[float]) -> float | None:
    found = list(seconds)
    return round(median(found) * 1e3, 1) if found else None


class _Member:
    """A member's process, and what it has said.

    Attributes:
        handled: partitions of which it has had a record.
        times: when it had each record, and when that was sent, by partition; empty before its end.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise ContestantError("a member was started without pipes")
        self._process = process
        self._input, self._output = process.stdin, process.stdout
        self.handled: set[int] = set()
        self.times: Times = {}
        self._hearing = asyncio.create_task(self._hear())

    def join(self) -> None:
        """Tells it to join the group."""
        self._input.write(b"join\n")

    async def until(self, partitions: int) -> None:
        """Waits until it has had records of so many partitions."""
        async with asyncio.timeout(PATIENCE):
            while len(self.handled) < partitions:
                if self._hearing.done():
                    raise ContestantError("a member has ended by itself: its error is above")
                await asyncio.sleep(0.02)

    async def end(self) -> None:
        """Has it leave the group, and tell its times."""
        self._input.close()
        async with asyncio.timeout(PATIENCE):
            await self._hearing

    async def kill(self) -> None:
        """Ends what still runs."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def _hear(self) -> None:
        async for line in self._output:
            said = json.loads(line)
            if isinstance(said, int):
                self.handled.add(said)
            else:
                self.times = {int(p): [(at, sent) for at, sent in of] for p, of in said.items()}


async def _round(server: KafkaServer | ExternalKafka, options: Mapping[str, Any]) -> Round:
    """One rebalance, with a topic and a group of its own."""
    topic = f"benchmark-{uuid.uuid4().hex[:8]}"
    await server.create_topic(topic, partitions=PARTITIONS)
    servers = server.bootstrap_servers
    try:
        async with _feeding(servers, topic), _members(servers, topic, options) as members:
            *first, last = members
            for member in first:
                member.join()
            for member in first:
                await member.until(PARTITIONS // MEMBERS)
            await asyncio.sleep(CALM)
            began = time.monotonic()
            last.join()
            await last.until(PARTITIONS // (MEMBERS + 1))
            await asyncio.sleep(CALM)
            ended = time.monotonic()
            await asyncio.sleep(ended - began)
            await asyncio.gather(*(member.end() for member in members))
            return _seen([member.times for member in members], began, ended)
    finally:
        await kafka_topic.delete(servers, topic)


@asynccontextmanager
async def _feeding(servers: str, topic: str) -> AsyncIterator[None]:
    feed = Feed(
        servers=servers,
        topic=topic,
        partitions=PARTITIONS,
        rate=RATE,
        seconds=4 * PATIENCE,
        warmup=0,
    )
    process = await feed.start()
    try:
        yield
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def _members(
    servers: str, topic: str, options: Mapping[str, Any]
) -> AsyncIterator[list[_Member]]:
    """Four, and the one that is to join them."""
    group = f"benchmark-{uuid.uuid4().hex}"
    members: list[_Member] = []
    try:
        for number in range(MEMBERS + 1):
            # Leaders of a classic group sort its members by names that begin like this. If the new one is
            # the last, the partitions that stay are the same in each round.
            named = {"client_id": f"member-{number}", **options}
            job = MemberJob(servers=servers, topic=topic, group=group, options=named)
            members.append(_Member(await job.start()))
        yield members
    finally:
        for member in members:
            await member.kill()


def _seen(members: Sequence[Times], began: float, ended: float) -> Round:
    """What the times of each member's records tell of a rebalance.

    Raises:
        ContestantError: each partition moved.
    """
    until = 2 * ended - began
    stay, calm, move = {}, {}, {}
    for partition in range(PARTITIONS):
        times = sorted(t for member in members for t in member.get(partition, ()))
        owners = [
            m for m in members if any(began - CALM < at < until for at, _ in m.get(partition, ()))
        ]
        gap = _longest_gap(times, began, ended)
        if len(owners) == 1:
            stay[partition], calm[partition] = gap, _longest_gap(times, ended, until)
        else:
            move[partition] = gap
    if not stay:
        raise ContestantError("each partition has moved to another member")
    return Round(stay, calm, move)


def _longest_gap(times: Sequence[tuple[float, float]], began: float, ended: float) -> float:
    """The longest time between two records of which one is between the two times, or both around them.

    What the producer waited between the two is taken off.
    """
    gaps = [
        (later - at) - max(later_sent - sent, 0.0)
        for (at, sent), (later, later_sent) in pairwise(times)
        if later > began and at < ended
    ]
    return max(gaps, default=0.0)


def tables(result: Mapping[str, Any]) -> str:
    """The results in Markdown."""
    before, after = result["load"]
    aims = [(f"`{key}`", figure(result[key], 0), aim) for key, aim in AIMS.items()]
    seen = [
        (
            mode,
            figure(each["calm_ms"], 0),
            figure(each["stay_ms"], 0),
            figure(each["move_ms"], 0),
            str(each["stay"]),
        )
        for mode, each in result["rebalances"].items()
    ]
    heads = (
        "rebalance",
        "longest gap without one, ms",
        "longest gap of a partition that stays, ms",
        "longest gap of one that moves, ms",
        "partitions that stay",
    )
    return "\n\n".join(
        [
            f"The load average was {before} before, and {after} after.",
            table(("figure", "measured", "aim"), aims),
            table(heads, seen),
        ]
    )
