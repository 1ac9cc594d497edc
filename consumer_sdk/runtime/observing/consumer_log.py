"""Logs what happens to a consumer: partitions that come and go, deliveries that fail.

Rare events are logged at once. Events that each record could cause are limited: the first of a kind
is logged, the others are counted, and the count is logged every ten seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakSet

from consumer_sdk.log_limits import LogLimit
from consumer_sdk.records import Message, Partition
from consumer_sdk.runtime.hooks import NO_HOOKS, Hooks
from consumer_sdk.runtime.observing.events import EventKind, Events
from consumer_sdk.runtime.observing.timing import Timing
from consumer_sdk.trackers import Reject, Retry

__all__ = ["ConsumerLog", "cause_of", "error_text", "error_type"]

log = logging.getLogger(__name__)

BURST = 10
"""Dead letters, and assignments, that are logged one by one in ten seconds."""
NAMED = 10
"""Partitions that one line names."""


class _Kind(NamedTuple):
    """What is limited together: its level, and how a count of one, and of several, reads."""

    level: int
    one: str
    several: str


ASSIGNED = _Kind(logging.INFO, "assigned %d more partition", "assigned %d more partitions")
REVOKED = _Kind(logging.INFO, "revoked %d more partition", "revoked %d more partitions")
LOST = _Kind(logging.INFO, "lost %d more partition", "lost %d more partitions")
ENDED = _Kind(logging.INFO, "%d more partition has ended", "%d more partitions have ended")
DEAD_LETTERED = _Kind(
    logging.WARNING, "%d more record was dead-lettered", "%d more records were dead-lettered"
)
LATE = _Kind(logging.WARNING, "%d more record came late", "%d more records came late")


class ConsumerLog:
    """The lines of one consumer; whoever knows the time passes it.

    Partitions that come and go, and dead letters, are events and, for partitions, hooks too.

    Attributes:
        events: what happened lately.
        timing: where dead letters are counted by their errors.
    """

    def __init__(
        self, events: Events | None = None, timing: Timing | None = None, hooks: Hooks = NO_HOOKS
    ) -> None:
        self.events = events or Events()
        self.timing = timing or Timing()
        self._hooks = hooks
        self._limit = LogLimit()
        self._traced: WeakSet[type[BaseException]] = WeakSet()

    def assigned(self, partitions: Sequence[Partition], held: int, now: float) -> None:
        """These partitions are this consumer's from here on; ``held`` are in all."""
        if partitions:
            self.events.add("assigned", f"{_some(partitions)}; {held} held", partitions)
            self._hooks.partitions_assigned(partitions)
        if partitions and self._admits(ASSIGNED, now, burst=BURST, count=len(partitions)):
            log.info("assigned %s; %d held", _some(partitions), held)

    def revoked(self, partitions: Sequence[Partition], held: int, now: float) -> None:
        """These partitions are not this consumer's any more, and all was done for them."""
        self._gone("revoked", partitions, held)
        if partitions and self._admits(REVOKED, now, burst=BURST, count=len(partitions)):
            log.info("revoked %s; %d held", _some(partitions), held)

    def lost(self, partitions: Sequence[Partition], held: int, now: float) -> None:
        """These partitions went without a last flush."""
        self._gone("lost", partitions, held)
        if partitions and self._admits(LOST, now, burst=BURST, count=len(partitions)):
            log.info(
                "lost %s; %d held; what was not durable is delivered again",
                *(_some(partitions), held),
            )

    def ended(self, partitions: Sequence[Partition], held: int, now: float) -> None:
        """These partitions were read to their end, and that is durable."""
        self._gone("ended", partitions, held)
        if partitions and self._admits(ENDED, now, burst=BURST, count=len(partitions)):
            log.info("ended %s; %d held; all of its records are settled", _some(partitions), held)

    def _gone(self, kind: EventKind, partitions: Sequence[Partition], held: int) -> None:
        if partitions:
            self.events.add(kind, f"{_some(partitions)}; {held} held", partitions)
            self._hooks.partitions_revoked(partitions)

    def failed(self, message: Message, error: BaseException | str, now: float) -> None:
        """A delivery failed; a `Retry` without a cause is no failure, but asked for."""
        failure = cause_of(error) or error
        if isinstance(failure, Retry):
            return
        if self._admits(_failures_like(failure), now):
            log.warning(
                "%s at %s: delivery %d failed: %s",
                *(message.partition, message.position, message.attempt, error_text(error)),
                exc_info=self._traceback(failure),
            )

    def _traceback(self, error: BaseException | str | None) -> BaseException | None:
        """The error itself, the first time that one of its type is logged."""
        if (
            error is None
            or isinstance(error, str)
            or type(error) in self._traced
            or not _can_be_printed(error)
        ):
            return None
        self._traced.add(type(error))
        return error

    def dead_lettered(self, message: Message, error: BaseException | str, now: float) -> None:
        """The record was given up, and its dead letter is durable."""
        self.timing.dead_lettered(error_type(error))
        what = f"{message.position} at delivery {message.attempt}: {error_text(error)}"
        self.events.add("dead-lettered", what, [message.partition])
        if self._admits(DEAD_LETTERED, now, burst=BURST):
            log.warning(
                "%s at %s was dead-lettered at delivery %d: %s",
                *(message.partition, message.position, message.attempt, error_text(error)),
                exc_info=self._traceback(cause_of(error)),
            )

    def late(self, message: Message, count: int, now: float) -> None:
        """The broker delivers ``count`` records below others that it had delivered before."""
        if self._admits(LATE, now, count=count):
            log.warning(
                "%s at %s comes late (%d in this run): the broker has delivered records above it "
                "before, but never this one",
                *(message.partition, message.position, count),
            )

    def report(self, now: float) -> None:
        """Logs the counts that are due; call it about once a second, and in the end."""
        for kind, count in self._limit.overdue(now):
            _say_count(kind, count)

    def _admits(self, kind: _Kind, now: float, *, burst: int = 1, count: int = 1) -> bool:
        left_out = self._limit.admit(kind, now, burst=burst, count=count)
        if left_out:  # the count is the line of this interval, and has this one in it
            _say_count(kind, left_out + count)
        return left_out == 0


def _failures_like(error: BaseException | str) -> _Kind:
    if isinstance(error, str):
        one = "%d more delivery was nacked, or took longer than ack_timeout"
        several = "%d more deliveries were nacked, or took longer than ack_timeout"
    else:
        name = _name(type(error))
        one = f"%d more delivery failed with {name}"
        several = f"%d more deliveries failed with {name}"
    return _Kind(logging.WARNING, one, several)


def _can_be_printed(error: BaseException) -> bool:
    """A log handler that fails at a text prints that, and not the line."""
    try:
        str(error).encode()
    except Exception:  # noqa: BLE001 - the error's own __str__
        return False
    return True


def _name(kind: type[BaseException]) -> str:
    is_builtin = kind.__module__ == "builtins"
    return kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"


def _say_count(kind: object, count: int) -> None:
    assert isinstance(kind, _Kind)  # noqa: S101 - the only keys of this limit
    log.log(kind.level, kind.one if count == 1 else kind.several, count)


def _some(partitions: Sequence[Partition]) -> str:
    names = ", ".join(map(str, partitions[:NAMED]))
    more = len(partitions) - NAMED
    rest = f" and {more} more" if more > 0 else ""
    word = "partition" if len(partitions) == 1 else "partitions"
    return f"{len(partitions)} {word} ({names}{rest})"


def cause_of(error: BaseException | str) -> BaseException | None:
    """The error in whose ``except`` a handler chose `Retry` or `Reject`; None if there is none."""
    if not isinstance(error, Reject | Retry):
        return None
    implied = None if error.__suppress_context__ else error.__context__
    cause = error.__cause__ or implied
    return None if isinstance(cause, Reject | Retry) else cause


def error_type(error: BaseException | str) -> str:
    """The name of what a delivery failed with; ``"rejected"`` where the handler only said so."""
    failure = cause_of(error) or error
    return "rejected" if isinstance(failure, str | Reject | Retry) else _name(type(failure))


def error_text(error: BaseException | str) -> str:
    """What an error says, with its type unless it was chosen by the handler; then with its cause.

    User code may raise whatever it likes: also what cannot be printed, or is no UTF-8.

    A dead letter that could not be made, or written, would hold its partition up for ever.
    """
    cause = cause_of(error)
    text = _own_text(error) if cause is None else f"{_own_text(error)}: {_own_text(cause)}"
    return text.encode("utf-8", "backslashreplace").decode()


def _own_text(error: BaseException | str) -> str:
    try:
        if isinstance(error, Reject | Retry):
            return str(error) or ("retry" if isinstance(error, Retry) else "rejected")
        return error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - the error's own __str__
        return f"{type(error).__name__}: its text could not be made"
