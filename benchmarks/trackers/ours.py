"""Our trackers in the frame that `benchmarks.trackers.peers` fill too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from benchmarks.trackers.runs import ASSIGNMENT
from consumer_sdk.abc import AckTracker
from consumer_sdk.records import Outcome, Run
from consumer_sdk.trackers import QueueTracker, WatermarkTracker

__all__ = ["Driven", "OurQueue", "Ours", "OursWithTimeouts"]


class Driven(Protocol):
    """What can be driven; positions are the indices, so that one script drives all."""

    @property
    def ack(self) -> Callable[[Any], bool]:
        """Settles a record; False if that changed nothing."""
        ...

    def track(self, run: Run) -> object:
        """Takes a fetched run."""
        ...

    def flush(self) -> object:
        """What is durable from now on."""
        ...


class Ours:
    """`WatermarkTracker`, whose flush makes a checkpoint with all ranges and is confirmed."""

    def __init__(self, **options: Any) -> None:
        self.tracker: AckTracker = WatermarkTracker(ASSIGNMENT, flush_interval=0.0, **options)
        self.ack = self.tracker.ack

    def track(self, run: Run) -> object:
        return self.tracker.track(run, 0.0)

    def flush(self) -> None:
        flush = self.tracker.flush(0.0, 0.0, force=True)
        if flush is not None:
            self.tracker.flushed(flush, Outcome.durable())


class OursWithTimeouts(Ours):
    """Ours, with a deadline for each record from when it is handed out."""

    def __init__(self) -> None:
        super().__init__(ack_timeout=30.0)
        self._now = 0.0

    def track(self, run: Run) -> object:
        self._now += 0.01
        self.tracker.track(run, self._now)
        return self.tracker.handed_out(run.messages, self._now)


class OurQueue(Ours):
    """`QueueTracker`, whose flush names what was settled: as soon as 1 000 records were."""

    def __init__(self) -> None:
        self.tracker = QueueTracker(ASSIGNMENT, flush_interval=0.0, full=self.flush)
        self.ack = self.tracker.ack
