"""Tracks three lines of a file, of which one fails."""

from consumer_sdk import Message, Partition, RetryPolicy, WatermarkTracker
from consumer_sdk.records import Arrival, Assignment, Outcome, Run

assignment = Assignment(Partition("app.log", "0"), epoch=1)
tracker = WatermarkTracker(assignment, policy=RetryPolicy(max_attempts=3), flush_interval=0.1)
now, wall = 0.0, 1_700_000_000.0  # time.monotonic(), time.time()

run = Run(assignment, [Message.make(assignment, at, b"...") for at in (0, 40, 80)])
tracked = tracker.track(run, now)
for _message, arrival in tracked.arrivals(tracked.bind(run.messages)):
    assert arrival is Arrival.DELIVER

first, second, third = run.messages
tracker.ack(first.index)
tracker.ack(third.index)
tracker.nack(second.index, second.attempt, now, item=second)  # it comes back through tracker.due

flush = tracker.flush(now, wall)
assert flush is not None  # acks are due
assert flush.checkpoint.resume == 40  # a restart reads from the first unsettled record
assert flush.checkpoint.ranges == ((80, 80),)  # and skips settled records above it
tracker.flushed(flush, Outcome.durable())
