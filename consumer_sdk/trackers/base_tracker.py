"""What both kinds of tracker share: deliveries, their failures, retries and timeouts.

Rules:
 1. Nothing is settled twice; a late, duplicate or unknown call changes nothing and is counted.
 2. An attempt's number guards its failure: a late nack never hits a newer delivery. An ack needs
    no guard: also the late ack of a delivery that had timed out settles its record.
 3. A record at its retry limit is stored with one failure less until its dead letter is durable:
    the error dies with the process, and the next one must see it fail again.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any

from consumer_sdk.errors import ConfigurationError, ConsumerClosedError
from consumer_sdk.options import SECONDS_OR_0, check_options
from consumer_sdk.records import (
    Assignment,
    Checkpoint,
    Due,
    Explanation,
    Message,
    Position,
    Verdict,
    VerdictKind,
)
from consumer_sdk.records.runs import TrackedLists
from consumer_sdk.trackers.chunks import (
    BITS,
    DEAD,
    DONE,
    FREE,
    MARKED,
    OPEN,
    RETRY,
    SETTLE,
    SIDE_ENTRY,
    STATES,
    Chunk,
)
from consumer_sdk.trackers.flush_state import FlushState
from consumer_sdk.trackers.options import DELAY, TYPES, check_moment
from consumer_sdk.trackers.restored import Restored, written_at
from consumer_sdk.trackers.retry import RetryPolicy
from consumer_sdk.trackers.schedule import Schedule
from consumer_sdk.trackers.unflushed import Unflushed
from consumer_sdk.trackers.window import Window, is_consecutive

__all__ = ["BaseTracker"]

DELIVERED = (OPEN, MARKED)
SETTLEABLE = (OPEN, MARKED, RETRY)
_INDEX = itemgetter(0)
IGNORED = Verdict(VerdictKind.IGNORED)
DEAD_LETTER = Verdict(VerdictKind.DEAD_LETTER)

_NOTHING = Window(), Schedule(), Restored(Checkpoint(), 0, 0, 0)
"""What all closed trackers hold: thousands may be closed together, and none of them adds to it."""


class BaseTracker(FlushState):
    """The deliveries of one assignment.

    Args:
        assignment: whose acks these are.
        wake: called once whenever the tracker turns from clean to dirty.
        settled: where each settled record is named for the broker; None where nothing asks.
        policy, flush_interval, ack_timeout, identity, random, chunk_bits: see `TrackerOptions`.

    Raises:
        ConfigurationError: an option that cannot work.
    """

    __slots__ = (
        "_ack_timeout",
        "_application",
        "_assignment",
        "_chunks",
        "_failures",
        "_floor",
        "_fresh",
        "_has_tracked",
        "_identity",
        "_late",
        "_mask",
        "_policy",
        "_random",
        "_restored",
        "_schedule",
        "_settled",
        "_shift",
        "_unseen",
        "_window",
    )

    def __init__(
        self,
        assignment: Assignment,
        wake: Callable[[], None] = lambda: None,
        *,
        policy: RetryPolicy | None = None,
        flush_interval: float = 0.1,
        ack_timeout: float | None = None,
        identity: str | None = None,
        settled: Unflushed | None = None,
        random: Callable[[], float] = random.random,
        chunk_bits: int = BITS,
    ) -> None:
        check_options(locals(), TYPES)
        super().__init__(wake, flush_interval)
        self._assignment = assignment
        self._has_tracked = False
        self._policy = policy or RetryPolicy()
        self._ack_timeout = ack_timeout
        self._identity = identity
        self._application: str | None = None  # the checkpoint's that it was restored from
        self._settled = settled
        # A record that is named when it is settled takes the slow path of `ack`.
        self._fresh = OPEN if settled is None else MARKED
        self._random = random
        self._forget(chunk_bits)

    def _forget(self, chunk_bits: int) -> None:
        self._hold(Window(chunk_bits), Schedule(), Restored(Checkpoint(), 0, 0, 0))
        self._failures: dict[int, int] = {}
        # Restored retries that nobody has been handed in this assignment.
        self._unseen: set[int] = set()
        # Below it, a cumulative ack has settled all but dead letters and what was unseen then;
        # of that, what was handed out since: a heap, which may hold settled ones too.
        self._floor = 0
        self._late: list[int] = []

    def _hold(self, window: Window, schedule: Schedule, restored: Restored) -> None:
        self._window = window
        self._chunks = window.chunks
        self._shift = window.bits
        self._mask = window.mask
        self._schedule = schedule
        self._restored = restored

    def close(self) -> None:
        self._is_closed = True
        self._hold(*_NOTHING)
        self._failures, self._unseen, self._late, self._floor = {}, set(), [], 0
        self._settled = None
        self._in_air = None
        self._is_clean = True

    # -- tracking -------------------------------------------------------------------------

    def restore(self, checkpoint: Checkpoint, now: float, wall: float, *, durable: bool) -> None:
        if self._is_closed:
            return
        if self._has_tracked:
            raise ConfigurationError(
                f"restore() after track() of {self._assignment.partition}: what was tracked would "
                f"be forgotten; restore the checkpoint first"
            )
        self._restore(checkpoint, now, wall)
        self._identity = self._identity or checkpoint.identity
        self._application = checkpoint.application
        if not durable:
            self._dirty()

    @abstractmethod
    def _restore(self, checkpoint: Checkpoint, now: float, wall: float) -> None:
        """Takes over what the checkpoint says of records."""

    def _resume_delivery(
        self, index: int, message: Message, now: float, found: TrackedLists
    ) -> None:
        """A checkpoint may tell of failed deliveries of a record that is tracked now."""
        failures, due = self._restored.attempts.get(message.position, (0, 0.0))
        if not failures:
            return
        self._failures[index] = failures
        if self._policy.is_exhausted(failures):
            self._window.mark(index, DEAD)
            found.exhausted.append(index)
        elif due > now:
            self._start_timer(index, RETRY, due, message)
            self._unseen.add(index)
            found.held.append(index)
        else:
            self._window.mark(index, MARKED)
            found.tries[index] = failures + 1

    # -- settling -------------------------------------------------------------------------

    def ack(self, index: int) -> bool:
        chunk = self._chunks.get(index >> self._shift)
        if chunk is None or chunk.states[index & self._mask] != OPEN:
            return self._ack_slowly(index, chunk)
        chunk.states[index & self._mask] = DONE
        chunk.left -= 1
        if self._is_clean:
            self._dirty()
        if not chunk.left:
            self._window.retire(chunk)
        return True

    def _ack_slowly(self, index: int, chunk: Chunk | None) -> bool:
        if chunk is None or chunk.states[index & self._mask] not in SETTLEABLE:
            return self._ignore()
        self._settle(index, chunk)
        return True

    def _settle(self, index: int, chunk: Chunk) -> None:
        offset = index & self._mask
        self._forget_delivery(index, chunk, offset)
        chunk.states[offset] = DONE
        chunk.left -= 1
        if self._is_clean:
            self._dirty()
        if not chunk.left:
            self._window.retire(chunk)

    def _forget_delivery(self, index: int, chunk: Chunk, offset: int) -> None:
        """A record is about to be settled: nothing but its state is kept of it."""
        if index in self._schedule.moment_of:
            self._schedule.stop(index)
        if index in self._failures:
            del self._failures[index]
        self._unseen.discard(index)
        if self._settled is not None:
            self._name(chunk, offset)

    def _name(self, chunk: Chunk, offset: int) -> None:
        """The next flush names the record."""
        assert self._settled is not None  # noqa: S101 - asked by the caller, on the hot path
        self._settled.positions.append(chunk.positions[offset])
        self._settled.natives.append(chunk.natives[offset])
        chunk.natives[offset] = None

    def ack_all(self, indices: Sequence[int]) -> int:
        if not is_consecutive(indices):
            return sum(map(self.ack, indices))
        settled = 0
        for part in self._window.parts(indices[0], indices[-1] + 1):
            settled += self._ack_part(*part)
        return settled

    def _ack_part(self, chunk: Chunk | None, start: int, stop: int) -> int:
        count = stop - start
        if chunk is None:
            self.ignored += count
            return 0
        if chunk.states.count(OPEN, start, stop) != count:
            first = (chunk.number << self._shift) + start
            return sum(map(self.ack, range(first, first + count)))
        return self._settle_open(chunk, start, stop)

    def _settle_open(self, chunk: Chunk, start: int, stop: int) -> int:
        """Settles what has no side entries."""
        count = stop - start
        chunk.states[start:stop] = bytes((DONE,)) * count
        chunk.left -= count
        self._dirty()
        if not chunk.left:
            self._window.retire(chunk)
        return count

    def ack_cumulative(self, index: int) -> int:
        if not 0 <= index < self._window.minted:
            return int(self._ignore())
        settled = self._settle_late(index)
        if index >= self._floor:
            settle = self._settle_seen if self._unseen else self._settle_part
            for chunk in self._window.live_between(self._floor, index):
                first = chunk.number << self._shift
                settled += settle(chunk, max(self._floor - first, 0), index + 1 - first)
            self._floor = index + 1
        self.ignored += not settled
        if settled:
            self._dirty()
        return settled

    def _settle_late(self, last: int) -> int:
        settled = 0
        while self._late and self._late[0] <= last:
            index = heappop(self._late)
            if self._window.state(index) in SETTLEABLE:
                settled += self.ack(index)
        return settled

    def _settle_seen(self, chunk: Chunk, start: int, stop: int) -> int:
        """One by one: whoever acks up to here has not seen the restored retries among them."""
        first = chunk.number << self._shift
        states = enumerate(chunk.states[start:stop], first + start)
        seen = [i for i, state in states if state in SETTLEABLE and i not in self._unseen]
        return sum(map(self.ack, seen))

    def _settle_part(self, chunk: Chunk, start: int, stop: int) -> int:
        stop = min(stop, chunk.count)
        states = chunk.states[start:stop]
        if self._schedule.moment_of or self._failures or self._settled is not None:
            first = chunk.number << self._shift
            for match in SIDE_ENTRY.finditer(states):
                offset = start + match.start()
                self._forget_delivery(first + offset, chunk, offset)
        settled = len(states) - states.count(DONE) - states.count(DEAD)
        if settled:
            chunk.states[start:stop] = states.translate(SETTLE)
            chunk.left -= settled
            if not chunk.left:
                self._window.retire(chunk)
        return settled

    # -- failing --------------------------------------------------------------------------

    def nack(
        self, index: int, attempt: int, now: float, delay: float | None = None, item: Any = None
    ) -> Verdict:
        DELAY.check("delay", delay, "nack")
        check_moment(now, "nack")
        if not self._is_delivery(index, attempt):
            self._ignore()
            return IGNORED
        self._schedule.stop(index)
        self._failures[index] = attempt
        self._dirty()
        if self._policy.is_exhausted(attempt):
            self._window.mark(index, DEAD)
            return DEAD_LETTER
        wait = self._policy.delay(attempt, self._random) if delay is None else delay
        self._start_timer(index, RETRY, now + wait, item)
        return Verdict(VerdictKind.RETRY, now + wait)

    def _is_delivery(self, index: int, attempt: int) -> bool:
        is_delivered = self._window.state(index) in DELIVERED
        return is_delivered and attempt == self._failures.get(index, 0) + 1

    def reject(self, index: int, attempt: int | None) -> bool:
        if attempt is None:
            is_wanted = self._window.state(index) in SETTLEABLE
        else:
            is_wanted = self._is_delivery(index, attempt)
        if not is_wanted:
            return self._ignore()
        self._schedule.stop(index)
        self._unseen.discard(index)
        self._window.mark(index, DEAD)
        return True

    def dead_lettered(self, index: int) -> bool:
        if self._window.state(index) != DEAD:
            return self._ignore()
        self._settle(index, self._chunks[index >> self._shift])
        return True

    # -- time -----------------------------------------------------------------------------

    def handed_out(self, messages: Sequence[Message], now: float) -> Sequence[Message]:
        indices = [message.index for message in messages]
        if not self._are_all_fresh(indices):
            messages = [m for m in messages if self._window.state(m.index) in DELIVERED]
            indices = [message.index for message in messages]
            self._see(indices)
        if self._ack_timeout is not None and messages:
            check_moment(now, "handed_out")
            self._start_timeouts(indices, messages, now + self._ack_timeout)
        return messages

    def _see(self, indices: Sequence[int]) -> None:
        """A cumulative ack that has passed some of these did not mean them; the next one does."""
        for index in self._unseen.intersection(indices):
            self._unseen.remove(index)
            if index < self._floor:
                heappush(self._late, index)

    def _are_all_fresh(self, indices: list[int]) -> bool:
        """A run of which nobody has settled a record meanwhile: seen without looking at each."""
        # Sorting what is sorted is the cheapest look at their order. If they ascend, all lie between the first
        # and the last; whatever else lies there has to be in delivery as well.
        if self._unseen or not indices or sorted(indices) != indices:
            return False
        first, end = indices[0], indices[-1] + 1
        return self._window.count(DELIVERED, first, end) == end - first

    def _start_timeouts(
        self, indices: Sequence[int], messages: Sequence[Message], due: float
    ) -> None:
        self._window.mark_all(indices, MARKED)
        self._schedule.start(due, dict(zip(indices, messages, strict=True)), is_retry=False)

    def extend(
        self, index: int, attempt: int, now: float, seconds: float, item: Any = None
    ) -> bool:
        SECONDS_OR_0.check("seconds", seconds, "extend")
        check_moment(now, "extend")
        if not self._is_delivery(index, attempt):
            return self._ignore()
        moment = self._schedule.moment_of.get(index)
        item = item if moment is None else moment.items[index]
        if item is None:
            return False
        if seconds > 0:
            self._start_timer(index, MARKED, now + seconds, item)
        else:
            self._schedule.stop(index)
        return True

    def _start_timer(self, index: int, state: int, due: float, item: Any) -> None:
        self._window.mark(index, state)
        self._schedule.start(due, {index: item}, is_retry=state == RETRY)

    def due(self, now: float, most: int | None = None) -> Due:
        ready: list[tuple[int, int, Any]] = []
        expired: list[tuple[int, Verdict, Any]] = []
        check_moment(now, "due")
        for index, item, is_retry in self._schedule.pop_due(now, most):
            attempt = self._failures.get(index, 0) + 1
            self._window.mark(index, MARKED)
            if is_retry:
                ready.append((index, attempt, item))
            else:
                expired.append((index, self.nack(index, attempt, now, item=item), item))
        ready.sort(key=_INDEX)
        expired.sort(key=_INDEX)
        return Due(ready, expired)

    def next_due(self) -> float | None:
        return self._schedule.next_due()

    # -- looking --------------------------------------------------------------------------

    @property
    def unsettled(self) -> int:
        return self._window.unsettled

    def is_settled(self, index: int) -> bool:
        return self._window.state(index) in {DONE, FREE}

    @property
    def retrying(self) -> int:
        return self._schedule.retrying

    @property
    def unsettled_bytes(self) -> int:
        return self._window.unsettled_bytes

    def checkpoint(self, now: float, wall: float) -> Checkpoint:
        if self._is_closed:
            raise ConsumerClosedError(
                f"checkpoint() of the closed tracker of {self._assignment.partition}: it has "
                f"forgotten its records; ask before close()"
            )
        return self._checkpoint(now, wall)

    @abstractmethod
    def _checkpoint(self, now: float, wall: float) -> Checkpoint:
        """See `checkpoint`; the tracker is open."""

    @abstractmethod
    def _holes(self) -> tuple[Position | None, int]:
        """The watermark, and how many settled stretches lie above it."""

    def explain(self, now: float) -> Explanation:
        watermark, holes = self._holes()
        window, first = self._window, self._window.first_unsettled()
        is_pinned = first >= 0
        return Explanation(
            watermark=watermark,
            unsettled=window.unsettled,
            unsettled_bytes=window.unsettled_bytes,
            holes=holes,
            retrying=self._schedule.retrying,
            dead_lettering=sum(chunk.states.count(DEAD) for chunk in window.live()),
            pinned_by=window.position(first) if is_pinned else None,
            index=first if is_pinned else None,
            state=STATES[window.state(first)] if is_pinned else None,
            attempts=self._failures.get(first, 0),
            age=window.age(first, now) if is_pinned else 0.0,
            flush_number=self.flush_number,
            durable_number=self.durable_number,
        )

    def _attempts(self, now: float, wall: float) -> Mapping[Position, tuple[int, float]]:
        if not self._failures and not self._restored.attempts:
            return {}
        limit = self._policy.max_attempts
        found: dict[Position, tuple[int, float]] = {
            position: (failures, wall + due - now)
            for position, (failures, due) in self._restored.attempts.items()
        }
        for index, failures in self._failures.items():
            stored = failures if limit is None else min(failures, limit - 1)
            if stored:
                moment = self._schedule.moment_of.get(index)
                due = moment.due if moment and moment.is_retry else now
                found[self._window.position(index)] = (stored, wall + max(due - now, 0.0))
        return found

    def _written(self, attempts: Mapping[Position, tuple[int, float]], wall: float) -> float | None:
        return written_at(attempts, wall, self._policy.maximum) if attempts else None
