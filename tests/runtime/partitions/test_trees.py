"""`Message.tree` through a whole consumer: pulling, `run()`, timeouts, drains, other processes."""

from __future__ import annotations

import asyncio
import multiprocessing
from typing import Any

import pytest

from consumer_sdk import (
    Batch,
    Branch,
    ConfigurationError,
    Consumer,
    ConsumerClosedError,
    Hooks,
    Message,
    Ordering,
    Receipts,
    Reject,
    Retry,
    TokenFormatError,
)
from consumer_sdk.runtime.partitions.trees import TreeHolder
from consumer_sdk.testing.memory import MemoryTransactions
from consumer_sdk.trackers import WatermarkTracker
from tests.runtime.bench import Bench, bench
from tests.runtime.partitions.held import ASSIGNMENT, POLICY, Held


async def first(consumer: Consumer) -> Message:
    """The next message."""
    return await anext(aiter(consumer))


# -- pulling ----------------------------------------------------------------------------------


def test_message_is_settled_when_its_last_branch_is_acked() -> None:
    """Not by leaving the block, nor by any branch before the last."""

    async def test(b: Bench) -> None:
        b.append("x")
        async with b.consumer() as consumer:
            message = await first(consumer)
            with message.tree() as tree:
                one, two = tree.branch(), tree.branch()
            deeper = one.branch()
            assert [two.ack(), one.ack()] == [True, True]
            assert consumer.stats().in_flight == 1
            assert deeper.ack()
            assert consumer.stats().in_flight == 0
            await consumer.flush()
            assert b.committed() == {"0": 1}

    bench(test)


def test_branch_fails_message_is_delivered_again_with_a_new_tree() -> None:
    """The retry opens a new root: what comes late of the first tree touches nothing."""

    async def test(b: Bench) -> None:
        b.append("x")
        async with b.consumer() as consumer:
            message = await first(consumer)
            with message.tree() as tree:
                late, bad = tree.branch(), tree.branch()
            assert bad.fail("no")
            again = await first(consumer)
            assert again.attempt == 2
            with again.tree() as tree:
                branch = tree.branch()
            assert not late.ack()
            assert consumer.stats().in_flight == 1
            assert branch.ack()
            assert (consumer.stats().in_flight, consumer.stats().ignored) == (0, 1)

    bench(test)


def test_exception_in_the_block_fails_the_delivery_and_flies_on() -> None:
    """And `Retry` and `Reject` choose, as in a handler."""

    async def test(b: Bench) -> None:
        b.append("x")
        async with b.consumer() as consumer:
            message = await first(consumer)
            with pytest.raises(Retry), message.tree():
                raise Retry(delay=30.0)
            began = b.simulation.clock.monotonic()
            again = await first(consumer)
            assert b.simulation.clock.monotonic() - began == pytest.approx(30.0)
            with pytest.raises(Reject), again.tree():
                raise Reject("never")
            await asyncio.sleep(1.0)
            assert [letter.error for letter in b.letters.kept] == ["never"]
            assert (b.letters.kept[0].attempts, consumer.stats().failed) == (2, 1)

    bench(test)


def test_message_that_is_settled_otherwise_ends_its_tree() -> None:
    """Acked, nacked, rejected or acked cumulatively: its branches are late from then on."""

    async def test(b: Bench) -> None:
        b.append("ack", "nack", "reject", "cumulative")
        async with b.consumer() as consumer:
            branches = []
            messages = [await first(consumer) for _ in range(4)]
            for message in messages:
                with message.tree() as tree:
                    branches.append(tree.branch())
            acked, nacked, rejected, last = messages
            assert [acked.ack(), nacked.nack(30.0), rejected.reject()] == [True, True, True]
            assert last.ack_cumulative()
            await asyncio.sleep(1.0)
            assert [branch.ack() for branch in branches] == [False] * 4
            stats = consumer.stats()
            assert (stats.in_flight, stats.dead_lettered, stats.failed) == (0, 1, 1)

    bench(test)


def test_trees_of_messages_acked_directly_leave_no_garbage() -> None:
    """The hot path of an ack knows nothing of trees: they are swept when they get too many."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(10_000)))
        async with b.consumer() as consumer:
            stuck = await first(consumer)
            stuck.tree()
            async for message in consumer:
                message.tree()
                message.ack()
                if message.position == 9_999:
                    break
            (holding,) = consumer._engine.holdings.values()
            assert holding.trees is not None
            assert holding.trees.trees.live < 2_000
            assert holding.trees.trees.owner(0) is stuck

    bench(test)


def test_second_tree_of_a_delivery_adds_to_the_first() -> None:
    """Two parts of a handler may fan out without knowing of each other."""

    async def test(b: Bench) -> None:
        b.append("x")
        async with b.consumer() as consumer:
            message = await first(consumer)
            with message.tree() as one, message.tree() as two:
                branches = [one.branch(), two.branch()]
            assert branches[0].ack()
            assert consumer.stats().in_flight == 1
            assert branches[1].ack()
            assert consumer.stats().in_flight == 0

    bench(test)


def test_message_goes_on_as_usual_while_its_tree_is_open() -> None:
    """More time, and waiting for what is durable."""

    async def test(b: Bench) -> None:
        b.append("x")
        async with b.consumer(ack_timeout=10.0) as consumer:
            message = await first(consumer)
            with message.tree() as tree:
                branch = tree.branch()
            await asyncio.sleep(9.0)
            assert message.extend(10.0)
            await asyncio.sleep(9.0)
            assert branch.extend(10.0)
            await asyncio.sleep(9.0)
            assert branch.ack()
            await message.durable()
            assert b.committed() == {"0": 1}

    bench(test)


def test_tree_times_out_while_nothing_else_happens() -> None:
    """Kinesis trap 30: exactly, without traffic; late acks are counted and touch nothing."""

    async def test(b: Bench) -> None:
        b.append("x")
        async with b.consumer(ack_timeout=10.0) as consumer:
            with (await first(consumer)).tree() as tree:
                branch = tree.branch()
            began = b.simulation.clock.monotonic()
            again = await first(consumer)
            # Ten seconds, and a back-off of one.
            assert b.simulation.clock.monotonic() - began == pytest.approx(11.0)
            assert again.attempt == 2
            assert [branch.ack(), branch.extend(1.0), tree.fail()] == [False] * 3
            assert consumer.stats().ignored == 3
            (holding,) = consumer._engine.holdings.values()
            assert holding.trees is not None
            assert holding.trees.trees.live == 0

    bench(test)


def test_lost_partition_ends_its_trees() -> None:
    """What is still to be acked belongs to another consumer now."""

    async def test(b: Bench) -> None:
        b.append("x")
        async with b.consumer() as consumer:
            message = await first(consumer)
            with message.tree() as tree:
                branch = tree.branch()
            (holding,) = consumer._engine.holdings.values()
            holding.close()
            assert not branch.ack()
            with message.tree() as tree:
                late = tree.branch()
            assert not late.ack()
            # The branch, the block and the late branch.
            assert consumer.stats().ignored == 3

    bench(test)


# -- run() ------------------------------------------------------------------------------------


def test_handler_returns_with_an_open_tree_and_the_tree_acks() -> None:
    """The worker and its lane are free meanwhile: the key's next record does not wait."""

    async def test(b: Bench) -> None:
        b.append("a=1", "a=2")
        branches: list[Branch] = []

        async def handle(message: Message) -> None:
            b.seen.append(message)
            with message.tree() as tree:
                branches.append(tree.branch())

        consumer = b.consumer()
        running = asyncio.create_task(b.run(consumer, handle, concurrency=1))
        await asyncio.sleep(10.0)
        assert b.values == ["1", "2"]
        assert (consumer.stats().in_flight, b.committed()) == (2, {})
        branches[0].ack()
        await asyncio.sleep(1.0)
        assert b.committed() == {"0": 1}
        branches[1].ack()
        await running
        assert b.committed() == {"0": 2}

    bench(test)


def test_tree_that_is_done_in_the_handler_is_acked_once() -> None:
    """Its return changes nothing any more."""

    async def test(b: Bench) -> None:
        b.append("x")

        async def handle(message: Message) -> None:
            with message.tree() as tree, tree.branch():
                pass

        consumer = b.consumer()
        await b.run(consumer, handle)
        assert b.committed() == {"0": 1}
        assert consumer.stats().ignored == 0

    bench(test)


def test_handler_that_raises_ends_its_tree_and_fails_the_delivery_once() -> None:
    """Whether it raises inside the block or after it."""

    async def test(b: Bench) -> None:
        b.append("inside", "after")
        branches = []

        async def handle(message: Message) -> None:
            b.seen.append(message)
            with message.tree() as tree:
                branches.append(tree.branch())
                if message.value == b"inside" and message.attempt == 1:
                    raise ValueError("inside")
            if message.attempt == 1:
                raise ValueError("after")

        consumer = b.consumer()
        running = asyncio.create_task(b.run(consumer, handle))
        await asyncio.sleep(30.0)
        assert sorted(b.values) == ["after", "after", "inside", "inside"]
        assert [branch.ack() for branch in branches] == [False, False, True, True]
        await running
        assert consumer.stats().failed == 2
        assert b.committed() == {"0": 2}

    bench(test)


@pytest.mark.parametrize("ordering", list(Ordering))
def test_tree_that_fails_after_the_return_is_retried_and_holds_nothing_up(
    ordering: Ordering,
) -> None:
    """Its lane went on long ago; the retry takes its turn in it."""

    async def test(b: Bench) -> None:
        b.append("a=1", "a=2")

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if message.value == b"1":
                with message.tree() as tree:
                    branch = tree.branch()
                settle = branch.fail if message.attempt == 1 else branch.ack
                asyncio.get_running_loop().call_later(5.0, settle)
            else:
                await asyncio.sleep(20.0)  # still there when the retry is due

        consumer = b.consumer()
        running = asyncio.create_task(b.run(consumer, handle, ordering=ordering))
        await asyncio.sleep(30.0)
        b.append("a=3")
        await running
        assert [value for value in b.values if value != "1"] == ["2", "3"]
        assert [m.attempt for m in b.seen if m.value == b"1"] == [1, 2]
        assert b.committed() == {"0": 3}

    bench(test)


def test_ack_timeout_begins_when_the_handler_returns() -> None:
    """It is off while the handler runs, however long that takes."""

    async def test(b: Bench) -> None:
        b.append("x")
        times: list[float] = []

        async def handle(message: Message) -> None:
            times.append(b.simulation.clock.monotonic())
            with message.tree() as tree:
                branch = tree.branch()
                await asyncio.sleep(25.0)
            if message.attempt == 2:
                branch.ack()

        consumer = b.consumer(ack_timeout=10.0)
        await b.run(consumer, handle, seconds=120.0)
        # 25 in the handler, 10 until the timeout, a back-off of 1.
        assert times[1] - times[0] == pytest.approx(36.0)
        assert b.committed() == {"0": 1}

    bench(test)


def test_batch_handler_returns_and_acks_what_has_no_tree() -> None:
    """Message by message."""

    async def test(b: Bench) -> None:
        b.append("1", "2", "3")
        branches: list[Branch] = []

        async def handle(batch: Batch) -> None:
            with batch[1].tree() as tree:
                branches.append(tree.branch())

        consumer = b.consumer(ack_timeout=50.0)
        running = asyncio.create_task(b.run(consumer, handle, batch_size=3))  # type: ignore[arg-type]  # takes batches
        await asyncio.sleep(10.0)
        assert (consumer.stats().in_flight, b.committed()) == (1, {"0": 1})
        assert branches[0].ack()
        await running
        assert b.committed() == {"0": 3}

    bench(test)


def test_drain_waits_for_open_trees_within_its_budget() -> None:
    """It is woken by the ack that ends the last one, not by its own clock."""

    async def test(b: Bench) -> None:
        b.append("x")
        loop = asyncio.get_running_loop()

        async def handle(message: Message) -> None:
            with message.tree() as tree:
                loop.call_later(62.0, tree.branch().ack)

        await b.run(b.consumer(), handle)  # for a minute
        assert loop.time() == pytest.approx(62.0, abs=0.5)
        assert b.committed() == {"0": 1}

    bench(test)


def test_tree_open_beyond_the_drain_is_delivered_again() -> None:
    """And no attempt is counted."""

    async def test(b: Bench) -> None:
        b.append("x")

        async def handle(message: Message) -> None:
            b.seen.append(message)
            with message.tree() as tree:
                tree.branch()

        await b.run(b.consumer(), handle)
        await b.run(b.consumer(), handle)
        assert [message.attempt for message in b.seen] == [1, 1]

    bench(test)


def test_hooks_are_told_of_trees_with_the_message_itself() -> None:
    """A tree that fails, and the one that settles the retry."""
    told: list[tuple[Any, ...]] = []

    class Told(Hooks):
        def settled(self, message: Message) -> None:
            told.append(("settled", message.attempt))

        def retried(self, message: Message, error: BaseException | str, delay: float) -> None:
            told.append(("retried", message.attempt, error, delay))

        def tree_failed(self, message: Message, error: BaseException | str) -> None:
            told.append(("tree failed", message.attempt, error))

    async def test(b: Bench) -> None:
        b.append("x")

        async def handle(message: Message) -> None:
            with message.tree() as tree, tree.branch() as branch:
                if message.attempt == 1:
                    branch.fail("bad", delay=3.0)

        await b.run(b.consumer(hooks=Told()), handle)

    bench(test)
    retry = told[0][2]
    assert (str(retry), retry.delay) == ("bad", 3.0)
    assert told == [("retried", 1, retry, 3.0), ("tree failed", 1, retry), ("settled", 2)]


def test_trees_of_messages_acked_themselves_keep_few_of_them() -> None:
    """One by one, or cumulatively: the branches that nobody settles hold no record for long."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(200)))
        async with b.consumer() as consumer:
            for _ in range(100):
                message = await anext(consumer)
                message.tree().branch()
                message.ack()
            (holding,) = consumer._engine.holdings.values()
            assert holding.trees is not None
            assert holding.trees.trees.live <= 17
            for _ in range(99):
                (await anext(consumer)).tree().branch()
            (await anext(consumer)).ack_cumulative()
            assert holding.trees.trees.live == 0

    bench(test)


@pytest.mark.parametrize(
    "is_nacked, times, failed", [(False, (99, 101), [0, 1]), (True, (29, 31), [1, 2])]
)
def test_time_asked_for_in_a_handler_counts_after_its_return(
    times: tuple[float, float], failed: list[int], *, is_nacked: bool
) -> None:
    """Kinesis trap 30, reset before init: the ack timeout begins there; no other delivery's."""

    async def test(b: Bench) -> None:
        b.append("x")
        seen: list[int] = []

        async def handle(message: Message) -> None:
            tree = message.tree()
            tree.branch()
            if message.attempt == 1:
                assert tree.extend(100.0)
                if is_nacked:
                    message.nack(0.0)

        consumer = b.consumer(ack_timeout=30.0)
        for seconds in times:
            asyncio.get_running_loop().call_later(
                seconds, lambda: seen.append(consumer.stats().failed)
            )
        await b.run(consumer, handle, seconds=times[-1] + 1)
        assert seen == failed

    bench(test)


# -- off, and named ---------------------------------------------------------------------------


def test_trees_off_message_is_acked_when_its_tree_is_opened() -> None:
    """Storm with ``topology.acker.executors=0``: nobody waits for the branches."""

    async def test(b: Bench) -> None:
        b.append("x")
        async with b.consumer(trees=False) as consumer:
            message = await first(consumer)
            with message.tree() as tree:
                assert consumer.stats().in_flight == 0
                assert [tree.branch().ack(), tree.branch().fail()] == [False, False]
            await consumer.flush()
            assert (b.committed(), consumer.stats().failed) == ({"0": 1}, 0)

    bench(test)


def test_open_branches_are_named_when_asked_for() -> None:
    """For debugging; else the error names the option."""

    async def test(b: Bench) -> None:
        b.append("x", "y")
        async with b.consumer(name_branches=True) as consumer:
            with (await first(consumer)).tree() as tree:
                tree.branch("header").ack()
                tree.branch().branch("deep")
            assert tree.open_branches() == ["tree.2", "deep"]
        async with b.consumer() as consumer:
            tree = (await first(consumer)).tree()
            with pytest.raises(ConfigurationError, match="name_branches=True"):
                tree.open_branches()

    bench(test)


# -- other processes --------------------------------------------------------------------------


def test_settle_applies_receipts_once_and_counts_the_rest() -> None:
    """Twice, of another consumer, of an older delivery: ignored, and counted."""

    async def test(b: Bench) -> None:
        b.append("x")
        async with b.consumer() as consumer:
            message = await first(consumer)
            with message.tree() as tree:
                one, two = tree.branch().token(), tree.branch().token()
            receipts = Receipts()
            receipts.ack(one)
            assert consumer.settle(bytes(receipts)) == 1
            assert consumer.settle(receipts) == 0
            assert consumer.stats().in_flight == 1
            receipts.ack(two)
            assert consumer.settle(receipts) == 1
            assert (consumer.stats().in_flight, consumer.stats().ignored) == (0, 2)
            assert consumer.settle(receipts) == 0
        async with b.consumer("other") as consumer:
            await first(consumer)
            assert consumer.settle(receipts) == 0
            assert consumer.stats().ignored == 2

    bench(test)


def test_receipts_fail_or_reject_the_delivery_with_the_reason() -> None:
    """As a branch does here."""

    async def test(b: Bench) -> None:
        b.append("x")
        async with b.consumer() as consumer:
            for fail, attempt in ((Receipts.fail, 1), (Receipts.reject, 2)):
                message = await first(consumer)
                assert message.attempt == attempt
                receipts = Receipts()
                fail(receipts, message.tree().token(), "too long")
                assert consumer.settle(receipts) == 1
            await asyncio.sleep(1.0)
            (letter,) = b.letters.kept
            assert (letter.error, letter.error_type) == ("too long", "rejected")

    bench(test)


def test_settle_of_other_bytes_applies_nothing() -> None:
    """A typed error, and the trees are as they were."""

    async def test(b: Bench) -> None:
        b.append("x")
        async with b.consumer() as consumer:
            token = (await first(consumer)).tree().token()
            receipts = Receipts()
            receipts.ack(token)
            for wrong in (token, bytes(receipts)[:-1], b""):
                with pytest.raises(TokenFormatError):
                    consumer.settle(wrong)
            assert consumer.stats().in_flight == 1
        with pytest.raises(ConsumerClosedError):
            b.consumer().settle(receipts)

    bench(test)


def _use_in_child(work: Any, errors: Any) -> None:
    for use in work:
        try:
            use()
        except ConsumerClosedError as error:
            errors.put(str(error))
        else:
            errors.put("nothing")


def test_forked_child_gets_a_clear_error() -> None:
    """Trees of the parent cannot be used there; tokens and receipts can."""

    async def test(b: Bench) -> None:
        b.append("x", "y")
        async with b.consumer() as consumer:
            message, plain = await first(consumer), await first(consumer)
            with message.tree() as tree:
                branch, other = tree.branch(), tree.branch()
            uses = [branch.branch, branch.ack, other.fail, tree.reject, message.tree, plain.tree]
            uses += [message.ack, lambda: branch.extend(1.0)]
            context = multiprocessing.get_context("fork")
            errors = context.Queue()
            child = context.Process(target=_use_in_child, args=(uses, errors))
            child.start()
            said = [errors.get(timeout=300) for _ in uses]
            child.join()
            assert all("belongs to the parent process" in error for error in said), said
            assert [branch.ack(), other.ack(), consumer.stats().in_flight] == [True, True, 1]

    bench(test)


# -- the holder by itself -------------------------------------------------------------------------


def timed(*, transactions: bool = False) -> tuple[Held, TreeHolder]:
    """A partition of three records that have open trees, with an ack timeout."""
    tracker = WatermarkTracker(ASSIGNMENT, policy=POLICY, ack_timeout=60.0)
    held = Held(3, tracker=tracker, transactions=MemoryTransactions() if transactions else None)
    holder = held.it.trees = TreeHolder(held.it, is_timed=True)
    held.it.tree = holder.tree
    for message in held.messages:
        message.tree()
    return held, holder


def test_messages_with_trees_do_what_others_do() -> None:
    """They are found, read, sent from and settled together."""
    held, holder = timed(transactions=True)
    first, second, third = held.messages
    assert [holder.find(index) for index in range(4)] == [first, second, third, None]
    assert first.body == b"12345"
    assert first.send("out", b"1")
    assert holder.ack_all([first, second]) == 2
    assert holder.ack_all([first, third]) == 1
    assert held.it.tracker.unsettled == 0


def test_error_of_a_handler_ends_the_tree() -> None:
    """It says whether that changed anything."""
    held, holder = timed()
    (message, *_) = held.messages
    assert holder.raised(message, ValueError("bad"))
    assert not holder.raised(message, ValueError("again"))
    assert holder.trees.live == 2


def test_timeout_that_a_handler_has_put_off_begins_with_its_return() -> None:
    """Not what it asked for a delivery that has ended, nor for one that is settled."""
    held, holder = timed()
    asked, ended, settled = held.messages
    for message in (asked, ended):
        held.it.tracker.extend(message.index, message.attempt, 0.0, 0)  # a handler works on it
        assert message.extend(200.0)
    settled.ack()
    assert not settled.extend(200.0)
    ended.nack(0.0)
    (again,) = held.retry(0.0)
    again.tree()
    held.clock.now = 50.0
    holder.returned([asked, again])
    assert held.it.tracker.next_due() == 110.0  # of the new delivery
    held.clock.now = 110.0
    ((index, *_),) = held.it.tracker.due(110.0).expired
    assert index == 1
    assert held.it.tracker.next_due() == 200.0


def test_timeout_that_is_not_there_cannot_be_put_off() -> None:
    """The consumer has none."""
    held = Held(1)
    (message,) = held.messages
    message.tree()
    assert not message.extend(5.0)
