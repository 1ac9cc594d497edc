"""The checkpoint of a partition whose records are settled out of order."""

from consumer_sdk import Message, Partition, WatermarkTracker
from consumer_sdk.records import Assignment, Run

assignment = Assignment(Partition("orders", "0"), epoch=1)
tracker = WatermarkTracker(assignment)
run = Run(assignment, [Message.make(assignment, offset, b"...") for offset in range(40, 52)])
tracker.track(run, now=0.0).bind(run.messages)

for message in run.messages:
    if message.position not in {44, 47, 50, 51}:
        tracker.ack(message.index)

checkpoint = tracker.checkpoint(now=0.0, wall=0.0)
print("watermark", checkpoint.watermark)
print("settled ranges", *checkpoint.ranges)
print("a restart reads from", checkpoint.resume)
print("holes", tracker.explain(now=0.0).holes)
