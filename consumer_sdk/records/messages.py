"""One delivery of a record, and the handle that settles it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias, cast

from consumer_sdk.errors import ConsumerClosedError, HandlerError
from consumer_sdk.records.branches import Branch
from consumer_sdk.records.partitions import Assignment, Partition, Position

__all__ = [
    "Batch",
    "Headers",
    "Holder",
    "Message",
    "NotABatchError",
    "NotAMessageError",
    "Redelivery",
    "total_bytes",
]

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class NotABatchError(HandlerError, TypeError):
    """One message was iterated, counted or indexed, as if it were a batch; that settles nothing."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"one message cannot be {what}: to get batches, give run(handler, batch_size=…), "
            f"or pull from consumer.batches(). {UNLESS_SETTLED}"
        )


class NotAMessageError(HandlerError, AttributeError):
    """A batch was asked for what each of its messages has; that settles nothing."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"a batch has no attribute {name!r}, each of its messages has: loop over them, or "
            f"leave batch_size=… out of run() to get one message a call. {UNLESS_SETTLED}"
        )


UNLESS_SETTLED = "What the handler was given is delivered again unless it was settled"


class Holder(Protocol):
    """What settles a message: the runtime's side of an assignment."""

    @property
    def ack(self) -> Callable[[int], bool]:
        """Settles the record of an index; an attribute, since this is the hot path."""
        ...

    def ack_all(self, messages: Sequence[Message]) -> int:
        """Settles messages of this holder; returns how many that settled."""
        ...

    def ack_cumulative(self, message: Message) -> bool:
        """See `Message.ack_cumulative`; so with the others."""
        ...

    def nack(self, message: Message, delay: float | None, reason: str) -> bool:
        """Asks for another delivery."""
        ...

    def reject(self, message: Message, reason: str) -> bool:
        """Sends the record to the dead letters."""
        ...

    def extend(self, message: Message, seconds: float) -> bool:
        """Moves the ack timeout."""
        ...

    async def durable(self) -> None:
        """Waits until what was settled is durable."""

    def tree(self, message: Message) -> Branch:
        """Opens the tree of a delivery."""
        ...

    def send(
        self,
        message: Message,
        stream: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
    ) -> bool:
        """See `Message.send`."""
        ...


class Message:
    """One delivery of a record, with the handle that settles it.

    An adapter makes one object for each record (`make`, or in a hot loop ``Message()`` followed
    by the attribute stores, which costs half as much), the runtime binds it, and a redelivery is
    a copy (`Redelivery`) with its attempt number.

    Attributes:
        assignment: the grant under which the record was fetched.
        position: the record's place in its partition.
        key: bytes, or None.
        value: raw bytes, or None (a tombstone). Decode it in the handler, or by ``decode=`` of the
            consumer (see `body`), so that a record that cannot be decoded is dead-lettered.
        headers: pairs of name and bytes (or None), in the broker's order; names may repeat.
        timestamp: milliseconds since the epoch, or None.
        attempt: 1 for the first delivery; survives restarts.
        ordering_key: Pulsar's ordering key, which `Ordering.KEY` uses in place of the key; None for
            other brokers.
        details: what only this broker tells: a `consumer_sdk.adapters.pulsar.PulsarDetails`; None
            for other brokers.
    """

    __slots__ = (
        "_body",
        "assignment",
        "headers",
        "holder",
        "index",
        "key",
        "position",
        "root",
        "timestamp",
        "value",
    )

    assignment: Assignment
    position: Position
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None
    holder: Holder
    """What settles it; `bind` of a tracker sets it. :meta private:"""
    index: int
    _body: Any
    root: int
    """The number of its open tree; set while a tree is open, which then is in ``holder``. :meta private:"""

    attempt: int = 1
    ordering_key: bytes | None = None
    details: Any = None
    native: Any = None

    @classmethod
    def make(
        cls,
        assignment: Assignment,
        position: Position,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> Message:
        """A message that is not tracked yet; settling it raises `ConsumerClosedError`."""
        message = cls()
        message.assignment = assignment
        message.position = position
        message.key = key
        message.value = value
        message.headers = headers
        message.timestamp = timestamp
        message.holder = UNBOUND
        message.index = -1
        return message

    @property
    def partition(self) -> Partition:
        """The partition that the record came from."""
        return self.assignment.partition

    @property
    def stream(self) -> str:
        """The Kafka topic, Kinesis stream or Pulsar topic that the record came from."""
        return self.assignment.partition.stream

    @property
    def body(self) -> Any:
        """The value, decoded by ``decode=`` of the consumer. Without ``decode=``, and for a tombstone, the value itself.

        It is decoded when it is first read, in each delivery. In `Consumer.run` you need not catch
        the error: the record goes to the dead letters, with its original value.

        Raises:
            Reject: the value cannot be decoded.
            Exception: the value cannot be decoded now, for example because a schema registry is
                unreachable.
        """
        if not hasattr(self, "_body"):
            holder: Any = self.holder
            self._body = holder.body(self.value)
        return self._body

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")

    def ack(self) -> bool:
        """Settles this record. The next flush makes that durable, together with other acks.

        Returns:
            False if that changed nothing: settled before, or the assignment is gone.
        """
        result: bool = self.holder.ack(self.index)
        return result

    def ack_cumulative(self) -> bool:
        """Settles this record and all that were handed out before it in its partition."""
        return self.holder.ack_cumulative(self)

    def nack(self, delay: float | None = None, *, reason: str = "nacked") -> bool:
        """Asks for another delivery; counts as an attempt.

        Args:
            delay: seconds until then; the retry policy's back-off if None.
            reason: kept for the dead letter, should the limit be reached.
        """
        return self.holder.nack(self, delay, reason)

    def reject(self, reason: str = "rejected") -> bool:
        """Sends the record to the dead letters now. It is settled when its dead letter is durable."""
        return self.holder.reject(self, reason)

    def extend(self, seconds: float) -> bool:
        """Moves the ack timeout to ``seconds`` from now."""
        return self.holder.extend(self, seconds)

    def tree(self) -> Branch:
        """Opens a tree: this record is settled when all branches are acked (Storm's tuple tree).

        ::

            with message.tree() as tree:  # leaving the block acks the tree's first branch
                for line in message.value.splitlines():
                    queue.put_nowait((line, tree.branch()))  # later: branch.ack() or .fail()

        In `Consumer.run` the handler's return does not ack a message with an open tree. A failed
        branch fails the delivery at once, and so does the ack timeout; the tree also ends when the
        message is settled in another way. Each delivery has a tree of its own; a second call adds
        another first branch to the open tree.

        Returns:
            the first branch: ``branch``, ``ack``, ``fail``, ``join``, ``token``; it can fail the
            tree also after it was acked.
        """
        return self.holder.tree(self)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
    ) -> bool:
        """Writes a record in the transaction that commits this one: both are done, or neither.

        For ``run(handler, transactions=KafkaTransactions(…))``. The output is kept until this message is
        settled, and counts for ``max_in_flight_bytes``. What a delivery sends is dropped if it fails.

        Args:
            topic: where the record goes. Its key chooses the partition, as in Java's producer.
            value: bytes, or None for a tombstone.
            key: bytes, or None.
            headers: pairs of name and bytes (or None).

        Returns:
            False if the partition was lost. Then the next owner handles the record, and sends its
                outputs.

        Raises:
            NoTransactionsError: there are no transactions here.
            OutputError: it cannot be written; or the message was settled before.
        """
        return self.holder.send(self, topic, value, key, headers)

    async def durable(self) -> None:
        """Waits until everything settled so far in this partition is durable.

        Raises:
            PartitionLostError: the assignment was lost first; the record is delivered again.

        Cancellation: changes nothing.
        """
        await self.holder.durable()

    def __bool__(self) -> bool:
        """True: `len` is not asked."""
        return True

    if not TYPE_CHECKING:  # to a type checker a message is no sequence
        # A handler of batches that is given single messages would fail with each of them.
        def __iter__(self) -> NoReturn:
            """Raises `NotABatchError`; so do the next two."""
            raise NotABatchError("iterated")

        def __len__(self) -> NoReturn:
            raise NotABatchError("counted")

        def __getitem__(self, _place: object) -> NoReturn:
            raise NotABatchError("indexed")

    def __repr__(self) -> str:
        if not hasattr(self, "assignment"):
            return f"<{type(self).__name__} unmade>"
        return (
            f"<{type(self).__name__} {self.partition}@{self.position!r} "
            f"attempt={self.attempt} bytes={self.size}>"
        )


COPIED = tuple(name for name in Message.__slots__ if name != "_body")
"""A handler may have changed the body: each delivery has its own."""


class Redelivery(Message):
    """A later delivery of a record: a copy with its own attempt number."""

    __slots__ = ("attempt", "details", "native", "ordering_key")

    @classmethod
    def of(cls, message: Message, attempt: int) -> Redelivery:
        """A copy of ``message`` that is delivery number ``attempt``."""
        copy = cls()
        for name in COPIED:
            if hasattr(message, name):
                setattr(copy, name, getattr(message, name))
        copy.attempt = attempt
        copy.ordering_key = message.ordering_key
        copy.details = message.details
        copy.native = message.native
        return copy


_HOLDER = attrgetter("holder")


class Batch(list[Message]):
    """Messages handed out together, in order within each partition."""

    __slots__ = ()

    def ack(self) -> int:
        """Acks every message; returns how many messages that settled."""
        if len(set(map(_HOLDER, self))) == 1:
            return self[0].holder.ack_all(self)
        return sum(holder.ack_all(list(part)) for holder, part in groupby(self, _HOLDER))

    def nack(self, delay: float | None = None, *, reason: str = "nacked") -> int:
        """Nacks every message that is not settled yet; returns how many messages it nacked."""
        return sum(message.nack(delay, reason=reason) for message in self)

    def reject(self, reason: str = "rejected") -> int:
        """Rejects every message that is not settled yet; returns how many messages it rejected."""
        return sum(message.reject(reason) for message in self)

    if not TYPE_CHECKING:  # to a type checker a batch has no such attributes

        def __getattr__(self, name: str) -> NoReturn:
            """A handler of single messages that is given batches would fail with each of them.

            Raises:
                NotAMessageError: a message has this attribute.
                AttributeError: nor has a message.
            """
            if not name.startswith("_") and hasattr(Message, name):
                raise NotAMessageError(name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class Unbound:
    """The holder of a message that no consumer tracks: settling it is an error."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise ConsumerClosedError(
            f"cannot settle this message ({name}): it does not come from a consumer that tracks it"
        )


UNBOUND = cast("Holder", Unbound())


KEY, VALUE = map(attrgetter, ("key", "value"))


def total_bytes(records: Sequence[Any]) -> int:
    """Of keys and values: as the sum of ``message.size``, at a tenth of the cost.

    Args:
        records: whatever has a ``key`` and a ``value``: messages, or a client's records.
    """
    cells = chain(map(KEY, records), map(VALUE, records))
    return sum(map(len, filter(None, cells)))
