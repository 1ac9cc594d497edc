"""Rebalances with whole consumers on a real Kafka: what is moved, repeated, and never lost."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import Consumer, Message, RetryPolicy
from tests.adapters.kafka.consumer_groups import set_session
from tests.adapters.kafka.harness import KafkaHarness
from tests.integration.field import PATIENCE, Field, Place, place, until
from tests.integration.stopped_consumer import SESSION

pytestmark = pytest.mark.kafka

SHORT: dict[str, Any] = {"session_timeout": 6.0, "heartbeat_interval": 0.2}
"""Not so short that a member loses it by what else the machine does."""
LONGER = 1.5 * SHORT["session_timeout"]


async def test_members_come_and_go_under_load_and_nothing_drained_is_repeated(
    field: Field,
) -> None:
    """T1, T3, T6, T19: all is processed, exactly once when every drain ends, and goes on after."""
    await field.create(4)
    produced: set[Place] = set()
    done: Counter[Place] = Counter()
    members: Counter[str] = Counter()
    is_enough = asyncio.Event()

    def handler(name: str) -> Any:
        async def handle(message: Message) -> None:
            await asyncio.sleep(0.1)  # so long that a revoke finds some at work
            done[place(message)] += 1
            members[name] += 1

        return handle

    async def pour() -> None:
        while not is_enough.is_set():
            for partition in range(4):
                produced.update(await field.append(50, partition=partition, keys=50))
            await until(lambda: len(produced - done.keys()) < 1000, "the load is taken")

    first = field.consumer()
    async with field.running(first, handler("first"), concurrency=200) as running:
        pouring = asyncio.create_task(pour())
        tasks = (running, pouring)
        for name in ("second", "third"):
            members[name] = 0
            async with field.running(field.consumer(), handler(name), concurrency=200) as other:
                await until(lambda: min(members.values()) >= 50, f"{name} works", other, *tasks)
                await field.committed()
            await field.committed()
        before = members["first"]
        await until(lambda: members["first"] > before + 100, "the first goes on", *tasks)
        is_enough.set()
        await pouring
        await until(lambda: done.keys() == produced, "all is processed", running)
        ends = {p: max(offset for at, offset in produced if at == p) + 1 for p in range(4)}
        await field.until_committed(ends)
        stats = first.stats()
    assert (stats.in_flight, stats.retrying, stats.paused) == (0, 0, ())
    assert len(stats.partitions) == 4
    assert set(done.values()) == {1}
    assert all(offsets == sorted(offsets) for offsets in field.seen_commits.values())


async def test_stuck_handlers_do_not_hold_up_the_group_and_their_late_acks_are_ignored(
    field: Field,
) -> None:
    """T1, T2, T17, T28: a revoke is bounded; what was stuck or queued comes again, once."""
    await field.create(2)
    produced = await field.append(20, partition=0, keys=1) | await field.append(
        20, partition=1, keys=1
    )
    stuck: list[Message] = []
    cancelled: list[Message] = []
    done: Counter[Place] = Counter()

    async def first_handler(message: Message) -> None:
        if message.position == 0 and len(stuck) < 2:
            stuck.append(message)
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(message)
        done[place(message)] += 1

    async def second_handler(message: Message) -> None:
        done[place(message)] += 1

    quick = {"rebalance_timeout": 6.0}
    first, second = field.consumer(adapter=quick), field.consumer(adapter=quick)
    async with field.running(first, first_handler) as one:
        await until(lambda: len(stuck) == 2, "both partitions are stuck", one)
        async with field.running(second, second_handler) as two:
            await until(lambda: done.keys() == produced, "all is processed", one, two)
            ends = {0: 20, 1: 20}
            await field.until_committed(ends)
            # All of them: they would work beside the new owner.
            assert sorted(map(place, cancelled)) == sorted(map(place, stuck))
            ignored = first.stats().ignored
            assert not any(message.ack() for message in stuck)
            assert first.stats().ignored == ignored + 2
            await first.flush()
            assert await field.committed() == ends
    assert set(done.values()) == {1}


@pytest.mark.campaign
async def test_handler_slower_than_the_session_keeps_its_partitions(field: Field) -> None:
    """T16: longer than a session nothing is fetched; the member is neither lost nor moved."""
    await field.create()
    await field.append(3)
    seen: list[Message] = []

    async def handle(message: Message) -> None:
        seen.append(message)
        if message.position < 2:
            await asyncio.sleep(LONGER)

    consumer = field.consumer(adapter=SHORT, max_in_flight=2, fetch_records=1)
    async with field.running(consumer, handle, concurrency=2) as running:
        await until(lambda: len(seen) == 2, "two are slow", running)
        await until(lambda: bool(consumer.stats().paused), "fetching pauses", running)
        await field.until_committed({0: 3})
        assert not running.done()
    assert [m.position for m in seen] == [0, 1, 2]
    assert len({m.assignment.epoch for m in seen}) == 1
    assert consumer.stats().ignored == 0


def block_until_evicted(field: Field) -> None:
    """Blocks its thread, which is the trap; a busy broker notices the silence late."""

    async def watch() -> None:
        async with KafkaHarness(field.kafka.servers) as kafka:
            own = Field(kafka)
            kafka.uid = field.kafka.uid  # its group
            await own.until_state("Empty")

    with ThreadPoolExecutor(1) as other:
        other.submit(asyncio.run, watch()).result()
    time.sleep(0.2)  # the client counts from the answers, which come later than its heartbeats


async def test_handler_that_blocks_the_loop_is_evicted_and_the_consumer_goes_on(
    field: Field,
) -> None:
    """T16: no heartbeat until it is thrown out: fenced, granted anew, nothing lost, a clean stop."""
    await field.create()
    produced = await field.append(20)
    seen: list[Message] = []

    async def handle(message: Message) -> None:
        seen.append(message)
        if len(seen) == 5:
            block_until_evicted(field)

    consumer = field.consumer(adapter=SHORT)
    async with field.running(consumer, handle, concurrency=1) as running:
        await until(lambda: {place(m) for m in seen} == produced, "all is processed", running)
        await until(lambda: len({m.assignment.epoch for m in seen}) > 1, "a new epoch", running)
        await field.until_committed({0: 20})
        produced |= await field.append(5)
        await until(lambda: {place(m) for m in seen} == produced, "it goes on", running)
        await field.until_committed({0: 25})
    offsets = field.seen_commits[0]
    assert offsets == sorted(offsets)
    assert await field.state() == "Empty"


@pytest.mark.campaign
async def test_record_whose_handler_blocks_the_loop_ends_in_the_dead_letters(
    field: Field, caplog: pytest.LogCaptureFixture
) -> None:
    """T16: without a store, too; the records beside it are done, and the log says what to do."""
    await field.create()
    produced = await field.append(20)
    tries: Counter[Place] = Counter()

    async def handle(message: Message) -> None:
        tries[place(message)] += 1
        if message.position == 5:
            block_until_evicted(field)

    async with field.running(field.consumer(adapter=SHORT), handle, concurrency=1):
        await field.until_committed({0: 20})
        (letter,) = await field.read_all(f"{field.topic}-{field.group}-DLQ", 1)
    told = dict(letter.headers)
    assert (told["dlq.position"], told["dlq.attempts"]) == (b"5", b"3")
    assert b"asyncio.to_thread" in told["dlq.error"]
    assert tries.keys() == produced
    assert tries[0, 5] == 4  # what had blocked the loop the first time was not known yet
    assert "no longer knows this member" in caplog.text


@pytest.mark.parametrize("size", [None, 1])
async def test_record_whose_loop_body_blocks_the_loop_ends_in_the_dead_letters(
    field: Field, caplog: pytest.LogCaptureFixture, size: int | None
) -> None:
    """T16: pulled one by one, or in batches: each delivery counts, and the log says what to do."""
    await field.create()
    produced = await field.append(5)
    tries: Counter[Place] = Counter()
    quick: dict[str, Any] = {"session_timeout": 1.5, "heartbeat_interval": 0.1}
    retry = RetryPolicy(max_attempts=2, initial=0.05, jitter=0.0)

    def use(message: Message) -> None:
        tries[place(message)] += 1
        if message.position == 2:
            block_until_evicted(field)
        message.ack()

    async with field.consumer(adapter=quick, retry=retry) as consumer:
        pulled: Any = consumer if size is None else consumer.batches(max_messages=size)
        async with asyncio.timeout(PATIENCE):
            async for found in pulled:
                for message in [found] if size is None else found:
                    use(message)
                if tries.keys() == produced:
                    break
        await consumer.flush()
        await field.until_committed({0: 5})
        (letter,) = await field.read_all(f"{field.topic}-{field.group}-DLQ", 1)
    told = dict(letter.headers)
    assert (told["dlq.position"], told["dlq.attempts"]) == (b"2", b"2")
    assert b"asyncio.to_thread" in told["dlq.error"]
    assert tries[0, 2] >= 3  # what had blocked the loop the first time was not known yet
    said = [record.getMessage() for record in caplog.records]
    assert any("handles 2, attempt 2, blocked the event loop" in each for each in said)
    assert any("run what blocks in asyncio.to_thread" in each for each in said)


@pytest.mark.parametrize(
    "protocol",
    [f"session_timeout={SESSION}", pytest.param("protocol=consumer", marks=pytest.mark.campaign)],
)
async def test_woken_process_starts_no_handler_for_what_others_have(
    field: Field, tmp_path: Path, protocol: str
) -> None:
    """SIGSTOP for two sessions: what it starts after SIGCONT, it was assigned after it."""
    await field.create(4)
    await set_session(field.kafka.admin, field.group, SESSION)
    files = [tmp_path / name for name in ("stopped", "heir")]
    pouring = asyncio.create_task(_pour(field, files))
    stopped, heir = [await _consumer_process(field, file, protocol) for file in files]
    try:
        await _until_started(files[0], 50)
        await _until_started(files[1], 50)
        for _ in range(3):
            os.kill(stopped.pid, signal.SIGSTOP)
            await asyncio.sleep(2 * SESSION)
            before = len(_starts(files[0]))
            # A broker that is busy notices the silence late: the assignment lasts until then.
            await field.until_members(1)
            await _until_started(files[1], len(_starts(files[1])) + 50)
            os.kill(stopped.pid, signal.SIGCONT)
            await _until_started(files[0], before + 50)
            started = _starts(files[0])
            # A handler that had begun when the process was stopped says so now.
            assert min(started[before + 1 :]) > max(started[:before])
        assert not pouring.done(), pouring.exception()
    finally:
        pouring.cancel()
        for process in (stopped, heir):
            process.kill()
            await process.wait()


async def _pour(field: Field, files: Sequence[Path]) -> None:
    """Appends for ever: there is more than was started, however long the test takes."""
    produced = 0
    while True:
        if produced < sum(len(_starts(file)) for file in files) + 4000:
            for partition in range(4):
                await field.append(500, partition=partition)
            produced += 2000
        await asyncio.sleep(0.2)


async def _consumer_process(field: Field, file: Path, protocol: str) -> asyncio.subprocess.Process:
    command = [sys.executable, "-m", "tests.integration.stopped_consumer"]
    url = f"kafka://{field.kafka.servers}/{field.topic}?group={field.group}"
    return await asyncio.create_subprocess_exec(*command, f"{url}&{protocol}", str(file))


def _starts(file: Path) -> list[int]:
    """The epochs of the records whose handlers were started."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [int(line.split()[0]) for line in lines]


async def _until_started(file: Path, count: int) -> None:
    await until(lambda: len(_starts(file)) >= count, f"{count} handlers start")


async def test_back_pressure_of_one_epoch_does_not_pause_the_next(field: Field) -> None:
    """T18: a member that was paused when the group rebalanced fetches again, and so do others."""
    await field.create(2)
    for partition in (0, 1):
        await field.append(10, partition=partition)
    first = field.consumer(max_in_flight=2, fetch_records=1)
    async with first:
        held = [await anext(first) for _ in range(2)]
        await until(lambda: bool(first.stats().paused), "fetching pauses")
        second = field.consumer()
        async with _opening(second) as opened:
            await field.until_state("PreparingRebalance")
            assert first.stats().in_flight == 2
            assert all(message.ack() for message in held)
            await opened
            seen = {place(message) for message in held}
            readers = [asyncio.create_task(_read(each, seen)) for each in (first, second)]
            await until(lambda: len(seen) == 20, "both read on", *readers)
            assert first.stats().partitions != second.stats().partitions
            for reader in readers:
                reader.cancel()
            await asyncio.wait(readers)


class _opening:  # noqa: N801 - reads as a word
    """Opens a consumer in the background, and closes it in the end."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    async def __aenter__(self) -> asyncio.Task[Consumer]:
        self._task = asyncio.ensure_future(self._consumer.__aenter__())
        return self._task

    async def __aexit__(self, *_: object) -> None:
        await asyncio.wait({self._task})
        await self._consumer.aclose()


async def _read(consumer: Consumer, seen: set[Place]) -> None:
    async for message in consumer:
        seen.add(place(message))
        message.ack()


async def test_member_that_leaves_drains_beyond_its_session_and_hands_over_at_once(
    field: Field,
) -> None:
    """T26: while it drains it stays a member and fetches nothing; then the next one goes on."""
    await field.create()
    await field.append(10, keys=1)
    seen: list[int] = []

    async def slow(message: Message) -> None:
        seen.append(message.position)
        await asyncio.sleep(LONGER)

    async def quick(message: Message) -> None:
        seen.append(message.position)

    leaving = field.consumer(adapter=SHORT, drain_timeout=30)
    running = asyncio.create_task(leaving.run(slow, handle_signals=False))
    await until(lambda: len(seen) == 1 and leaving.stats().fetched == 10, "it works", running)
    leaving.stop()
    await field.append(10, keys=1)
    async with field.running(field.consumer(adapter=SHORT), quick) as next_one:
        await running
        assert leaving.stats().fetched == 10
        await until(lambda: len(seen) >= 20, "the next one goes on", next_one)
        await field.until_committed({0: 20})
    assert seen == list(range(20))
