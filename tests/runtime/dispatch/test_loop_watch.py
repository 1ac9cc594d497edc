"""The loop stands still for a session: who was stopped waits, and who blocks it runs out of tries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from consumer_sdk import Batch, Consumer, HandlerError, Message, Ordering, Partition, RetryPolicy
from consumer_sdk.abc import StoreItem
from consumer_sdk.records import AckFlush, Outcome, OutcomeKind
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import MemoryAdapter, SimulationLoop
from tests.runtime.bench import Bench, bench

SESSION = 10.0
HEARTBEAT = 3.0
ANSWER = 0.5
"""Seconds until a heartbeat is answered."""


class BeatingAdapter(MemoryAdapter):
    """Its group puts it out after a session without heartbeat, and tells it with the next one."""

    heard = 0.0
    generation = 0

    async def run(self) -> None:
        beating = asyncio.create_task(self._beat())
        try:
            await super().run()
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        time = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(HEARTBEAT)
            sent = time()
            await asyncio.sleep(ANSWER)
            if sent > self.held_until():
                self.expire()
            else:
                self.heard = sent

    def held_until(self) -> float:
        generation = self._session.membership.member.generation
        if generation > self.generation:
            self.heard, self.generation = asyncio.get_running_loop().time(), generation
        return self.heard + SESSION

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        if asyncio.get_running_loop().time() > self.held_until():
            self.expire()
        await asyncio.sleep(ANSWER)
        return await super().commit(flushes)


def _stand_still(seconds: float) -> None:
    """What SIGSTOP does, and a handler that blocks: time goes on, and nothing else."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulationLoop)
    loop.jump(seconds)


def _consumer(b: Bench, kind: type[MemoryAdapter] = BeatingAdapter, **options: Any) -> Consumer:
    # Sums of these are exact: virtual time stands still for what is due by a rounding error.
    options.setdefault("flush_interval", 0.125)
    options.setdefault("retry", RetryPolicy(max_attempts=3, initial=1.0, jitter=0.0))
    return Consumer(
        kind(b.broker, "s", group="g"),
        dead_letters=b.letters,
        clock=b.simulation.clock,
        **options,
    )


def _stop_at(moment: float, seconds: float) -> None:
    asyncio.get_running_loop().call_later(moment, _stand_still, seconds)


# -- a process that was stopped ---------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("work", [0.05, 0.7, 4.0])
def test_woken_process_starts_no_handler_before_the_group_has_answered(
    work: float, batch_size: int | None
) -> None:
    """Its partitions may be with others: what it starts next, it was granted after it woke."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(8000)))
        started: list[tuple[float, Message]] = []
        time = asyncio.get_running_loop().time

        async def handle(found: Any) -> None:
            messages = found if isinstance(found, Batch) else [found]
            started.extend((time(), message) for message in messages)
            await asyncio.sleep(work)

        _stop_at(20.3, 30.0)
        consumer = _consumer(b)
        options: dict[str, Any] = {"concurrency": 7, "ordering": Ordering.NONE}
        await b.run(consumer, handle, seconds=60, batch_size=batch_size, **options)
        old = [at for at, m in started if m.assignment.epoch == started[0][1].assignment.epoch]
        assert max(old) <= 20.3
        assert max(at for at, _ in started) > 50.3 + ANSWER

    bench(test)


def test_short_stop_holds_nothing_back(caplog: pytest.LogCaptureFixture) -> None:
    """Within a session nobody else can have been given the partitions."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(2000)))
        starts: list[float] = []

        async def handle(_: Message) -> None:
            starts.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.125)

        _stop_at(20.0, 5.0)
        await b.run(_consumer(b), handle, seconds=40, concurrency=3)
        after = min(at for at in starts if at > 20.0)
        assert after < 25.2

    bench(test)
    assert "stood still" not in caplog.text


class SlowToAnswer(BeatingAdapter):
    """After a stop, the answer to the first heartbeat comes later than the session ends.

    The group keeps the member, which cannot know that.

    Attributes:
        LAST: when the last heartbeat before the stop was sent, and answered.
        STOP: when the process is stopped.
        WAKE: when it goes on, within its session, and sends a heartbeat.
        REPLY: when that one is answered.
    """

    LAST, STOP, WAKE, REPLY = 17.0, 18.0, 23.25, 29.0

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self.heard = loop.time()
            await asyncio.sleep(1.0)
            if loop.time() > self.LAST:
                await asyncio.sleep(max(self.REPLY - loop.time(), 0.0))

    def expire(self) -> None:
        """It was in time."""


def _check_slow_answer(started: Sequence[float]) -> None:
    """Work goes on while the session lasts, and from the answer on; not in between."""
    a, ends = SlowToAnswer, SlowToAnswer.LAST + SESSION
    assert not [at for at in started if ends <= at < a.REPLY]
    assert [at for at in started if a.WAKE <= at < ends]
    assert [at for at in started if at >= a.REPLY]


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("work", [0.0, 0.0625, 0.75])
def test_woken_process_starts_no_handler_when_its_session_ends_before_the_answer(
    work: float, batch_size: int | None
) -> None:
    """The session lasted when it woke; but the heartbeat that it sent then may have come too late."""

    async def test(b: Bench) -> None:
        started: list[float] = []
        time = asyncio.get_running_loop().time

        async def feed() -> None:
            for number in range(300):
                b.append(str(number))
                await asyncio.sleep(0.125)

        async def handle(_: Any) -> None:
            started.append(time())
            await asyncio.sleep(work)

        _stop_at(SlowToAnswer.STOP, SlowToAnswer.WAKE - SlowToAnswer.STOP)
        feeding = asyncio.create_task(feed())
        consumer = _consumer(b, SlowToAnswer)
        options: dict[str, Any] = {"concurrency": 7, "ordering": Ordering.NONE}
        await b.run(consumer, handle, seconds=40, batch_size=batch_size, **options)
        await feeding
        _check_slow_answer(started)

    bench(test)


@pytest.mark.parametrize("takes_batches", [False, True])
def test_woken_process_that_pulls_is_handed_nothing_when_its_session_ends_before_the_answer(
    *, takes_batches: bool
) -> None:
    """The same of who pulls."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(400)))
        started: list[float] = []
        time = asyncio.get_running_loop().time
        _stop_at(SlowToAnswer.STOP, SlowToAnswer.WAKE - SlowToAnswer.STOP)
        async with _consumer(b, SlowToAnswer) as consumer:
            batches = consumer.batches(max_messages=2)
            pull: Callable[[], Any] = (
                (lambda: anext(batches)) if takes_batches else consumer.__anext__
            )
            while time() < 40.0:
                _ = await pull()
                started.append(time())
                await asyncio.sleep(0.25)
        _check_slow_answer(started)

    bench(test)


def test_outage_after_the_answer_to_a_woken_process_holds_nothing_back() -> None:
    """It has heard since that all is its own; what is silent later is silent to others too."""

    class Silent(BeatingAdapter):
        async def _beat(self) -> None:
            while (now := asyncio.get_running_loop().time()) < 25.0:
                self.heard = now
                await asyncio.sleep(1.0)
            await asyncio.sleep(1000)

        def expire(self) -> None:
            """Nobody is told anything."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(500)))

        async def handle(message: Message) -> None:
            await asyncio.sleep(0.25)
            b.seen.append(message)

        _stop_at(18.25, 5.0)
        await b.run(_consumer(b, Silent), handle, seconds=80, ordering=Ordering.NONE, concurrency=2)
        assert len(b.seen) == 500

    bench(test)


def test_outage_of_the_broker_holds_nothing_back() -> None:
    """The loop turns: that no heartbeat is answered says nothing about others."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(500)))

        class Silent(BeatingAdapter):
            async def _beat(self) -> None:
                await asyncio.sleep(1000)

            async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
                return [Outcome.retry(OSError("away")) for _ in flushes]

        async def handle(message: Message) -> None:
            await asyncio.sleep(0.125)
            b.seen.append(message)

        await b.run(_consumer(b, Silent), handle, seconds=60, concurrency=2)
        assert len(b.seen) == 500

    bench(test)


@pytest.mark.parametrize("suspends", [False, True])
@pytest.mark.parametrize("takes_batches", [False, True])
def test_woken_process_that_pulls_is_handed_nothing_before_the_group_has_answered(
    *, takes_batches: bool, suspends: bool
) -> None:
    """Whether or not the loop turns between the wake and the next pull."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(300)))
        time = asyncio.get_running_loop().time
        async with _consumer(b, fetch_records=100) as consumer:
            pull: Callable[[], Any] = lambda: anext(consumer)  # noqa: E731 - beside its other form
            if takes_batches:
                batches = consumer.batches(max_messages=10)
                pull = lambda: anext(batches)  # noqa: E731 - as above
            before = await pull()
            epoch = (before[0] if takes_batches else before).assignment.epoch
            _stand_still(30.0)
            woken = time()
            if suspends:
                await asyncio.sleep(0.001)
            again = await pull()
            message = again[0] if takes_batches else again
            assert time() >= woken + ANSWER
            assert (message.assignment.epoch > epoch, message.position) == (True, 0)

    bench(test)


def test_process_that_was_stopped_before_its_first_pull_is_handed_nothing_before_the_answer() -> (
    None
):
    """The gate was closed when there was no queue yet."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(10)))
        time = asyncio.get_running_loop().time
        async with _consumer(b) as consumer:
            await asyncio.sleep(1.0)
            _stand_still(30.0)
            woken = time()
            await asyncio.sleep(0.001)
            assert consumer._engine.watch.is_gated
            await anext(consumer)
            assert time() >= woken + ANSWER

    bench(test)


def test_woken_process_leaves_the_claim_to_its_rightful_owner() -> None:
    """The store refuses its late write; it asks the group before it claims anything."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(100)))
        store, partition = MemoryStore(), Partition("s", "0")
        heir = store.handle()
        await heir.open()
        outcomes: list[OutcomeKind] = []

        async def stop_and_see(assignment: Any) -> None:
            await heir.claim("g", [assignment])
            _stand_still(30.0)
            for _ in range(4):
                await asyncio.sleep(ANSWER / 5)
                (text,) = (await heir.peek("g", [partition])).values()
                (outcome,) = await heir.save("g", [StoreItem(assignment, text or "")])
                outcomes.append(outcome.kind)

        async with _consumer(b, store=store, flush_interval=0.0) as consumer:
            message = await anext(consumer)
            assert message.ack()
            await consumer.flush()
            message = await anext(consumer)
            stopped = asyncio.create_task(stop_and_see(message.assignment))
            await asyncio.sleep(0)
            assert message.ack()
            await stopped
            assert outcomes == [OutcomeKind.DURABLE] * 4
            again = await anext(consumer)
            assert again.assignment.epoch > message.assignment.epoch

    bench(test)


# -- a handler that blocks --------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [None, 1])
@pytest.mark.parametrize("before,after", [(0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (2.0, 0.0)])
def test_handler_that_blocks_for_a_session_runs_out_of_tries(
    before: float,
    after: float,
    batch_size: int | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It alone: records beside it are done; and the log says what to do."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(30)))

        async def handle(found: Any) -> None:
            (message,) = found if isinstance(found, Batch) else [found]
            b.seen.append(message)
            await asyncio.sleep(before)
            if message.position == 3:
                _stand_still(12.0)
            await asyncio.sleep(after)

        consumer = _consumer(b)
        options: dict[str, Any] = {"concurrency": 5, "ordering": Ordering.NONE}
        await b.run(consumer, handle, seconds=200, batch_size=batch_size, **options)
        (letter,) = b.letters.kept
        assert (letter.position, letter.attempts) == ("3", 3)
        assert "asyncio.to_thread" in letter.error
        tries = [message.attempt for message in b.seen if message.position == 3]
        assert tries == [1, 1, 2, 3]
        assert {message.attempt for message in b.seen if message.position != 3} == {1}
        assert {message.position for message in b.seen} == set(range(30))
        assert consumer.stats().failed == 3
        assert b.committed() == {"0": 30}

    bench(test)
    assert "asyncio.to_thread" in caplog.text
    assert "the event loop stood still for 12." in caplog.text
    assert "what handles 3, attempt 2, blocked the event loop for 12.0 s" in caplog.text


def test_delivery_that_blocks_is_a_failure_of_its_own_record_alone() -> None:
    """Not of one at the same position of another partition, which was lost together with it."""

    async def test(b: Bench) -> None:
        for partition in (0, 1):
            for number in range(5):
                b.broker.append("s", b"%d" % number, partition=partition)

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if (message.partition.id, message.position) == ("0", 3):
                _stand_still(12.0)

        consumer = _consumer(b)
        await b.run(consumer, handle, seconds=200)
        (letter,) = b.letters.kept
        assert (letter.partition.id, letter.position) == ("0", "3")
        assert {m.attempt for m in b.seen if m.partition.id == "1"} == {1}
        assert b.committed() == {"0": 5, "1": 5}

    bench(test, partitions=2)


def test_delivery_that_blocks_is_no_failure_where_the_partition_is_kept() -> None:
    """The group was patient: the ack counts, and nothing is delivered again."""

    class Patient(BeatingAdapter):
        def expire(self) -> None:
            self.heard = asyncio.get_running_loop().time()

    async def test(b: Bench) -> None:
        b.append(*map(str, range(10)))

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if message.position in (3, 5):
                _stand_still(12.0)

        consumer = _consumer(b, Patient)
        await b.run(consumer, handle, seconds=100)
        assert [message.position for message in b.seen] == list(range(10))
        assert consumer.stats().failed == 0
        assert b.committed() == {"0": 10}

    bench(test)


@pytest.mark.parametrize("blocks", [5.0, 12.0])
def test_partition_that_was_kept_is_lost_later_and_nobody_is_blamed_for_it(blocks: float) -> None:
    """What had blocked the loop until then is delivered again as it was."""

    class Patient(BeatingAdapter):
        def expire(self) -> None:
            self.heard = asyncio.get_running_loop().time()

    async def test(b: Bench) -> None:
        b.append(*map(str, range(10)))
        consumer = _consumer(b, Patient)
        adapter: Any = consumer._adapter

        async def handle(message: Message) -> None:
            b.seen.append(message)
            await asyncio.sleep(1.0)
            if message.position == 3:
                _stand_still(12.0)
            if message.position == 5 and message.assignment.epoch == b.seen[0].assignment.epoch:
                _stand_still(blocks)
                await asyncio.sleep(10.0)
                MemoryAdapter.expire(adapter)
                await asyncio.sleep(10.0)

        await b.run(consumer, handle, seconds=100, ordering=Ordering.PARTITION)
        tries = [message.attempt for message in b.seen if message.position == 5]
        assert tries == [1, 1]
        assert (consumer.stats().failed, b.committed()) == (0, {"0": 10})

    bench(test)


# -- a loop over messages that blocks ---------------------------------------------------------


async def _pull(
    b: Bench, consumer: Consumer, size: int | None, body: Callable[[Message], Any], seconds: float
) -> None:
    """Pulls for so long; ``body`` is called with each message, and awaited if it suspends."""
    asyncio.get_running_loop().call_later(seconds, consumer.stop)
    async with consumer:
        pulled: Any = consumer if size is None else consumer.batches(max_messages=size)
        async for found in pulled:
            for message in [found] if size is None else found:
                b.seen.append(message)
                suspended = body(message)
                if suspended is not None:
                    await suspended


@pytest.mark.parametrize("size", [None, 1])
@pytest.mark.parametrize("suspends", [False, True])
@pytest.mark.parametrize("acks_first", [False, True])
def test_loop_body_that_blocks_for_a_session_runs_out_of_tries(
    size: int | None, caplog: pytest.LogCaptureFixture, *, suspends: bool, acks_first: bool
) -> None:
    """As a handler of `run` does; its ack is not durable before the partition is lost."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(30)))

        def body(message: Message) -> Any:
            if acks_first:
                message.ack()
            if message.position == 3:
                _stand_still(12.0)
            message.ack()
            return asyncio.sleep(0.125) if suspends else None

        consumer = _consumer(b)
        await _pull(b, consumer, size, body, seconds=200)
        (letter,) = b.letters.kept
        assert (letter.position, letter.attempts) == ("3", 3)
        assert "asyncio.to_thread" in letter.error
        tries = [message.attempt for message in b.seen if message.position == 3]
        assert tries == [1, 1, 2, 3]
        assert {message.attempt for message in b.seen if message.position != 3} == {1}
        assert {message.position for message in b.seen} == set(range(30))
        assert b.committed() == {"0": 30}

    bench(test)
    assert "asyncio.to_thread" in caplog.text


@pytest.mark.parametrize("size", [None, 2])
@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_records_in_tasks_of_their_own_are_not_counted_for_another_that_blocks(
    steps: int, size: int | None
) -> None:
    """The one pulled last is in hand then, and has nothing to do with it."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(30)))
        tasks: set[asyncio.Task[None]] = set()

        async def handle(message: Message) -> None:
            for _ in range(steps):
                await asyncio.sleep(0)
            if message.position in (3, 4, 9):
                _stand_still(12.0)
            message.ack()

        def body(message: Message) -> Any:
            tasks.add(asyncio.create_task(handle(message)))
            return asyncio.sleep(0) if message.position % 2 else None

        consumer = _consumer(b)
        await _pull(b, consumer, size, body, seconds=200)
        await asyncio.gather(*tasks)
        assert len([m for m in b.seen if m.position == 3]) > 5
        assert {message.attempt for message in b.seen} == {1}
        assert (consumer.stats().failed, b.letters.kept) == (0, [])

    bench(test)


def test_record_in_hand_is_not_counted_for_a_neighbour_that_blocks() -> None:
    """A task of something else stops the loop while the body waits, and while the pull does."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(400)))

        async def neighbour() -> None:
            for _ in range(12):
                await asyncio.sleep(10.0)
                _stand_still(12.0)

        def body(message: Message) -> Any:
            message.ack()
            return asyncio.sleep(0.125)

        beside = asyncio.create_task(neighbour())
        consumer = _consumer(b)
        await _pull(b, consumer, None, body, seconds=400)
        await beside
        assert len(b.seen) > 400
        assert {message.attempt for message in b.seen} == {1}
        assert (b.letters.kept, b.committed()) == ([], {"0": 400})

    bench(test)


def test_timeout_within_a_handler_whose_steps_are_timed_is_its_own() -> None:
    """It ends what the handler awaits, once, and the handler goes on."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(30)))
        _stop_at(1.5, 12.0)

        async def handle(message: Message) -> None:
            try:
                async with asyncio.timeout(0.5):
                    await asyncio.sleep(100.0)
            except TimeoutError:
                await asyncio.sleep(0.125)
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(0)
            task.uncancel()
            b.seen.append(message)

        consumer = _consumer(b, flush_interval=64.0)  # a commit would be an answer
        await b.run(consumer, handle, seconds=60, ordering=Ordering.PARTITION)
        assert consumer._engine.watch.times_steps
        assert {message.position for message in b.seen} == set(range(30))
        assert (consumer.stats().failed, b.committed()) == (0, {"0": 30})

    bench(test)


def test_handler_whose_steps_are_timed_returns_what_nobody_awaits_consumer_stops() -> None:
    """As one whose steps are not."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(30)))
        consumer = _consumer(b, flush_interval=64.0)
        _stop_at(1.5, 12.0)

        async def handle(_message: Message) -> Any:
            await asyncio.sleep(1.0)
            return asyncio.sleep(0) if consumer._engine.watch.times_steps else None

        with pytest.raises(HandlerError, match="which nobody awaits"):
            await b.run(consumer, handle, seconds=60, ordering=Ordering.PARTITION)

    bench(test)


def test_handlers_are_not_blamed_for_a_neighbour_that_blocks() -> None:
    """Their steps are timed one by one, also those that run right after it."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(400)))

        async def neighbour() -> None:
            for _ in range(6):
                await asyncio.sleep(10.0)
                _stand_still(12.0)

        async def handle(message: Message) -> None:
            b.seen.append(message)
            for _ in range(4):
                await asyncio.sleep(0.125)

        beside = asyncio.create_task(neighbour())
        await b.run(_consumer(b), handle, seconds=400, concurrency=5, ordering=Ordering.NONE)
        await beside
        assert len(b.seen) > 400
        assert {message.attempt for message in b.seen} == {1}
        assert (b.letters.kept, b.committed()) == ([], {"0": 400})

    bench(test)


def test_pulls_cancelled_while_steps_are_timed_lose_nothing() -> None:
    """Wherever the cancellation comes: before the turn, in it, and with the wake-up."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(60)))
        async with _consumer(b) as consumer:
            first = await anext(consumer)
            _stand_still(30.0)
            b.seen.append(await anext(consumer))
            rounds = cancelled = 0
            while len(b.seen) < 60:
                rounds += 1
                pulling = asyncio.create_task(consumer.__anext__())
                for _ in range(rounds % 6):
                    await asyncio.sleep(0)
                pulling.cancel()
                try:
                    b.seen.append(await pulling)
                except asyncio.CancelledError:
                    cancelled += 1
            assert cancelled > 10
            assert {m.assignment.epoch for m in b.seen} == {first.assignment.epoch + 1}
            for message in b.seen:
                assert message.ack()
        assert [message.position for message in b.seen] == list(range(60))
        assert b.committed() == {"0": 60}

    bench(test)


def test_time_of_steps_is_taken_for_a_while() -> None:
    """It costs two turns of the loop for each pull, so it ends when no suspect can be left."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(200)))
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        async with _consumer(b, fetch_records=200) as consumer:
            await anext(consumer)
            _stand_still(30.0)
            await anext(consumer)
            counting = asyncio.create_task(count())
            for _ in range(100):
                await anext(consumer)
            while_timed, turns = turns, 0
            for _ in range(99):
                await anext(consumer)
            counting.cancel()
            assert while_timed > 100
            assert turns == 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("consumer_sdk.runtime.dispatch.pull_queue.SUSPECTS", 101)
        bench(test)
