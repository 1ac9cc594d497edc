"""A subscription of the in-memory broker: a cursor for each partition, all of one kind.

A cursor knows what the subscription has settled of its partition, and which consumer has the rest.
It follows Pulsar's managed cursor and its dispatchers. An *entry* (one record, or a producer's
batch) is pushed to one connected consumer, and stays pending there until all of its records are
acked by the handles of that delivery. When the connection ends, everything pending goes out
again, lowest first, to whoever is connected then. So an entry is settled if it lies below
``next`` and is neither pending nor waiting to go out again.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal, NamedTuple

from consumer_sdk.records import Partition
from consumer_sdk.testing.memory.log import Entry, PartitionLog, StoredRecord

__all__ = ["Connection", "Cursor", "CursorKind", "Sent", "Subscription"]

CursorKind = Literal["failover", "shared", "key_shared"]
"""Who gets an entry: the one that is connected; each in its turn; who has others of its key."""


class Delivery:
    """One entry on its way: with whom it is, and which of its records are not acked yet."""

    __slots__ = ("connection", "entry", "key", "left")

    def __init__(self, connection: Connection, entry: Entry, left: set[int]) -> None:
        self.connection = connection
        self.entry = entry.first
        self.key = entry.records[0].key
        self.left = left


class Handle(NamedTuple):
    """What acks one record of one delivery; worth nothing when that delivery is over."""

    delivery: Delivery
    position: int


class Sent(NamedTuple):
    """A record that waits in a connection."""

    position: int
    record: StoredRecord
    handle: Handle


class Connection:
    """A consumer, as the broker sees it.

    Args:
        on_news: called when records have come.
        prefetch: no more is sent while so many wait here.
    """

    def __init__(self, on_news: Callable[[], None], prefetch: int) -> None:
        self.on_news = on_news
        self.waiting: deque[Sent] = deque()
        self._prefetch = prefetch

    @property
    def has_room(self) -> bool:
        """It may be sent another entry."""
        return len(self.waiting) < self._prefetch


class Cursor:
    """One subscription's place in one partition.

    Args:
        keeps_indexes: acks of a part of an entry outlive the connection (Pulsar's batch index
            acks); if not, the whole entry goes out again.
        acked: called with each position that is acked.

    Attributes:
        is_new: nobody has connected yet, or has said where to begin.
    """

    def __init__(
        self,
        log: PartitionLog,
        kind: CursorKind,
        *,
        keeps_indexes: bool,
        acked: Callable[[int], None],
    ) -> None:
        self.is_new = True
        self._log = log
        self._kind = kind
        self._keeps_indexes = keeps_indexes
        self._acked = acked
        self._connections: list[Connection] = []
        log.listeners.append(self.dispatch)
        self._forget_all(log.start)

    def _forget_all(self, position: int) -> None:
        self._next = self._log.place(position)[0]
        self._pending: dict[int, Delivery] = {}
        self._again: list[int] = []
        self._left: dict[int, set[int]] = {}  # partly acked entries that go out again
        self._of_key: dict[bytes, set[int]] = {}

    # -- consumers ----------------------------------------------------------------------

    def connect(self, connection: Connection) -> None:
        """Sends to it from now on; the one before it ends where there can be but one."""
        self.is_new = False
        if self._kind == "failover":
            for old in list(self._connections):
                self.disconnect(old)
        self._connections.append(connection)
        self.dispatch()

    def disconnect(self, connection: Connection) -> None:
        """Everything that it has not acked goes out again; idempotent."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        connection.waiting.clear()
        for delivery in [d for d in self._pending.values() if d.connection is connection]:
            self._take_back(delivery)
            insort(self._again, delivery.entry)
            if self._keeps_indexes:
                self._left[delivery.entry] = delivery.left
        self.dispatch()

    def seek(self, position: int) -> None:
        """Everything from ``position`` on goes out again; what is below counts as settled."""
        self.is_new = False
        for connection in self._connections:
            connection.waiting.clear()
        self._forget_all(position)
        entry = self._log.entry_at(self._next)
        if entry is not None and entry.first < position:
            self._left[entry.first] = {at for at in entry.positions if at >= position}
        self.dispatch()

    # -- deliveries ---------------------------------------------------------------------

    def dispatch(self) -> None:
        """Shares out what there is, as long as somebody has room."""
        while self._connections and (entry := self._peek()) is not None:
            connection = self._choose(entry)
            if connection is None:
                return
            if self._again:
                self._again.pop(0)
            else:
                self._next = entry.positions[-1] + 1
            self._send(entry, connection)

    def _peek(self) -> Entry | None:
        while self._again:
            entry = self._log.entry_at(self._again[0])
            if entry is not None and entry.first == self._again[0]:
                return entry
            del self._again[0]  # retention has taken it
        return self._log.entry_at(self._next)

    def _choose(self, entry: Entry) -> Connection | None:
        """Who has an unacked entry of the same key, else whose turn it is; None: no room there."""
        same_key = self._of_key.get(entry.records[0].key or b"")
        if same_key:
            owner = self._pending[next(iter(same_key))].connection
            return owner if owner.has_room else None
        chosen = next((each for each in self._connections if each.has_room), None)
        if chosen is not None:
            self._connections.remove(chosen)
            self._connections.append(chosen)
        return chosen

    def _send(self, entry: Entry, connection: Connection) -> None:
        left = self._left.pop(entry.first, None) or set(entry.positions)
        delivery = Delivery(connection, entry, left)
        self._pending[entry.first] = delivery
        if self._kind == "key_shared" and delivery.key:
            self._of_key.setdefault(delivery.key, set()).add(entry.first)
        connection.waiting += [
            Sent(position, record, Handle(delivery, position))
            for position, record in zip(entry.positions, entry.records, strict=True)
            if position in left
        ]
        connection.on_news()

    def _take_back(self, delivery: Delivery) -> None:
        del self._pending[delivery.entry]
        same_key = self._of_key.get(delivery.key or b"")
        if same_key is not None:
            same_key.discard(delivery.entry)
            if not same_key:
                del self._of_key[delivery.key or b""]

    def take(self, connection: Connection, max_records: int, max_bytes: int) -> list[Sent]:
        """What waits in a connection, within limits; at least one record if there is any."""
        taken: list[Sent] = []
        while connection.waiting and len(taken) < max_records and (max_bytes > 0 or not taken):
            sent = connection.waiting.popleft()
            if sent.position in self._log.withheld:
                continue
            taken.append(sent)
            max_bytes -= taken[-1].record.size
        self.dispatch()
        return taken

    def ack(self, handles: Iterable[Handle]) -> None:
        """Settles records; a handle of a delivery that is over changes nothing."""
        for delivery, position in handles:
            if self._pending.get(delivery.entry) is delivery and position in delivery.left:
                delivery.left.discard(position)
                self._acked(position)
                if not delivery.left:
                    self._take_back(delivery)
        self.dispatch()

    # -- looking ------------------------------------------------------------------------

    @property
    def lowest(self) -> int:
        """Where the first entry begins that may not be settled."""
        return max(min([self._next, *self._pending, *self._again[:1]]), self._log.start)

    def is_settled(self, position: int) -> bool:
        """It does not go out again, whatever becomes of the connections."""
        entry = self._log.place(position)[0]
        if entry in self._pending:
            return self._keeps_indexes and position not in self._pending[entry].left
        if entry in self._again:
            return entry in self._left and position not in self._left[entry]
        return entry < self._next

    def lag(self, connection: Connection) -> int:
        """Records that wait in the connection, or are with nobody yet; of a queue, all that are not settled."""
        if self._kind != "failover":
            return self.backlog
        again = sum(len(self._records_of(entry)) for entry in self._again)
        return len(connection.waiting) + again + self._log.count_from(self._next)

    @property
    def backlog(self) -> int:
        """Records that are not settled."""
        unsettled = [*self._pending, *self._again]
        records = sum(not self.is_settled(at) for e in unsettled for at in self._records_of(e))
        return records + self._log.count_from(self._next)

    def _records_of(self, name: int) -> list[int]:
        entry = self._log.entry_at(name)
        return entry.positions if entry is not None and entry.first == name else []


class Subscription:
    """What a group has settled, record by record.

    Args:
        kind: who gets a record.
        keeps_indexes: see `Cursor`.

    Attributes:
        watchers: called with the partition and position of each ack that is applied.
    """

    def __init__(self, kind: CursorKind, keeps_indexes: bool) -> None:  # noqa: FBT001 - one call
        self.kind = kind
        self.keeps_indexes = keeps_indexes
        self.watchers: list[Callable[[Partition, int], None]] = []
        self._cursors: dict[Partition, Cursor] = {}

    def cursor(self, partition: Partition, log: PartitionLog) -> Cursor:
        """The place in a partition, from its earliest record if it is new."""
        if partition not in self._cursors:
            self._cursors[partition] = Cursor(
                log,
                self.kind,
                keeps_indexes=self.keeps_indexes,
                acked=partial(self._acked, partition),
            )
        return self._cursors[partition]

    def _acked(self, partition: Partition, position: int) -> None:
        for watcher in self.watchers:
            watcher(partition, position)

    def is_settled(self, partition: Partition, position: int) -> bool:
        """The record is not sent again."""
        cursor = self._cursors.get(partition)
        return cursor is not None and cursor.is_settled(position)

    def backlog(self, stream: str) -> int:
        """Records of a stream that are not settled, in partitions that were ever read."""
        return sum(c.backlog for p, c in self._cursors.items() if p.stream == stream)

    def forget_stream(self, stream: str) -> None:
        """The stream was deleted."""
        self._cursors = {p: c for p, c in self._cursors.items() if p.stream != stream}
