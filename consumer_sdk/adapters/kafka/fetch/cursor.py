"""The position of one grant of a partition, and its fetched bytes before they are decoded. Pure.

A cursor has two ends: `Cursor.position` is the first offset that was not handed out, and the next offset to fetch lies
after the buffered bytes. The headers of the batches tell the latter, so the next request leaves before the last answer
is decoded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from aiokafka import TopicPartition

from consumer_sdk.adapters.kafka.client.cluster_metadata import NO_EPOCH
from consumer_sdk.adapters.kafka.decoding.record_batches import (
    ATTRIBUTES_AT,
    BEFORE_LENGTH,
    CODEC,
    FORMAT_OF_BATCHES,
    LAST_DELTA,
    LAST_DELTA_AT,
    OLD_ATTRIBUTES_AT,
    START,
    TRANSACTIONAL,
    Doubt,
)
from consumer_sdk.adapters.kafka.decoding.unpacking import AHEAD
from consumer_sdk.adapters.kafka.fetch.session import Ask

__all__ = ["NO_POSITION", "Chunk", "Cursor", "Fault", "Reach", "reach_of"]

LEAST_BATCH, LEAST_MESSAGE = 49, 14
"""Bytes behind the length: of an empty batch, and of a message of the oldest format."""
NO_POSITION = -1
OVERHEAD = 512
"""Bytes that a chunk takes besides its batches."""


class Reach(NamedTuple):
    """How far complete batches go, by their heads, which no checksum has been compared with yet.

    Attributes:
        end: the offset behind the last one.
        epoch: of the leader that wrote it; -1 for old formats.
        is_compressed: one of them is.
        is_transactional: one of them is.
    """

    end: int
    epoch: int
    is_compressed: bool
    is_transactional: bool = False


def reach_of(data: bytes) -> Reach | None:
    """Walks the heads; None where there is no complete batch."""
    at, size, last, codecs = 0, len(data), -1, 0
    unpack = START.unpack_from
    while at + START.size <= size:
        _first, length, _epoch, magic = unpack(data, at)
        is_old = magic < FORMAT_OF_BATCHES
        end = at + BEFORE_LENGTH + length
        if length < (LEAST_MESSAGE if is_old else LEAST_BATCH) or end > size:
            break
        codecs |= data[at + (OLD_ATTRIBUTES_AT if is_old else ATTRIBUTES_AT)]
        last, at = at, end
    if last < 0:
        return None
    first, _length, epoch, magic = unpack(data, last)
    if magic < FORMAT_OF_BATCHES:
        return Reach(first + 1, NO_EPOCH, bool(codecs & CODEC))
    (delta,) = LAST_DELTA.unpack_from(data, last + LAST_DELTA_AT)
    return Reach(first + delta + 1, epoch, bool(codecs & CODEC), bool(codecs & TRANSACTIONAL))


class Fault(NamedTuple):
    """Nothing more comes of a partition before this was dealt with."""

    error: Exception


class Chunk:
    """Record batches of one partition from one answer.

    Attributes:
        position: the offset that was asked for.
        end: the offset behind it.
        epoch: of its last batch.
        size: bytes that it takes.
        aborted: producer and first offset of each aborted transaction in it.
        highwater: the partition's high watermark, as the answer says.
        continues: the position is where a batch has ended.
        is_sure: what comes behind it may be asked for before it was read.
        unpacker: reads it; None before it is first looked at.
    """

    __slots__ = (
        "aborted",
        "continues",
        "data",
        "end",
        "epoch",
        "highwater",
        "is_compressed",
        "is_sure",
        "position",
        "size",
        "unpacker",
    )

    def __init__(
        self,
        data: bytes,
        position: int,
        reach: Reach,
        *,
        aborted: Sequence[tuple[int, int]] = (),
        highwater: int = -1,
        continues: bool = False,
    ) -> None:
        self.data = data
        self.position = position
        self.end, self.epoch, self.is_compressed, _ = reach
        self.size = len(data) + OVERHEAD
        self.aborted = aborted
        self.highwater = highwater
        self.continues = continues
        # A bit in a head: the next request would ask for what there is not, or leave a gap.
        self.is_sure = position < self.end <= highwater + AHEAD
        self.unpacker: Any = None

    def left(self, position: int) -> int:
        """Bytes that are left of it, about, when it was read up to a position."""
        span = self.end - self.position
        if span <= 0:
            return self.size
        return self.size * min(max(self.end - position, 0), span) // span


class Cursor:
    """Where one grant of a partition stands, and what was fetched for it.

    Args:
        topic_id: 16 bytes; records of a topic with another id are not fetched. None: by name.

    Attributes:
        position: the first offset that was not handed out; -1 before `seek`.
        last_epoch: of the record before it, or of one soon after; -1 where it is not known.
        paused: nothing is asked; what was fetched is kept.
        highwater, last_stable, log_start: as the last answer says; None before one.
        queue: what was fetched, and perhaps what is wrong behind it.
        held: bytes that it takes.
        node: whom it was to be fetched from at the last look.
        missing: an offset that its leader has said, once, not to store; -1 for none.
        has_lost_past: its leader has said that it does not have what was read, or the position; a fault tells of it.
        past_end: where the leader's log is another than what was read, if it has said that too; else -1.
        doubted: the last offset of which an answer may not name all that was aborted, and what it leaves in doubt; -1 for none.
        changed: called when it may have to be asked for.
        aside_at: when it may be asked for aside again.
    """

    __slots__ = (
        "_ask",
        "_read_to",
        "aside_at",
        "changed",
        "doubted",
        "failed_leader",
        "has_lost_past",
        "held",
        "highwater",
        "is_closed",
        "is_idle",
        "is_noted",
        "last_epoch",
        "last_stable",
        "log_start",
        "missing",
        "node",
        "past_end",
        "paused",
        "position",
        "queue",
        "replica",
        "rests_until",
        "topic_id",
        "tp",
    )

    def __init__(self, tp: TopicPartition, topic_id: bytes | None = None) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.position = NO_POSITION
        self.last_epoch = NO_EPOCH
        self.paused = True
        self.highwater: int | None = None
        self.last_stable: int | None = None
        self.log_start: int | None = None
        self.queue: deque[Chunk | Fault] = deque()
        self.changed: Callable[[], None] = _nobody
        self.is_closed = False
        self.is_idle = False
        self.is_noted = False
        self.missing = NO_POSITION
        self.has_lost_past = False
        self.past_end = NO_POSITION
        self.doubted: tuple[int, Doubt] = (NO_POSITION, frozenset())
        self.node: int | None = None
        self.replica: tuple[int, float] | None = None
        self.rests_until = 0.0
        self.failed_leader: tuple[int, int] | None = None
        self.aside_at = 0.0
        self._ask: Ask | None = None
        self._read_to = NO_POSITION
        self.held = 0

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "paused" if self.paused else "open"
        name = f"{self.tp.topic}[{self.tp.partition}]"
        return f"<Cursor {name} at {self.position}, {state}, {len(self.queue)} buffered>"

    # -- for whoever holds the grant ------------------------------------------------------------

    def pause(self) -> None:
        """Nothing is asked any more; what was fetched, or is on its way, is kept."""
        self.paused = True

    def resume(self) -> None:
        """Undoes `pause`."""
        self.paused = False
        self.aside_at = 0.0
        self.changed()

    def seek(self, position: int) -> None:
        """Goes on at an offset; what was fetched is forgotten, also what is on its way."""
        self.position = position
        self.last_epoch = NO_EPOCH
        self.rewind()

    def rewind(self) -> None:
        """Forgets what was fetched, and fetches it again."""
        self._clear()
        self.is_idle = False
        self.aside_at = 0.0
        self.changed()

    def consumed_to(self, position: int) -> None:
        """Everything before an offset was handed out, or is not wanted."""
        self.position = position
        front = self.front
        if isinstance(front, Chunk):
            self.last_epoch = max(front.epoch, self.last_epoch)

    def close(self) -> None:
        """The grant is over: it keeps nothing, and no answer counts."""
        self.is_closed = self.paused = True
        self.changed = _nobody
        self._clear()

    def _clear(self) -> None:
        self.queue.clear()
        self._ask = None
        self.held = 0

    # -- what was fetched -----------------------------------------------------------------------

    @property
    def front(self) -> Chunk | Fault | None:
        """What comes next."""
        return self.queue[0] if self.queue else None

    def advance(self) -> None:
        """What came next was dealt with."""
        done = self.queue.popleft()
        if isinstance(done, Chunk):
            self.held -= done.size
            if done.end == self.position > done.position:
                self._read_to = self.position

    def continues_at(self, offset: int) -> bool:
        """A batch has ended there, of those that were read, or are buffered."""
        last = self.queue[-1] if self.queue else None
        return self._read_to == offset or (isinstance(last, Chunk) and last.end == offset)

    def put(self, item: Chunk | Fault) -> None:
        """Appends what was fetched."""
        self.queue.append(item)
        if isinstance(item, Chunk):
            self.held += item.size

    @property
    def buffered(self) -> int:
        """Bytes, about, that are fetched and not handed out."""
        front = self.front
        if not isinstance(front, Chunk):
            return self.held
        return self.held - front.size + front.left(self.position)

    # -- what is asked --------------------------------------------------------------------------

    @property
    def is_asked(self) -> bool:
        """A request for it is under way, and its answer counts."""
        return self._ask is not None

    def wants(self, enough: int) -> bool:
        """Less than enough bytes are buffered, and what is behind them can be asked for."""
        if not self.queue:
            return True
        last = self.queue[-1]
        if not isinstance(last, Chunk) or not last.is_sure:
            return False
        return self.held < enough or self.buffered < enough

    def ask(self, leader_epoch: int, max_bytes: int) -> Ask:
        """What is asked next. The answer is to be told by `answered`."""
        offset, epoch = self.position, self.last_epoch
        if self.queue and isinstance(last := self.queue[-1], Chunk):
            offset, epoch = last.end, max(last.epoch, epoch)
        self._ask = Ask(self.topic_id, leader_epoch, offset, epoch, max_bytes)
        return self._ask

    def disregard(self) -> None:
        """The answer that is on its way is not to count."""
        self._ask = None

    def answered(self, ask: Ask) -> bool:
        """Whether the answer to it counts; only the first one does."""
        if self._ask is not ask:
            return False
        self._ask = None
        return True


def _nobody() -> None:
    pass
