"""`DeadLetterSender`: what it sends, when it sends again, and what it drops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from consumer_sdk.errors import HandlerError, StoreError, TransientAdapterError, TransientStoreError
from consumer_sdk.records import Assignment, DeadLetter, Message, Outcome, OutcomeKind, Partition
from consumer_sdk.records.outputs import Output
from consumer_sdk.runtime.partitions.dead_lettering import DeadLetterSender
from consumer_sdk.testing.memory import MemoryTransactions
from consumer_sdk.trackers import Reject, Retry
from tests.runtime.bench import Letters
from tests.runtime.consumer_options import options_of
from tests.runtime.partitions.held import Clock, Held, in_loop

OTHER = Assignment(Partition("s", "1"), epoch=1)


class Adapter:
    """What a letter takes from it."""

    def __init__(self, group: str | None = "g") -> None:
        self.group = group

    @staticmethod
    def encode_position(position: int) -> str:
        """Its text."""
        return f"at {position}"


class Noting(Letters):
    """Notes when it is asked, and for how many; answers what is planned, and takes the rest."""

    def __init__(self, *plan: list[Outcome] | Exception) -> None:
        super().__init__()
        self.asked: list[tuple[float, int]] = []
        self.plan = list(plan)

    async def send(self, letters: Sequence[DeadLetter]) -> list[Outcome]:
        """Takes them, or not."""
        self.asked.append((round(asyncio.get_running_loop().time(), 3), len(letters)))
        planned = self.plan.pop(0) if self.plan else [Outcome.durable() for _ in letters]
        if isinstance(planned, Exception):
            raise planned
        taken = zip(letters, planned, strict=True)
        self.kept += [letter for letter, outcome in taken if outcome.kind is OutcomeKind.DURABLE]
        return planned


def sender_of(destination: Letters | None, group: str | None = "g") -> DeadLetterSender:
    """A sender by itself."""
    adapter: Any = Adapter(group)
    return DeadLetterSender(adapter, options_of(clock=Clock()), destination)


def reject(sender: DeadLetterSender, held: Held, *numbers: int) -> list[Message]:
    """Has records dead-lettered."""
    given = [held.messages[number] for number in numbers]
    for message in given:
        index = message.index
        message.reject()
        sender.add(held.it, index, message, "poison")
    return given


def positions(destination: Letters) -> list[str]:
    """Of what was kept."""
    return [letter.position for letter in destination.kept]


def running(sender: DeadLetterSender, test: Callable[[], Awaitable[None]]) -> None:
    """Runs a test beside the sender."""

    async def both() -> None:
        task = asyncio.create_task(sender.run())
        await test()
        assert not task.done()
        task.cancel()

    in_loop(both)


def _chosen(choice: Exception, cause: Exception | None) -> Exception:
    choice.__cause__ = cause
    return choice


@pytest.mark.parametrize(
    "error,kind,text",
    [
        ("poison", "rejected", "poison"),
        (ValueError("bad"), "builtins.ValueError", "ValueError: bad"),
        (Reject("never"), "rejected", "never"),
        (
            _chosen(Retry("later"), ValueError("bad")),
            "builtins.ValueError",
            "later: ValueError: bad",
        ),
        (_chosen(Reject("never"), Retry("later")), "rejected", "never"),
    ],
    ids=["text", "error", "reject", "cause", "choices"],
)
def test_letter_has_the_record_its_error_and_its_origin(
    error: BaseException | str, kind: str, text: str
) -> None:
    """The error is that of the cause, where a handler chose what to do with it."""

    async def test() -> None:
        held, destination = Held(1), Letters()
        (message,) = held.messages
        message.key, message.headers, message.timestamp = b"k", [("h", b"1")], 7
        message.reject()
        sender = sender_of(destination)
        sender.add(held.it, 0, message, error)
        task = asyncio.create_task(sender.run())
        await asyncio.sleep(1)
        assert destination.kept == [
            DeadLetter(
                partition=Partition("s", "0"),
                position="at 0",
                key=b"k",
                value=b"12345",
                headers=[("h", b"1")],
                timestamp=7,
                error=text,
                error_type=kind,
                attempts=1,
                group="g",
                failed_at=0.0,
            )
        ]
        assert held.it.tracker.unsettled == 0
        task.cancel()

    in_loop(test)


def test_letter_of_a_consumer_without_a_group_names_none() -> None:
    """It is empty text."""

    async def test() -> None:
        held, destination = Held(1), Letters()
        sender = sender_of(destination, group=None)
        reject(sender, held, 0)
        task = asyncio.create_task(sender.run())
        await asyncio.sleep(1)
        assert [letter.group for letter in destination.kept] == [""]
        task.cancel()

    in_loop(test)


def test_letters_that_were_not_taken_are_sent_again_alone() -> None:
    """The others are settled at once. Each further try waits twice as long, until one succeeds."""
    failed = TransientAdapterError("full")
    destination = Noting(
        [Outcome.durable(), Outcome.retry(failed), Outcome.durable()],
        [Outcome(OutcomeKind.SENT)],
        OSError("down"),
        TransientAdapterError("down"),
        TransientStoreError("down"),
        [Outcome.durable()],
        [Outcome.retry(failed)],
    )
    sender = sender_of(destination)

    async def test() -> None:
        held = Held(4)
        _, waiting, _ = reject(sender, held, 0, 1, 2)
        assert sender.find(held.it, 1) is waiting
        await asyncio.sleep(0.05)
        assert held.it.tracker.unsettled == 2
        assert [sender.find(held.it, index) for index in range(4)] == [None, waiting, None, None]
        await asyncio.sleep(3.15)  # 0.1 + 0.2 + 0.4 + 0.8 + 1.6
        assert held.it.tracker.unsettled == 1
        reject(sender, held, 3)
        await asyncio.sleep(0.15)
        assert held.it.tracker.unsettled == 0
        times = [0.0, 0.1, 0.3, 0.7, 1.5, 3.1, 3.2, 3.3]
        assert destination.asked == list(zip(times, [3, 1, 1, 1, 1, 1, 1, 1], strict=True))

    running(sender, test)


def test_longest_wait_for_a_destination_is_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    """However long it is down; the line of the log says why."""
    destination = Noting(*[OSError("down")] * 10)
    sender = sender_of(destination)

    async def test() -> None:
        reject(sender, Held(1), 0)
        await asyncio.sleep(100)
        times = [time for time, _ in destination.asked]
        assert times[-2:] == pytest.approx([32.7, 42.7])

    running(sender, test)
    assert "1 dead letters could not be written: OSError('down')" in caplog.text


def test_letters_of_a_partition_that_is_lost_are_dropped() -> None:
    """Its next owner has the records. That is no failure: the next letter is sent at once."""
    destination = Noting()
    sender = sender_of(destination)

    async def test() -> None:
        for _ in range(3):
            lost = Held(2)
            reject(sender, lost, 0, 1)
            lost.it.close()
            await asyncio.sleep(1)
            assert sender.find(lost.it, 0) is None
        lost = Held(1)
        reject(sender, lost, 0)
        lost.it.close()
        await asyncio.sleep(0.001)
        reject(sender, Held(1), 0)
        await asyncio.sleep(1)
        assert destination.asked == [(3.001, 1)]

    running(sender, test)


def test_consumer_without_dead_letters_need_not_stop_for_a_partition_that_is_lost() -> None:
    """Nothing is left to keep."""
    sender = sender_of(None)

    async def test() -> None:
        lost = Held(1)
        reject(sender, lost, 0)
        lost.it.close()
        await asyncio.sleep(1)
        assert sender.find(lost.it, 0) is None

    running(sender, test)


def test_letters_are_found_and_sent_by_their_partition() -> None:
    """Records of two partitions have the same index; one of the two is lost while they wait."""
    destination = Noting(OSError("down"))
    sender = sender_of(destination)

    async def test() -> None:
        one, two = Held(2), Held(2, assignment=OTHER)
        (first,) = reject(sender, one, 0)
        (second,) = reject(sender, two, 0)
        assert sender.find(one.it, 0) is first
        assert sender.find(two.it, 0) is second
        assert sender.find(two.it, 1) is None
        await asyncio.sleep(0.05)
        one.it.close()
        await asyncio.sleep(1)
        assert [letter.partition.id for letter in destination.kept] == ["1"]
        assert two.it.tracker.unsettled == 1

    running(sender, test)


def test_many_letters_are_sent_in_parts() -> None:
    """Of five hundred at most."""
    destination = Noting()
    sender = sender_of(destination)

    async def test() -> None:
        held = Held(1100)
        reject(sender, held, *range(1100))
        await asyncio.sleep(1)
        assert [count for _, count in destination.asked] == [500, 500, 100]
        assert held.it.tracker.unsettled == 0

    running(sender, test)


def test_consumer_without_dead_letters_stops_at_the_first_record_that_needs_them() -> None:
    """The error names it, and says what to do."""

    async def test() -> None:
        sender, other = sender_of(None), Held(1, assignment=OTHER)
        reject(sender, Held(1), 0)
        sender.add(other.it, 0, other.messages[0], "also bad")
        with pytest.raises(HandlerError, match=r"s/0 at at 0 cannot be processed \(poison\)"):
            await sender.run()

    in_loop(test)


def test_error_that_no_retry_helps_is_raised() -> None:
    """And not taken for an outage."""

    async def test() -> None:
        sender, held = sender_of(Noting(StoreError("broken"))), Held(1)
        reject(sender, held, 0)
        with pytest.raises(StoreError, match="broken"):
            await sender.run()
        assert held.it.tracker.unsettled == 1

    in_loop(test)


def test_answer_without_a_reason_is_told_by_its_kind(caplog: pytest.LogCaptureFixture) -> None:
    """Such as one that says that the topic is gone."""
    sender = sender_of(Noting([Outcome(OutcomeKind.GONE)]))

    async def test() -> None:
        reject(sender, Held(1), 0)
        await asyncio.sleep(1)

    running(sender, test)
    assert "the destination says gone" in caplog.text


def test_letters_may_be_outputs_of_their_records() -> None:
    """The destination makes them, and the record's transaction writes them; an error is tried again."""
    destination = Letters()
    sender = sender_of(destination)
    answers: list[Any] = [OSError("no metadata"), Output.make("dead", b"1")]

    async def within(letters: Sequence[DeadLetter]) -> list[Any]:
        return [answers.pop(0) for _ in letters]

    sender.within = within

    async def test() -> None:
        held = Held(1, transactions=MemoryTransactions())
        reject(sender, held, 0)
        await asyncio.sleep(0.05)
        assert held.it.tracker.unsettled == 1
        await asyncio.sleep(1)
        assert held.it.tracker.unsettled == 0
        assert held.it.outputs is not None
        assert held.it.outputs.size > 0
        assert destination.kept == []

    running(sender, test)


def test_letter_that_was_written_elsewhere_is_no_output() -> None:
    """Its record's transaction commits the position alone."""
    sender = sender_of(Letters())

    async def test() -> None:
        held = Held(1, transactions=MemoryTransactions())
        reject(sender, held, 0)
        await asyncio.sleep(1)
        assert held.it.tracker.unsettled == 0
        assert held.it.outputs is not None
        assert held.it.outputs.size == 0

    running(sender, test)
