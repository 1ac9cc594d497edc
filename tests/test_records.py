"""The values: partitions, messages and how they reach their holder, redeliveries, batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.errors import ConsumerClosedError, ConsumerSdkError
from consumer_sdk.records import (
    Assignment,
    Batch,
    Branch,
    Headers,
    Message,
    Outcome,
    OutcomeKind,
    Partition,
    Redelivery,
    Tracked,
)

ASSIGNMENT = Assignment(Partition("orders", "0"), epoch=1)


class FakeHolder:
    """Writes down what it is asked for; settles each index once."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.settled: set[int] = set()

    @property
    def ack(self) -> Callable[[int], bool]:
        """The tracker's bound method, in a real one."""
        return self._ack

    def _ack(self, index: int) -> bool:
        self.calls.append(("ack", index))
        return self._settle(index)

    def _settle(self, index: int) -> bool:
        is_new = index not in self.settled
        self.settled.add(index)
        return is_new

    def ack_all(self, messages: Sequence[Message]) -> int:
        """Many."""
        self.calls.append(("ack_all", *(message.index for message in messages)))
        return sum([self._settle(message.index) for message in messages])

    def ack_cumulative(self, message: Message) -> bool:
        """Up to here."""
        self.calls.append(("ack_cumulative", message.index))
        return True

    def nack(self, message: Message, delay: float | None, reason: str) -> bool:
        """Again."""
        self.calls.append(("nack", message.index, delay, reason))
        return self._settle(message.index)

    def reject(self, message: Message, reason: str) -> bool:
        """Never again."""
        self.calls.append(("reject", message.index, reason))
        return self._settle(message.index)

    def extend(self, message: Message, seconds: float) -> bool:
        """Later."""
        self.calls.append(("extend", message.index, seconds))
        return True

    def send(
        self,
        message: Message,
        stream: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
    ) -> bool:
        """Kept."""
        self.calls.append(("send", message.index, stream, value, key, headers))
        return True

    async def durable(self) -> None:
        """At once."""
        self.calls.append(("durable",))

    def tree(self, message: Message) -> Branch:
        """One that nobody waits for."""
        self.calls.append(("tree", message.index))
        return Branch.unanchored()


def make_message(holder: FakeHolder, index: int) -> Message:
    """A message that ``holder`` settles."""
    message = Message.make(ASSIGNMENT, 100 + index, b"value", key=b"key", timestamp=7)
    message.holder, message.index = holder, index
    return message


# -- partitions -------------------------------------------------------------------------------


@given(st.text(), st.text())
def test_partition_text_reads_back(stream: str, id_: str) -> None:
    """Whatever the names hold, slashes too, the store path names this partition alone."""
    partition = Partition(stream, id_)

    assert partition.path.count("/") == 1
    assert Partition.parse(partition.path) == partition


def test_partition_is_shown_as_a_person_would_type_it() -> None:
    """In logs and errors; a store has its path."""
    partition = Partition("persistent://public/default/orders", "3")
    assert str(partition) == f"{partition}" == "persistent://public/default/orders/3"
    assert partition.path == "persistent%3A%2F%2Fpublic%2Fdefault%2Forders/3"


@pytest.mark.parametrize("text", ["", "orders", "a/b/c"])
def test_text_that_is_no_partition_is_refused(text: str) -> None:
    """A clear error names the text."""
    with pytest.raises(ValueError, match="is not the path of a partition"):
        Partition.parse(text)


def test_assignments_are_compared_by_identity() -> None:
    """Two grants of one partition are two assignments, usable as keys."""
    again = Assignment(ASSIGNMENT.partition, epoch=1)

    assert again != ASSIGNMENT
    assert len({again, ASSIGNMENT}) == 2


# -- messages ---------------------------------------------------------------------------------


def test_message_knows_where_it_comes_from_and_its_size() -> None:
    """Stream, partition, bytes of key and value; the first delivery is attempt 1."""
    message = make_message(FakeHolder(), 0)

    assert (message.stream, message.partition) == ("orders", ASSIGNMENT.partition)
    assert (message.size, message.attempt, message.native) == (8, 1, None)
    assert (message.headers, message.timestamp) == ((), 7)
    assert repr(message) == "<Message orders/0@100 attempt=1 bytes=8>"


def test_tombstone_has_no_bytes() -> None:
    """None for key and value is no error."""
    assert Message.make(ASSIGNMENT, 1, None).size == 0


async def test_settling_goes_to_the_holder_with_the_index() -> None:
    """Each method reaches the holder once, with its argument or the documented default."""
    holder = FakeHolder()
    message = make_message(holder, 4)

    assert [message.ack(), message.ack()] == [True, False]
    message.ack_cumulative()
    message.nack()
    message.nack(2.5, reason="busy")
    message.reject()
    message.reject("bad")
    message.extend(30.0)
    await message.durable()
    assert message.tree() is Branch.unanchored()
    assert holder.calls == [
        ("ack", 4),
        ("ack", 4),
        ("ack_cumulative", 4),
        ("nack", 4, None, "nacked"),
        ("nack", 4, 2.5, "busy"),
        ("reject", 4, "rejected"),
        ("reject", 4, "bad"),
        ("extend", 4, 30.0),
        ("durable",),
        ("tree", 4),
    ]


@pytest.mark.parametrize(
    "settle",
    [
        Message.ack,
        Message.ack_cumulative,
        Message.nack,
        Message.reject,
        Message.tree,
        lambda message: message.extend(1.0),
        lambda message: Batch([message]).ack(),
        lambda message: Batch([message]).nack(),
        lambda message: Redelivery.of(message, 2).ack(),
    ],
    ids=[
        "ack",
        "ack_cumulative",
        "nack",
        "reject",
        "tree",
        "extend",
        "batch",
        "batch nack",
        "redelivery",
    ],
)
def test_settling_an_untracked_message_is_a_clear_error(
    settle: Callable[[Message], object],
) -> None:
    """Nothing would ever come of it, so it must not look as if it did."""
    with pytest.raises(ConsumerClosedError, match="does not come from a consumer that tracks it"):
        settle(Message.make(ASSIGNMENT, 1, b"value"))


async def test_waiting_for_an_untracked_message_is_a_clear_error() -> None:
    """The same for `durable`, which would wait for ever."""
    with pytest.raises(ConsumerSdkError, match="does not come from a consumer"):
        await Message.make(ASSIGNMENT, 1, b"value").durable()


def test_half_made_message_can_be_printed() -> None:
    """A debugger may look at any moment."""
    assert repr(Message()) == "<Message unmade>"


# -- redeliveries -----------------------------------------------------------------------------


def test_redelivery_is_a_copy_with_its_own_attempt() -> None:
    """The same record and holder; the first delivery's message stays as it was."""
    holder = FakeHolder()
    message = make_message(holder, 4)
    again = Redelivery.of(message, 3)

    assert isinstance(again, Message)
    assert (again.attempt, message.attempt) == (3, 1)
    for name in set(Message.__slots__) - {"root", "_body"}:  # which belong to one delivery
        assert getattr(again, name) is getattr(message, name)
    message.index = -1
    assert again.ack()
    assert holder.settled == {4}
    assert "attempt=3" in repr(again)


def test_redelivery_of_a_redelivery_keeps_the_native_handle() -> None:
    """What an adapter hung on it travels with every copy."""
    first = Redelivery.of(make_message(FakeHolder(), 1), 2)
    first.native = "id"

    assert (Redelivery.of(first, 3).native, Redelivery.of(first, 3).attempt) == ("id", 3)


def test_copy_of_a_half_made_message_has_what_there_was() -> None:
    """Attributes that were never stored stay unset."""
    message = Message()
    message.position = 9

    again = Redelivery.of(message, 2)
    assert (again.position, again.attempt) == (9, 2)
    assert not hasattr(again, "holder")


# -- batches ----------------------------------------------------------------------------------


def test_batch_acks_each_holders_part_in_one_call() -> None:
    """Neighbours of one partition go together, in their order; the counts add up."""
    one, two = FakeHolder(), FakeHolder()
    batch = Batch([make_message(h, i) for h, i in ((one, 0), (one, 7), (two, 1), (one, 2))])

    assert batch.ack() == 4
    assert one.calls == [("ack_all", 0, 7), ("ack_all", 2)]
    assert two.calls == [("ack_all", 1)]
    assert batch.ack() == 0


def test_batch_nacks_and_rejects_what_is_not_settled() -> None:
    """Explicit settles stand: only the others count."""
    holder = FakeHolder()
    batch = Batch([make_message(holder, i) for i in range(3)])
    batch[1].ack()

    assert batch.nack(2.0, reason="busy") == 2
    assert ("nack", 0, 2.0, "busy") in holder.calls
    fresh = Batch([make_message(FakeHolder(), i) for i in range(3)])
    assert fresh.reject("bad") == 3
    assert fresh.reject() == 0


def test_empty_batch_settles_nothing() -> None:
    """No holder is asked."""
    assert (Batch().ack(), Batch().nack(), Batch().reject()) == (0, 0, 0)


# -- answers ----------------------------------------------------------------------------------


def test_outcomes_say_what_is_durable() -> None:
    """The two shorthands."""
    error = OSError("down")

    assert Outcome.retry(error) == Outcome(OutcomeKind.RETRY, None, error)
    assert Outcome.durable(5) == Outcome(OutcomeKind.DURABLE, 5)
    assert Outcome.durable(None, 2) == Outcome(OutcomeKind.DURABLE, forgotten=2)
    assert Outcome.durable() == Outcome(OutcomeKind.DURABLE)


def test_outcome_that_all_share_is_changed_by_nobody() -> None:
    """Thousands of flushes are answered with the same object."""
    with pytest.raises(FrozenInstanceError):
        Outcome.durable().covered = 5  # type: ignore[misc]  # that is the point

    assert replace(Outcome.durable(), covered=5) == Outcome.durable(5)
    assert Outcome.durable().covered is None


@pytest.mark.parametrize("name", ["dropped", "settled", "known", "held", "exhausted", "tries"])
def test_tracked_run_with_any_exception_is_not_plain(name: str) -> None:
    """The fast path is for runs of which every message is new."""
    exceptions: dict[str, Any] = {name: {0: 2} if name == "tries" else [0]}

    assert Tracked(0, 1).plain
    assert not Tracked(0, 1, **exceptions).plain
