"""A broker in memory: streams of partitions, groups and subscriptions, and the faults of real brokers."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from weakref import WeakValueDictionary

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Headers, Partition
from consumer_sdk.testing.memory.dead_letters import MemoryDeadLetters
from consumer_sdk.testing.memory.group import Group
from consumer_sdk.testing.memory.log import PartitionLog, StoredRecord
from consumer_sdk.testing.memory.subscription import CursorKind, Subscription

__all__ = ["MemoryBroker"]


class Stream:
    """A named set of partitions; ``identity`` tells it from one of the same name made later."""

    def __init__(self, name: str, partitions: int, identity: str) -> None:
        self.name = name
        self.identity = identity
        self.logs = [PartitionLog() for _ in range(partitions)]
        self._next_unkeyed = 0

    def partitions(self) -> list[Partition]:
        """What a consumer can hold."""
        return [Partition(self.name, str(number)) for number in range(len(self.logs))]

    def choose(self, key: bytes | None) -> int:
        """The number of a record's partition; records without a key take turns."""
        if key is None:
            self._next_unkeyed += 1
            return (self._next_unkeyed - 1) % len(self.logs)
        return zlib.crc32(key) % len(self.logs)


NewRecord = bytes | None | tuple[bytes | None, bytes | None]
"""What `MemoryBroker.append_all` takes: a value, or a key and a value."""


class MemoryBroker:
    """Streams, groups and records in memory, for unit tests and development.

    It keeps what real brokers do to a consumer: eager rebalances with generations, sessions
    that expire, fenced commits, gaps, retention, deleted streams. Time is the running loop's,
    so that it works on a `consumer_sdk.testing.simulation.SimulationLoop`.

    Args:
        name: makes ``memory://name/stream`` find it while it lives; the newest of a name wins.
        session_timeout: seconds until a member that fell silent is put out of its group.
        rebalance_timeout: seconds that members have to give up their partitions and join again.
        wall: seconds since the epoch, for records without a timestamp.

    Attributes:
        dead_letters: where its consumers' records go that are given up, unless they say otherwise.

    Concurrency: to be used from one thread.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        session_timeout: float = 10.0,
        rebalance_timeout: float = 10.0,
        wall: Callable[[], float] = time.time,
    ) -> None:
        if session_timeout <= 0 or rebalance_timeout <= 0:
            raise ConfigurationError("MemoryBroker: session_timeout and rebalance_timeout are > 0")
        self.name = name
        self.dead_letters = MemoryDeadLetters()
        self._session_timeout = session_timeout
        self._rebalance_timeout = rebalance_timeout
        self._wall = wall
        self._streams: dict[str, Stream] = {}
        self._groups: dict[str, Group] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._identities = count(1)
        self._members = count(1)
        self._epochs = count(1)
        if name is not None:
            _BROKERS[name] = self

    @staticmethod
    def named(name: str) -> MemoryBroker:
        """The living broker of that name.

        Raises:
            ConfigurationError: there is none.
        """
        broker = _BROKERS.get(name)
        if broker is None:
            raise ConfigurationError(
                f"no in-memory broker is named {name!r} in this process (there are "
                f"{sorted(_BROKERS)}); make one with MemoryBroker({name!r}) and keep it alive"
            )
        return broker

    # Streams ---------------------------------------------------------------------------

    def create_stream(self, name: str, partitions: int = 1) -> None:
        """Makes an empty stream; members of groups that wait for it get their share.

        Raises:
            ConfigurationError: it exists, or ``partitions`` is below 1.
        """
        if name in self._streams or partitions < 1:
            raise ConfigurationError(
                f"create_stream({name!r}, {partitions}): give a new name and 1 or more partitions"
            )
        identity = f"{name}#{next(self._identities)}"
        self._streams[name] = Stream(name, partitions, identity)
        self._rebalance(name)

    def delete_stream(self, name: str) -> None:
        """Deletes a stream, its records and what groups have committed for it."""
        del self._streams[self.stream(name).name]
        for group in self._groups.values():
            group.forget_stream(name)
        for subscription in self._subscriptions.values():
            subscription.forget_stream(name)
        self._rebalance(name)

    def add_partitions(self, name: str, total: int) -> None:
        """Grows a stream to ``total`` partitions; keys may move, as they do in Kafka."""
        stream = self.stream(name)
        stream.logs += [PartitionLog() for _ in range(total - len(stream.logs))]
        self._rebalance(name)

    def stream(self, name: str) -> Stream:
        """The stream of that name.

        Raises:
            ConfigurationError: there is none.
        """
        if name not in self._streams:
            raise ConfigurationError(
                f"the in-memory broker has no stream {name!r}, only {sorted(self._streams)}; "
                f"make it with create_stream({name!r})"
            )
        return self._streams[name]

    def partitions(self, name: str) -> Sequence[Partition]:
        """The partitions of a stream; none if there is no such stream."""
        stream = self._streams.get(name)
        return stream.partitions() if stream else ()

    def log(self, partition: Partition) -> PartitionLog | None:
        """The partition's records, or None when it does not exist (any more)."""
        stream = self._streams.get(partition.stream)
        number = int(partition.id)
        return stream.logs[number] if stream and number < len(stream.logs) else None

    def identity(self, partition: Partition) -> str | None:
        """Tells a stream from one of the same name that was made later."""
        stream = self._streams.get(partition.stream)
        return stream.identity if stream else None

    # Records ---------------------------------------------------------------------------

    def append(
        self,
        stream: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> tuple[Partition, int]:
        """Stores one record; returns where.

        Args:
            timestamp: milliseconds since the epoch; now, if None.
            partition: by the key if None; records without a key take turns.
        """
        target = self.stream(stream)
        number = target.choose(key) if partition is None else partition
        stamp = int(self._wall() * 1000) if timestamp is None else timestamp
        positions = target.logs[number].append([StoredRecord(key, value, headers, stamp)])
        return Partition(stream, str(number)), positions[0]

    def append_all(
        self, stream: str, records: Iterable[NewRecord], *, partition: int | None = None
    ) -> None:
        """Stores many records, each a value or ``(key, value)``; readers are woken once."""
        target = self.stream(stream)
        stamp = int(self._wall() * 1000)
        batches: dict[int, list[StoredRecord]] = {}
        for record in records:
            key, value = record if isinstance(record, tuple) else (None, record)
            number = target.choose(key) if partition is None else partition
            batches.setdefault(number, []).append(StoredRecord(key, value, (), stamp))
        for number, batch in batches.items():
            target.logs[number].append(batch)

    def append_entry(
        self, stream: str, records: Iterable[NewRecord], *, partition: int = 0
    ) -> list[int]:
        """Stores records as one entry, as a Pulsar producer's batch; returns their positions.

        To a group they are records like all others. A subscription sends them together, and
        again together, with positions ``(entry, 0)``, ``(entry, 1)`` and so on.
        """
        stamp = int(self._wall() * 1000)
        pairs = (each if isinstance(each, tuple) else (None, each) for each in records)
        stored = [StoredRecord(key, value, (), stamp) for key, value in pairs]
        return list(self.stream(stream).logs[partition].append(stored, is_entry=True))

    def damage(self, stream: str, partition: int, positions: Iterable[int]) -> None:
        """Makes records unreadable, as bits do that flip on a disk."""
        self.stream(stream).logs[partition].unreadable.update(positions)

    def withhold(self, stream: str, partition: int, positions: Iterable[int]) -> None:
        """Only these are withheld from now on: subscriptions get them once they reconnect later."""
        self.stream(stream).logs[partition].withheld = set(positions)

    def skip(self, stream: str, partition: int, positions: int = 1) -> None:
        """Leaves positions without a record, as transaction markers do."""
        self.stream(stream).logs[partition].skip(positions)

    def compact(self, stream: str, partition: int, positions: Iterable[int]) -> None:
        """Removes single records and leaves gaps."""
        self.stream(stream).logs[partition].remove(positions)

    def truncate(self, stream: str, partition: int, before: int) -> None:
        """Removes all records below a position, as retention does."""
        self.stream(stream).logs[partition].truncate(before)

    def stored(self, stream: str) -> Mapping[Partition, Mapping[int, StoredRecord]]:
        """What a stream holds now, by partition and position."""
        return {
            partition: self.stream(stream).logs[int(partition.id)].stored()
            for partition in self.partitions(stream)
        }

    # Groups ----------------------------------------------------------------------------

    def group(self, name: str) -> Group:
        """The group of that name; made when it is first asked for."""
        if name not in self._groups:
            self._groups[name] = Group(
                name,
                self.partitions,
                session_timeout=self._session_timeout,
                rebalance_timeout=self._rebalance_timeout,
            )
        return self._groups[name]

    def committed(self, group: str, stream: str) -> Mapping[Partition, int]:
        """The group's committed positions (the next one to read), where it has any."""
        committed = self.group(group).committed
        return {p: c.position for p, c in committed.items() if p.stream == stream}

    def reset(self, group: str, partition: Partition, position: int) -> None:
        """Sets a group's position, as an operator's tool or another client does.

        Raises:
            ConfigurationError: the group has members; like Kafka's tools it waits for none.
        """
        self.group(group).reset(partition, position)

    def subscribe(
        self, name: str, kind: CursorKind, *, keeps_indexes: bool = False
    ) -> Subscription:
        """The subscription of that name; made when it is first asked for.

        Raises:
            ConfigurationError: it is there, and of another kind.
        """
        found = self._subscriptions.setdefault(name, Subscription(kind, keeps_indexes))
        if (found.kind, found.keeps_indexes) != (kind, keeps_indexes):
            raise ConfigurationError(
                f"the subscription {name!r} is of kind {found.kind!r} with "
                f"batch_index_acks={found.keeps_indexes}; join it as such, or choose another name"
            )
        return found

    def backlog(self, subscription: str, stream: str) -> int:
        """Records of a stream that a subscription has not settled.

        Raises:
            KeyError: nobody has ever subscribed under that name.
        """
        return self._subscriptions[subscription].backlog(stream)

    def next_member_id(self) -> str:
        """Grows with every member, so that the order in a group is that of joining."""
        return f"member-{next(self._members):06}"

    def next_epoch(self) -> int:
        """Grows with every grant."""
        return next(self._epochs)

    def _rebalance(self, stream: str) -> None:
        for group in self._groups.values():
            if any(stream in member.streams for member in group.members.values()):
                group.rebalance()


_BROKERS: WeakValueDictionary[str, MemoryBroker] = WeakValueDictionary()
