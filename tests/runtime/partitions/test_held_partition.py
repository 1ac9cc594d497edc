"""`HeldPartition` alone: who waits for a flush, what is counted, and what is said of a cut checkpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from consumer_sdk.errors import (
    ConfigurationError,
    ConsumerClosedError,
    OutputError,
    PartitionLostError,
)
from consumer_sdk.records import (
    Message,
    Outcome,
    OutcomeKind,
    Position,
)
from consumer_sdk.records.outputs import Output
from consumer_sdk.runtime.hooks import Hooks
from consumer_sdk.runtime.partitions.held_partition import (
    NACKED,
    SETTLED,
)
from consumer_sdk.testing.memory import MemoryTransactions
from consumer_sdk.trackers import QueueTracker, WatermarkTracker
from tests.runtime.partitions.held import ASSIGNMENT, POLICY, Held, in_loop

LOG = "consumer_sdk.runtime.partitions.held_partition"


# -- who waits for a flush --------------------------------------------------------------------


def test_wait_for_a_flush_ends_with_the_flush_that_carries_what_was_settled() -> None:
    """Not with the one before it; and nothing has to be waited for when nothing has changed."""

    async def test() -> None:
        held = Held(3)
        assert held.it.until_flushed() is None
        held.messages[0].ack()
        first = held.waiter()
        flush = held.flush()
        in_the_air = held.waiter()
        held.messages[1].ack()
        second = held.waiter()
        held.it.confirm(flush, Outcome.durable())
        assert (first.done(), in_the_air.done(), second.done()) == (True, True, False)
        held.it.confirm(held.flush(), Outcome.durable())
        assert second.done()
        assert held.it.until_flushed() is None
        assert held.it._waiters == []

    in_loop(test)


def test_wait_that_was_given_up_keeps_no_other_one_waiting() -> None:
    """It was cancelled; the flush is of those who still wait, with or without an error."""

    async def test() -> None:
        for error in (None, PartitionLostError("they come again")):
            held = Held(1)
            held.messages[0].ack()
            gone, there = held.waiter(), held.waiter()
            gone.cancel()
            held.it.confirm(held.flush(), Outcome(OutcomeKind.DURABLE, error=error))
            assert there.exception() is error

    in_loop(test)


def test_end_of_the_assignment_is_an_error_for_who_waits() -> None:
    """Also for who begins to wait afterwards; who has given up is left alone."""

    async def test() -> None:
        held = Held(1)
        held.messages[0].ack()
        gone, there = held.waiter(), held.waiter()
        gone.cancel()
        held.it.close()
        assert isinstance(there.exception(), PartitionLostError)
        with pytest.raises(PartitionLostError, match=r"s/0 \(epoch 1\) is no longer held"):
            held.it.until_flushed()
        with pytest.raises(PartitionLostError):
            await held.it.durable()

    in_loop(test)


def test_drain_waits_for_what_is_in_handlers_alone() -> None:
    """Neither for records that nobody was handed, nor for retries that are not due or were purged."""

    async def test() -> None:
        held = Held(4)
        held.messages[0].nack(0.5)
        held.messages[1].nack(99.0)
        (due,) = held.retry(0.5)
        waiting = held.fetch(4, 5)
        held.it.start_draining()
        held.it.discard_queued([due, *waiting])
        assert held.it.in_flight == 2  # the third and the fourth
        draining = asyncio.create_task(held.it.drained())
        held.it.ack(2)
        await asyncio.sleep(1)
        assert not draining.done()
        held.it.ack(3)
        await draining
        assert held.it.in_flight == 0

    in_loop(test)


def test_purged_retry_that_is_settled_by_who_had_it_before_is_counted_once() -> None:
    """What is settled is not in flight, whether it was purged or not."""
    held = Held(2)
    message = held.messages[0]
    held.messages[0].nack(0.0)
    (due,) = held.retry(0.0)
    held.it.start_draining()
    held.it.discard_queued([due])
    assert held.it.in_flight == 1
    assert held.it.ack(due.index)
    assert held.it.in_flight == 1
    assert message.index == NACKED


def test_drain_does_not_wait_for_what_is_taken_back() -> None:
    """A handler may give back the rest of its batch as it ends."""

    async def test() -> None:
        held = Held(2)
        draining = asyncio.create_task(held.it.drained())
        await asyncio.sleep(1)
        held.it.discard_queued(held.messages)
        await draining

    in_loop(test)


def test_drain_waits_for_dead_letters() -> None:
    """The record is settled when its dead letter is durable."""

    async def test() -> None:
        held = Held(1)
        (message,) = held.messages
        message.reject()
        draining = asyncio.create_task(held.it.drained())
        await asyncio.sleep(1)
        assert not draining.done()
        held.it.dead_lettered(0, message, "rejected")
        await draining

    in_loop(test)


def test_drain_of_a_partition_that_is_closed_is_over() -> None:
    """Nothing will be settled any more."""

    async def test() -> None:
        held = Held(1)
        draining = asyncio.create_task(held.it.drained())
        await asyncio.sleep(1)
        held.it.close()
        await draining
        await held.it.drained()

    in_loop(test)


def test_partition_that_is_closed_keeps_no_record() -> None:
    """Old messages, which users may hold, hold nothing else of it."""

    async def test() -> None:
        held = Held(3, with_messages=True, transactions=MemoryTransactions())
        first, second, third = held.messages
        lane = held.wait_for(first)
        held.it.retries = {first.index: False}
        second.tree()
        assert third.send("out", b"1")
        third.ack()
        waiter = held.waiter()
        held.it.close()
        assert waiter.done()
        assert (held.it.lanes, held.it.retries, held.it._waiters) == ({}, {}, [])
        assert held.it.trees is not None
        assert held.it.trees.trees.live == 0
        assert held.it.outputs is not None
        assert held.it.outputs.size == 0
        assert held.index is not None
        assert held.index.get(0) is None
        assert lane.holding is held.it

    in_loop(test)


@pytest.mark.parametrize("has_trees", [False, True])
def test_message_in_a_forked_child_is_settled_nowhere(*, has_trees: bool) -> None:
    """Nobody would flush it there: each call says so."""
    held = Held(2)
    first, second = held.messages
    if has_trees:
        first.tree()
    held.it.invalidate_after_fork()
    for call in (
        first.ack,
        second.ack,
        second.nack,
        second.reject,
        second.ack_cumulative,
        first.tree,
        second.tree,
        lambda: second.extend(1.0),
        lambda: second.send("out", b"1"),
    ):
        with pytest.raises(ConsumerClosedError, match="belongs to the parent process"):
            call()


# -- what is counted --------------------------------------------------------------------------


def test_partition_that_is_closed_adds_up_what_it_had_settled() -> None:
    """Once; what was open is not settled. Late settles are counted from then on, and do nothing."""
    held = Held(4)
    held.messages[0].ack()
    held.messages[1].ack()
    held.messages[1].ack()
    held.it.close()
    held.it.close()
    totals = held.context.totals
    assert (totals.settled, held.it.own.settled, totals.ignored) == (2, 2, 1)
    assert (held.it.ignored, held.it.load()) == (0, (0, 0, 0))
    late = held.messages[2]
    assert not late.ack()
    assert not late.nack()
    assert not late.reject()
    assert not late.ack_cumulative()
    assert totals.ignored == 5
    held.it.returned(held.messages[2:])
    assert (totals.ignored, totals.settled, held.it.ignored) == (7, 2, 0)


def test_ack_on_return_of_what_a_handler_has_settled_is_not_too_late() -> None:
    """It is counted apart, so that an ack which is late stays one."""
    held = Held(3)
    held.messages[0].ack()
    held.it.returned(held.messages[:2])
    assert (held.it.redundant_acks, held.it.ignored) == (1, 0)
    held.messages[0].ack()
    assert held.it.ignored == 1


def test_load_is_what_is_not_settled_with_what_waits_behind_a_retry() -> None:
    """The first change after a look is noted: without a look, none is."""
    held = Held(3)
    held.messages[0].nack(99.0)
    held.it.blocked = 1
    held.context.changed.clear()
    unsettled, retrying, size = held.it.load()
    assert (unsettled, retrying) == (3, 2)
    assert size == held.it.tracker.unsettled_bytes
    assert held.messages[1].ack()
    assert list(held.context.changed) == [held.it]
    held.context.changed.clear()
    assert held.messages[2].ack()
    assert not held.context.changed


def test_partition_is_idle_if_it_was_counted_empty_and_has_not_changed() -> None:
    """One of three counts is enough for it to be busy."""
    held = Held()
    assert not held.is_idle()  # nobody has looked
    held.context.changed.clear()
    assert held.is_idle()
    for counted in ((1, 0, 0), (0, 1, 0), (0, 0, 1)):
        held.it.counted = counted
        assert not held.is_idle()
    held.it.counted = (0, 0, 0)
    held.it.note_change()
    assert not held.is_idle()


def test_timestamp_of_the_record_fetched_last_is_kept() -> None:
    """A run of which nothing was new tells no other one."""
    held = Held()
    assert held.latest() is None
    held.fetch(0, 1, 2, times=(7, 9, 8))
    assert held.latest() == 8
    held.fetch(0, 1, times=(7, 9))
    assert held.latest() == 8
    totals = held.context.totals
    assert (held.it.fetched, totals.fetched, totals.suppressed) == (3, 3, 2)
    assert (held.it.own.fetched, held.it.own.suppressed) == (3, 2)


def test_finished_partition_has_nothing_left_to_settle_and_to_flush() -> None:
    """Nor a flush in the air."""
    held = Held(1)
    assert not held.is_finished()
    held.messages[0].ack()
    assert not held.is_finished()
    flush = held.flush()
    assert not held.is_finished()
    held.it.confirm(flush, Outcome.durable())
    assert held.is_finished()
    held.fetch(1)
    assert not held.is_finished()


def _gaps(positions: Sequence[Position]) -> list[int]:
    """Whole numbers, of which none may be missing."""
    return [at for at in range(1, len(positions)) if positions[at] > positions[at - 1] + 1]


def test_records_that_come_late_are_told_by_the_first_of_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A run may have others before it."""
    held = Held(tracker=WatermarkTracker(ASSIGNMENT, names_settled=True, gaps=_gaps))
    held.fetch(0, 4)
    with caplog.at_level(logging.WARNING, "consumer_sdk"):
        held.fetch(5, 6)
        assert not caplog.records
        held.fetch(7, 2, 3)
    (line,) = caplog.records
    assert line.getMessage().startswith("s/0 at 2 comes late (2 in this run)")
    assert held.it.fetched == 7


# -- what ends a delivery ---------------------------------------------------------------------


def test_failed_delivery_is_retried_and_then_given_up() -> None:
    """Its message says which; what is said of an older delivery changes nothing."""
    held = Held(1, with_messages=True)
    (first,) = held.messages
    assert held.it.fail(first, None, "no")
    assert (first.index, held.rescheduled, held.lettered) == (NACKED, 1, [])
    assert not held.it.fail(first, None, "again")
    (second,) = held.retry(1.0)
    held.it.hand_out([second])
    assert held.it.fail(second, None, "no")
    assert (second.index, held.rescheduled, held.lettered) == (SETTLED, 1, [0])
    assert held.index is not None
    assert held.index.get(0) is None
    assert (held.it.own.failed, held.context.totals.failed) == (2, 2)
    held.it.dead_lettered(0, second, "no")
    held.it.dead_lettered(0, second, "no")
    assert (held.it.own.dead_lettered, held.context.totals.dead_lettered) == (1, 1)
    assert held.it.tracker.unsettled == 0


class _Retried(Hooks):
    """Keeps the seconds until each next delivery."""

    def __init__(self) -> None:
        self.delays: list[float] = []

    def retried(self, message: Message, error: BaseException | str, delay: float) -> None:
        """Of one."""
        self.delays.append(delay)


def test_hooks_hear_how_long_a_retry_waits() -> None:
    """As was asked for, or by the policy."""
    held = Held(3)
    held.context.hooks = hooks = _Retried()
    for message, delay in zip(held.messages, (0.0, 0.25, None), strict=True):
        message.nack(delay)
    assert hooks.delays == [0.0, 0.25, 1.0]


@pytest.mark.parametrize("with_messages", [False, True])
def test_retry_of_a_queue_that_would_wait_too_long_is_given_back(*, with_messages: bool) -> None:
    """The broker redelivers it; nothing here waits for it. At the limit it is kept."""
    held = Held(2, tracker=QueueTracker(ASSIGNMENT, policy=POLICY), with_messages=with_messages)
    held.context.longest_hold = 5.0
    short, long = held.messages
    short.nack(5.0)
    assert (short.index, held.rescheduled) == (NACKED, 1)
    lane = held.wait_for(long)
    long.nack(5.1)
    assert (long.index, held.rescheduled, lane.awaited) == (SETTLED, 1, frozenset())
    assert held.index is None or held.index.get(1) is None
    assert (held.it.tracker.retrying, list(held.flush().released)) == (1, [long.position])


def test_retry_of_a_log_is_kept_however_long_it_waits() -> None:
    """Its broker would not redeliver it."""
    held = Held(1)
    held.context.longest_hold = 5.0
    (message,) = held.messages
    message.nack(60.0)
    assert (message.index, held.rescheduled, held.it.tracker.retrying) == (NACKED, 1, 1)


def test_rejected_delivery_goes_to_the_dead_letters_once() -> None:
    """What comes after it is too late."""
    held = Held(1, with_messages=True)
    (message,) = held.messages
    assert held.it.reject_with(message, "poison")
    assert not held.it.reject_with(message, "poison")
    assert (message.index, held.lettered) == (SETTLED, [0])


def test_record_is_given_up_whether_it_is_in_delivery_or_waits_for_its_retry() -> None:
    """What waits behind the retry is free then; one that is on its way already is not given up again."""
    held = Held(2, with_messages=True)
    open_one, failed = held.messages
    failed.nack(99.0)
    lane = held.wait_for(failed)
    assert held.it.take_out(0, open_one, "old")
    assert lane.awaited == {1}
    held.context.changed.clear()
    assert held.it.take_out(1, failed, "old")
    assert held.it in held.context.changed
    assert lane.awaited == frozenset()
    assert not held.it.take_out(1, failed, "old")
    assert held.lettered == [0, 1]
    assert held.it.tracker.retrying == 0


def test_cumulative_ack_says_whether_it_settled_anything() -> None:
    """One record is enough."""
    held = Held(3)
    assert held.messages[0].ack_cumulative()
    assert not held.messages[0].ack_cumulative()
    assert held.messages[2].ack_cumulative()


def test_records_that_the_broker_took_back_were_never_fetched() -> None:
    """Or they would count as settled; those that are settled stay so."""
    held = Held(4, tracker=QueueTracker(ASSIGNMENT, policy=POLICY), with_messages=True)
    held.messages[0].ack()
    held.it.retries = {1: True, 3: False}
    held.context.changed.clear()
    assert held.it.forget([0, 1, 2]) == 2
    assert held.it.retries == {3: False}
    assert held.it in held.context.changed
    assert (held.it.fetched, held.it.tracker.unsettled) == (2, 1)
    assert held.index is not None
    assert [held.index.get(at) is None for at in range(4)] == [True, True, True, False]
    held.it.close()
    assert held.it.own.settled == 1


@pytest.mark.parametrize(
    "call,arguments",
    [
        ("nack", {"delay": "soon"}),
        ("nack", {"delay": -1.0}),
        ("nack", {"reason": 5}),
        ("reject", {"reason": 5}),
        ("extend", {"seconds": "long"}),
        ("extend", {"seconds": 0}),
    ],
)
def test_wrong_argument_is_refused_before_anything_happens(
    call: str, arguments: dict[str, Any]
) -> None:
    """The delivery goes on, and may be settled."""
    held = Held(1)
    (message,) = held.messages
    with pytest.raises(ConfigurationError, match=rf"{call}\({next(iter(arguments))}="):
        getattr(message, call)(**arguments)
    assert held.context.totals.failed == 0
    assert message.ack()


def test_timeout_that_is_shortened_is_noticed() -> None:
    """It may be due earlier than anything before."""
    held = Held(1, tracker=WatermarkTracker(ASSIGNMENT, policy=POLICY, ack_timeout=60.0))
    (message,) = held.messages
    assert message.extend(5.0)
    assert held.rescheduled == 1


# -- what is sent -----------------------------------------------------------------------------


class _Picky(MemoryTransactions):
    """Takes no output for one stream."""

    def check_output(self, output: Output) -> None:
        """Refuses."""
        if output.stream == "locked":
            raise OutputError("it is locked")


def test_output_is_kept_while_its_delivery_lasts() -> None:
    """It takes memory from then on. Afterwards it is an error, or a late call once the partition is lost."""
    held = Held(3, transactions=_Picky())
    first, second, third = held.messages
    held.context.changed.clear()
    assert first.send("out", b"1")
    assert list(held.context.changed) == [held.it]
    assert held.it.outputs is not None
    assert held.it.load() == (3, 0, held.it.tracker.unsettled_bytes + held.it.outputs.size)
    with pytest.raises(OutputError, match="locked") as refused:
        second.send("locked", b"2")
    assert refused.value.message is second
    second.ack()
    third.nack()
    for over in (second, third):
        with pytest.raises(OutputError, match="send before you settle it"):
            over.send("out", b"3")
    held.it.close()
    ignored = held.context.totals.ignored
    assert not first.send("out", b"4")
    assert held.context.totals.ignored == ignored + 1
    assert held.it.outputs.size == 0


def test_output_takes_memory_until_it_is_written() -> None:
    """Its record is settled, and counts no more."""
    held = Held(1, transactions=MemoryTransactions())
    (message,) = held.messages
    message.send("out", b"1")
    message.ack()
    assert held.it.outputs is not None
    assert held.it.load() == (0, 0, held.it.outputs.size)
    assert held.it.outputs.size > 0


def test_delivery_that_expires_sends_nothing_more() -> None:
    """Without transactions whoever has it may still settle it: that is worth a redelivery."""
    for transactions in (None, MemoryTransactions()):
        tracker = WatermarkTracker(ASSIGNMENT, policy=POLICY, ack_timeout=5.0)
        held = Held(1, tracker=tracker, transactions=transactions)
        (message,) = held.messages
        held.clock.now = 5.0
        ((index, verdict, expired),) = tracker.due(5.0).expired
        assert expired is message
        held.it.expire(verdict, index, message)
        assert held.it.own.failed == 1
        if transactions is None:
            assert message.ack()
        else:
            assert not message.ack()
            with pytest.raises(OutputError, match="its delivery has failed"):
                message.send("out", b"1")


def test_record_that_is_given_up_in_its_handler_sends_nothing_more() -> None:
    """What it has sent is dropped."""
    held = Held(1, with_messages=True, transactions=MemoryTransactions())
    (message,) = held.messages
    assert message.send("out", b"1")
    assert held.it.take_out(0, message, "old")
    assert not message.send("out", b"2")
    assert held.it.outputs is not None
    assert held.it.outputs.size == 0


def test_dead_letter_may_be_an_output_of_its_record() -> None:
    """The transaction that commits the record writes it; None was written elsewhere."""
    held = Held(2, transactions=MemoryTransactions())
    assert held.it.outputs is not None
    letter = Output.make("dead", b"1")
    for message, made in zip(held.messages, (letter, None), strict=True):
        index = message.index
        message.reject()
        held.it.dead_lettered(index, message, "rejected", made)
    assert held.it.outputs.size == letter.held
    assert held.it.tracker.unsettled == 0


def test_tree_ends_with_the_delivery_of_its_message() -> None:
    """Nothing is kept of it, whether the record is retried or given up; other messages end none."""
    held = Held(3)
    nacked, rejected, plain = held.messages
    nacked.tree()
    rejected.tree()
    assert held.it.trees is not None
    assert plain.nack()
    assert held.it.trees.trees.live == 2
    assert nacked.nack()
    assert held.it.trees.trees.live == 1
    assert rejected.reject()
    assert held.it.trees.trees.live == 0
    assert nacked.holder is rejected.holder is held.it


# -- what is said of a checkpoint that was cut ----------------------------------------------------


def _said(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    """The figure of each line, and whether it is said again."""
    lines = [record for record in caplog.records if record.name == LOG]
    caplog.clear()
    return [
        (record.args[1] if isinstance(record.args, tuple) else None, hasattr(record, "repeats"))
        for record in lines
    ]


def test_checkpoint_that_was_cut_is_told_when_that_begins(caplog: pytest.LogCaptureFixture) -> None:
    """Again only after one that was whole; each is counted."""
    held = Held()
    with caplog.at_level(logging.WARNING, LOG):
        held.it.note_cut(None, 0)
        assert (_said(caplog), held.it.is_truncated) == ([], False)
        held.it.note_cut(0, 0)
        assert (_said(caplog), held.it.is_truncated) == ([(0, False)], True)
        held.it.note_cut(7, 0)
        assert _said(caplog) == []
        held.it.note_cut(None, 0)
        held.it.note_cut(8, 0)
        assert _said(caplog) == [(8, False)]
    assert held.context.totals.truncated == 3


def test_attempts_that_did_not_fit_are_told_when_they_are_twice_as_many(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first time at once; none is no news, and fewer are none."""
    held = Held()
    with caplog.at_level(logging.WARNING, LOG):
        for forgotten in (0, 1, 0, 1, 2, 3, 4):
            held.it.note_cut(None, forgotten)
        assert _said(caplog) == [(1, False), (2, True), (4, True)]
    assert held.context.totals.truncated == 5
    assert not held.it.is_truncated
