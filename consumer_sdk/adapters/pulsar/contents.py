"""Messages of what the client has received: the hot path.

What costs most is each object that the extension makes: an id is as dear as all else of a record.
So a message keeps the client's own, and asks it for key, properties, times and the id when somebody
wants them: few look at all of these, and an entry that is settled whole is acked by one id. The
client's message holds the whole payload of its producer's batch, though. Those that stay for long
are told to `keep` what they need and to let it go: trackers do so with what is not settled once
some thousand records came later. Large messages never hold one, nor do a few of a large batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import _pulsar

from consumer_sdk.adapters.pulsar.ids import Place, is_whole, place_of
from consumer_sdk.adapters.pulsar.texts import headers_of, key_of
from consumer_sdk.records import Headers, Message

__all__ = [
    "Delivery",
    "NativeMessage",
    "acked_by",
    "ascending",
    "batch_size",
    "id_of",
    "messages_of",
]

Delivery = tuple[list[Message], int]
"""Messages whose positions ascend, without an assignment, and their size in bytes."""

LARGE = 1024
"""Bytes of a value, on average: above, ids cost little beside them, and held payloads much."""

LATER = ("key", "headers", "timestamp")
"""What is read when it is wanted."""

SHARE = 8
"""An entry of which less than this part came holds nothing of the client's."""

MANY = 128
"""Messages of an entry that are enough of it, however long it is."""

BATCH_SIZE = 6
"""The number of the batch's size in ``MessageIdData`` of ``PulsarApi.proto``."""

STRIDE = 32
"""Messages between two whose ids are looked at."""

# Unbound: looking a method up on each message costs half as much as calling it.
_id_of = _pulsar.Message.message_id
_key_of = _pulsar.Message.partition_key
_data_of = _pulsar.Message.data
_properties_of = _pulsar.Message.properties
_event_time_of = _pulsar.Message.event_timestamp
_publish_time_of = _pulsar.Message.publish_timestamp


class NativeMessage(Message):
    """A message that asks the client's for what is rarely wanted.

    Attributes:
        raw: the client's; None once it was let go.
        id: of this delivery, to ack it with; set when ``raw`` is None.
    """

    __slots__ = ("id", "raw")

    raw: Any
    id: Any

    @property
    def native(self) -> Any:
        """What acks this delivery, for `id_of`."""
        return self.id if self.raw is None else self

    def keep(self) -> Any:
        """Lets the client's message go.

        Returns:
            the native from now on.
        """
        raw = self.raw
        if raw is not None:
            self._read(raw)
            self.id = _id_of(raw)
            self.raw = None
        return self.id

    def __getattr__(self, name: str) -> Any:
        """What is not set: read all of it at once, so that each is a plain attribute then."""
        if name not in LATER:
            raise AttributeError(f"{type(self).__name__} has no {name!r} yet")
        raw = self.raw  # once: another thread may keep it meanwhile, and has read all of it then
        if raw is not None:
            self._read(raw)
        return object.__getattribute__(self, name)

    def _read(self, raw: Any) -> None:
        """Sets what nobody has set."""
        key, headers = _texts_of(raw)
        found = key, headers, _event_time_of(raw) or _publish_time_of(raw)
        for name, value in zip(LATER, found, strict=True):
            try:
                object.__getattribute__(self, name)
            except AttributeError:
                setattr(self, name, value)


def id_of(native: Any) -> Any:
    """The client's id in a message's ``native``."""
    found = acked_by(native)
    return _id_of(found) if type(found) is _pulsar.Message else found


def acked_by(native: Any) -> Any:
    """What the client acks for a message's ``native``: its own message, or the id of one let go."""
    if type(native) is not NativeMessage:
        return native
    raw = native.raw  # once: another thread may let it go
    return native.id if raw is None else raw


def _texts_of(raw: Any) -> tuple[bytes | None, Headers]:
    try:
        key, properties = _key_of(raw), _properties_of(raw)
    except UnicodeDecodeError:
        return key_of(raw), headers_of(raw)
    headers = tuple((name, text.encode()) for name, text in properties.items())
    return key.encode() if key else None, headers


def messages_of(first: Any, batch: list[Any]) -> list[Delivery]:
    """Messages of what was received, in order: one delivery, unless a connection was lost meanwhile.

    Args:
        first: was received by itself.
        batch: was taken out of the client's queue at once, after it.
    """
    batch = [first, *batch]
    places, starts = _places_of(batch)
    values = list(map(_data_of, batch))
    size = sum(map(len, values))
    messages: list[NativeMessage] = []
    for raw, value, place in zip(batch, values, places, strict=True):
        message = NativeMessage()
        message.raw = raw
        message.position = place
        message.value = None if not value and raw.has_null_value() else value
        messages.append(message)
    alone = messages if size > LARGE * len(batch) else _scattered(messages)
    for message in alone:
        message.keep()
    return ascending(messages, size, starts)  # type: ignore[arg-type]  # nobody else has this list


def ascending(messages: list[Message], size: int, starts: Iterable[int]) -> list[Delivery]:
    """Messages in parts whose positions ascend.

    Args:
        starts: where they may not.
    """
    cuts = [at for at in starts if messages[at].position <= messages[at - 1].position]
    if not cuts:
        return [(messages, size)]
    return [
        (messages[start:stop], size * (stop - start) // len(messages))
        for start, stop in pairwise((0, *cuts, len(messages)))
    ]


def _scattered(messages: list[NativeMessage]) -> list[NativeMessage]:
    """Those of entries of which little came, each of which would hold a whole batch's payload.

    An entry of which the most is settled comes again with what is left of it.
    """
    few: list[NativeMessage] = []
    start = 0
    while start < len(messages):
        stop = _end_of(messages, start)
        if stop - start < MANY and _is_little(messages[start], stop - start):
            few += messages[start:stop]
        start = stop
    return few


def _end_of(messages: list[NativeMessage], start: int) -> int:
    """Where the next entry begins, by a look at few of a long one's."""
    entry, stop = _entry_of(messages[start]), start + 1
    for step in (STRIDE, 1):
        while stop + step <= len(messages) and _entry_of(messages[stop + step - 1]) == entry:
            stop += step
    return stop


def _entry_of(message: NativeMessage) -> tuple[int, int]:
    place: Place = message.position
    return place[:2]


def _is_little(first: NativeMessage, count: int) -> bool:
    """They would hold more than some times what they need."""
    return not is_whole(first.position) and count * SHARE < batch_size(_id_of(first.raw))


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
        places += [(ledger, entry, at) for at in range(index + 1, last[2] + 1)]
    elif high == low + 1:
        starts.append(len(places))
        places.append(last)
    else:
        middle = (low + high) // 2
        between = middle, place_of(_id_of(part[middle]))
        _add_between(found, part, lower, between)
        _add_between(found, part, between, upper)


def batch_size(message_id: Any) -> int:
    """How many messages the producer's batch had; 0 for a message that was sent by itself."""
    data = message_id.serialize()
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7:  # not a number: the first id of a message in chunks, which is in no batch
            return 0
        value, at = _varint(data, at)
        if tag >> 3 == BATCH_SIZE:
            return value
    return 0


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of Protocol Buffers, and where it ends."""
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | data[at] << shift, at + 1
