"""Both kinds of tracker keep the trackers' contract, for positions of every kind."""

from __future__ import annotations

import gc
import inspect
import math
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from consumer_sdk.abc import AckTracker
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Assignment, Checkpoint, Outcome, Position
from consumer_sdk.testing.conformance.trackers import (
    LogTrackerSuite,
    NamingLogTrackerSuite,
    QueueTrackerSuite,
)
from consumer_sdk.trackers import QueueTracker, WatermarkTracker
from tests.trackers.building import ASSIGNMENT, NOW, WALL, look, make_delivery, make_run, take


@pytest.mark.parametrize("kind", [WatermarkTracker, QueueTracker])
def test_tracker_of_nothing_but_an_assignment_has_the_defaults(
    kind: type[WatermarkTracker | QueueTracker],
) -> None:
    """A back-off of half a second, a flush each 100 ms, no timeout, and no owner to wake."""
    tracker = kind(ASSIGNMENT)
    run = make_run(range(2000))
    tracker.track(run, NOW)
    for index, message in enumerate(run.messages):
        message.index = index
    tracker.handed_out(run.messages, NOW)
    assert tracker.next_due() is None
    assert NOW + 0.4 <= tracker.nack(0, 1, NOW).due <= NOW + 0.5

    flush = tracker.flush(NOW, WALL)
    assert flush is not None
    tracker.flushed(flush, Outcome.durable())
    tracker.ack_all(range(999))
    assert tracker.flush_due == NOW + 0.1
    tracker.ack(999)
    assert tracker.flush_due == (-math.inf if kind is QueueTracker else NOW + 0.1)


def test_defaults_of_a_queue_are_those_that_the_pages_tell() -> None:
    """How many acks are a group, what is remembered of them, and how old an attempt may be."""
    told = {"flush_count": 1000, "proof_count": 10_000, "proof_age": 60.0, "attempts_age": 86_400.0}

    parameters = inspect.signature(QueueTracker).parameters
    assert {name: parameters[name].default for name in told} == told


@pytest.mark.parametrize(
    "option, value",
    [
        ("flush_count", 0),
        ("flush_count", 10.0),
        ("flush_count", True),
        ("proof_count", -1),
        ("proof_age", math.nan),
        ("attempts_age", -1.0),
        ("ack_timeout", "5"),
        ("ack_timeout", True),
        ("chunk_bits", -1),
        ("full", 5),
    ],
)
def test_impossible_option_of_a_queue_is_refused_by_name(option: str, value: object) -> None:
    """Those that a log's tracker has too are in its suite."""
    options: Any = {option: value}
    with pytest.raises(ConfigurationError, match=f"^{option}="):
        QueueTracker(ASSIGNMENT, **options)


@pytest.mark.parametrize("kind", [WatermarkTracker, QueueTracker])
@pytest.mark.parametrize("option, value", [("random", 5), ("identity", 5), ("chunk_bits", 64)])
def test_impossible_inner_option_is_refused_by_name(
    kind: type[WatermarkTracker | QueueTracker], option: str, value: object
) -> None:
    """Before memory is asked for, and before a first retry wants a random number."""
    options: Any = {option: value}
    with pytest.raises(ConfigurationError, match=f"^{option}={value}: give "):
        kind(ASSIGNMENT, **options)


@pytest.mark.parametrize(
    "option, value", [("gaps", 5), ("keeps_ranges", 5), ("names_settled", "no")]
)
def test_impossible_option_of_a_log_is_refused_by_name(option: str, value: object) -> None:
    """Those that a queue's tracker has not."""
    options: Any = {option: value}
    with pytest.raises(ConfigurationError, match=f"^{option}="):
        WatermarkTracker(ASSIGNMENT, **options)


@pytest.mark.parametrize("kind", [WatermarkTracker, QueueTracker])
@pytest.mark.parametrize(
    "given, stored, kept",
    [("now", None, "now"), (None, "then", "then"), ("now", "then", "now"), (None, None, None)],
)
def test_identity_is_that_of_the_stream_and_else_what_was_stored(
    kind: type[WatermarkTracker | QueueTracker],
    given: str | None,
    stored: str | None,
    kept: str | None,
) -> None:
    """It goes into every checkpoint."""
    tracker = kind(ASSIGNMENT, identity=given)
    tracker.restore(Checkpoint(identity=stored), NOW, WALL, durable=False)

    assert look(tracker).identity == kept
    assert take(tracker).checkpoint.identity == kept


@pytest.mark.parametrize("kind", [WatermarkTracker, QueueTracker])
def test_application_is_that_of_the_checkpoint_restored(
    kind: type[WatermarkTracker | QueueTracker],
) -> None:
    """It goes into every checkpoint."""
    tracker = kind(ASSIGNMENT)
    assert look(tracker).application is None
    tracker.restore(Checkpoint(application="v2"), NOW, WALL, durable=False)

    assert look(tracker).application == "v2"
    assert take(tracker).checkpoint.application == "v2"


@pytest.mark.parametrize("kind", [WatermarkTracker, QueueTracker])
def test_closed_tracker_keeps_no_handle(kind: type[WatermarkTracker | QueueTracker]) -> None:
    """Neither of what is open nor of what was settled, in whatever flush."""

    class Handle:
        """Something that can be watched."""

    options: dict[str, Any] = {"names_settled": True} if kind is WatermarkTracker else {}
    tracker = kind(ASSIGNMENT, **options)
    run = make_delivery(range(3))
    for message in run.messages:
        message.native = Handle()
    watches = [weakref.ref(message.native) for message in run.messages]
    tracker.track(run, NOW)
    tracker.ack(0)
    tracker.flush(NOW, WALL, force=True)
    tracker.ack(1)
    run.messages.clear()
    del message
    tracker.close()
    gc.collect()

    assert [watch() for watch in watches] == [None] * 3


class TestLog(LogTrackerSuite):
    """Integers, as in Kafka, in chunks of four records."""

    def make_tracker(
        self, assignment: Assignment, wake: Callable[[], None], **options: Any
    ) -> AckTracker:
        """A tracker without jitter."""
        return WatermarkTracker(assignment, wake, random=lambda: 0.0, chunk_bits=2, **options)


class TestLogOfPairs(TestLog):
    """As in Kinesis: several records share a sequence number."""

    def position(self, number: int) -> Position:
        """Three sub-sequences to a sequence number."""
        return (10**20 + number // 3, number % 3)


class TestLogThatNames(NamingLogTrackerSuite):
    """As in Pulsar's exclusive subscriptions: an entry holds a batch."""

    def position(self, number: int) -> Position:
        """Four records to an entry."""
        return (7, number // 4, number % 4)

    def make_tracker(
        self, assignment: Assignment, wake: Callable[[], None], **options: Any
    ) -> AckTracker:
        """A tracker whose flushes name what was settled."""
        return WatermarkTracker(
            assignment, wake, names_settled=True, random=lambda: 0.0, chunk_bits=2, **options
        )


class TestQueue(QueueTrackerSuite):
    """As in Pulsar's shared subscriptions, in chunks of four records."""

    def position(self, number: int) -> Position:
        """Four records to an entry."""
        return (7, number // 4, number % 4)

    def make_tracker(
        self, assignment: Assignment, wake: Callable[[], None], **options: Any
    ) -> AckTracker:
        """A tracker without jitter."""
        return QueueTracker(assignment, wake, random=lambda: 0.0, chunk_bits=2, **options)


class TestQueueOfNames(TestQueue):
    """Positions that say nothing of an order."""

    def position(self, number: int) -> Position:
        """A receipt."""
        return f"receipt {number * 7 % 20}"
