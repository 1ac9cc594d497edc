"""Messages of what the client has received: the hot path.

Each object that the extension makes is expensive: an id costs as much as the rest of a record. So a
message keeps the client's message, and reads key, properties, times and id from it when they are
first used. Few handlers use all of these, and one id acks an entry that is settled as a whole.

The client's message holds the whole payload of its producer's batch. So trackers tell a message
that is unsettled after some thousand later records to `keep` what it needs and to release the
client's message. Large messages release it at once, and so do a few messages of a large batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Any

import _pulsar

from consumer_sdk.adapters.pulsar.client.ids import Place, batch_size, is_whole, place_of
from consumer_sdk.adapters.pulsar.client.texts import headers_of, key_of, ordering_key_of
from consumer_sdk.adapters.pulsar.consumer.entries import Entry
from consumer_sdk.adapters.pulsar.details import details_of
from consumer_sdk.records import Headers, Message

__all__ = [
    "Delivery",
    "NativeMessage",
    "Unpacker",
    "acked_by",
    "ascending",
    "cuts_of",
    "id_of",
]

LARGE = 1024
"""Bytes of a value, on average: above, ids cost little beside them, and held payloads much."""

LATER = ("key", "headers", "timestamp", "ordering_key")
"""What is read when it is wanted; so are the details."""

SHARE = 8
"""An entry of which less than this part came holds nothing of the client's."""

MANY = 128
"""Messages of an entry that are enough of it, however long it is."""

STRIDE = 128
"""Messages between two whose ids are looked at."""

# Unbound: looking a method up on each message costs half as much as calling it.
_id_of = _pulsar.Message.message_id
_key_of = _pulsar.Message.partition_key
_data_of = _pulsar.Message.data
_properties_of = _pulsar.Message.properties
_event_time_of = _pulsar.Message.event_timestamp
_publish_time_of = _pulsar.Message.publish_timestamp


class NativeMessage(Message):
    """A message that reads rarely used fields from the client's message.

    Attributes:
        raw: the client's message; None when it was released.
        handle: to ack it with: the entry that it is a part of. Of a message that is an entry, the
            client's id, once ``raw`` was let go, and None before.
    """

    __slots__ = ("details", "handle", "ordering_key", "raw")

    raw: Any
    handle: Any

    @property
    def native(self) -> Any:
        """The object with which this delivery is acked."""
        return self.handle if self.raw is None else self

    def keep(self) -> Any:
        """Releases the client's message.

        Returns:
            the native from now on.
        """
        raw = self.raw
        if raw is not None:
            self._read(raw)
            self.details = details_of(raw)
            if self.handle is None:
                self.handle = _id_of(raw)
            self.raw = None
        return self.handle

    def __getattr__(self, name: str) -> Any:
        """What is not set: read all of it at once, so that each is a plain attribute then."""
        if name not in LATER and name != "details":
            raise AttributeError(f"{type(self).__name__} has no {name!r} yet")
        raw = self.raw  # once: another thread may keep it meanwhile, and has read all of it then
        if raw is not None and name == "details":
            self.details = details_of(raw)
        elif raw is not None:
            self._read(raw)
        return object.__getattribute__(self, name)

    def _read(self, raw: Any) -> None:
        """Sets what nobody has set."""
        key, headers = _texts_of(raw)
        time = _event_time_of(raw) or _publish_time_of(raw)
        found = key, headers, time, ordering_key_of(raw)
        for name, value in zip(LATER, found, strict=True):
            try:
                object.__getattribute__(self, name)
            except AttributeError:
                setattr(self, name, value)


def id_of(native: Any) -> Any:
    """The client's id in the ``native`` of a message that is an entry."""
    found = acked_by(native)
    return _id_of(found) if type(found) is _pulsar.Message else found


def acked_by(native: Any) -> Any:
    """What the client acks for such a message: its own message, or the id of one let go."""
    if type(native) is not NativeMessage:
        return native
    raw = native.raw  # once: another thread may let it go
    return native.handle if raw is None else raw


def _texts_of(raw: Any) -> tuple[bytes | None, Headers]:
    try:
        key, properties = _key_of(raw), _properties_of(raw)
    except UnicodeDecodeError:
        return key_of(raw), headers_of(raw)
    headers = tuple((name, text.encode()) for name, text in properties.items())
    return key.encode() if key else None, headers


@dataclass(slots=True)
class Delivery:
    """Messages whose positions ascend, without an assignment.

    Attributes:
        size: bytes of all of them.
        positions, natives: of each.
    """

    messages: Sequence[Message]
    size: int
    positions: Sequence[Place]
    natives: Sequence[Any]

    def part(self, start: int, stop: int) -> Delivery:
        """Some of it; what lies before and behind takes the rest of its size."""
        count, size = len(self.messages), self.size
        return Delivery(
            self.messages[start:stop],
            size * stop // count - size * start // count,
            self.positions[start:stop],
            self.natives[start:stop],
        )


class Unpacker:
    """Makes messages of what one native consumer receives, in order."""

    def __init__(self) -> None:
        self._last: tuple[Entry, Place] | None = None

    def messages_of(self, first: Any, batch: list[Any]) -> list[Delivery]:
        """One delivery, unless a connection was lost meanwhile.

        Args:
            first: was received by itself.
            batch: was taken out of the client's queue at once, after it.
        """
        batch = [first, *batch]
        places, starts = _places_of(batch)
        cuts = cuts_of(places, starts)
        values = list(map(_data_of, batch))
        size = sum(map(len, values))
        entries, few = self._entries_of(batch, places, cuts)
        messages = [NativeMessage() for _ in batch]
        columns = zip(messages, batch, places, values, entries, strict=True)
        for message, raw, place, value, entry in columns:
            message.raw = raw
            message.position = place
            message.value = None if not value and raw.has_null_value() else value
            message.handle = entry
        if size > LARGE * len(batch):
            few = range(len(messages))
        for at in few:
            messages[at].keep()
        natives = [message.native for message in messages] if few else messages
        return ascending(Delivery(messages, size, places, natives), cuts)

    def _entries_of(
        self, batch: list[Any], places: list[Place], cuts: list[int]
    ) -> tuple[list[Entry | None], Sequence[int]]:
        """What each message is a part of, if it is one; which are of entries of which little came.

        Each of those would hold a whole batch's payload: an entry of which the most is settled
        comes again with what is left of it.
        """
        entries: list[Entry | None] = []
        few: list[int] = []
        for stop in (*cuts, len(places)):
            while (start := len(entries)) < stop:
                if is_whole(places[start]):
                    entries.append(None)
                    continue
                entry = self._entry_at(places[start], batch[start])
                end = bisect_left(places, (entry.ledger, entry.entry + 1), start + 1, stop)
                self._last = entry, places[end - 1]
                entries += [entry] * (end - start)
                if end - start < MANY and (end - start) * SHARE < entry.size:
                    few += range(start, end)
        return entries, few

    def _entry_at(self, place: Place, raw: Any) -> Entry:
        """The one that the last message was of, if it goes on.

        If a connection was lost in between, the broker has left out of the new delivery what it
        knows as acked, and so all of the entry before this message: both are one.
        """
        if self._last is not None:
            entry, last = self._last
            if last[:2] == place[:2] and last < place:
                return entry
        return Entry(place[0], place[1], batch_size(_id_of(raw)))


def cuts_of(places: Sequence[Place], starts: Iterable[int]) -> list[int]:
    """Where places do not ascend, which they do but for ``starts``."""
    return [at for at in starts if places[at] <= places[at - 1]]


def ascending(delivery: Delivery, cuts: Sequence[int]) -> list[Delivery]:
    """A delivery in parts whose positions ascend.

    Args:
        cuts: where they do not.
    """
    if not cuts:
        return [delivery]
    edges = (0, *cuts, len(delivery.messages))
    return [delivery.part(start, stop) for start, stop in pairwise(edges)]


def _places_of(batch: list[Any]) -> tuple[list[Place], list[int]]:
    """Where the messages are, by a look at few of them; and where they may not ascend.

    Messages of one entry lie side by side and ascend: if there are as many from one to another of
    them as there are indexes, none of these is missing. (Only a new connection begins an entry again,
    and is not there as long as a batch takes to leave the queue: the client waits for 0.1 s. The first
    was received before the others.)
    """
    places, starts = [place_of(_id_of(batch[0]))], list[int]()
    for start in range(1, len(batch), STRIDE):
        part = batch[start : start + STRIDE]
        first = place_of(_id_of(part[0]))
        starts.append(start)
        places.append(first)
        if len(part) > 1:
            last = place_of(_id_of(part[-1]))
            _add_between((places, starts), part, (0, first), (len(part) - 1, last))
    return places, starts


def _add_between(
    found: tuple[list[Place], list[int]],
    part: list[Any],
    lower: tuple[int, Place],
    upper: tuple[int, Place],
) -> None:
    """The places after the lower one, with the upper one."""
    places, starts = found
    (low, (ledger, entry, index)), (high, last) = lower, upper
    if last == (ledger, entry, index + high - low):
        places += zip(repeat(ledger), repeat(entry), range(index + 1, last[2] + 1))
    elif high == low + 1:
        starts.append(len(places))
        places.append(last)
    else:
        middle = (low + high) // 2
        between = middle, place_of(_id_of(part[middle]))
        _add_between(found, part, lower, between)
        _add_between(found, part, between, upper)
