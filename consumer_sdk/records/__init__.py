"""The values that travel between adapter, tracker, store and runtime.

A record's life: ``adapter.fetch`` makes a `Run` of `Message` objects → the tracker tracks the
run and mints an index for each → the runtime hands the messages out → they are settled → a
flush makes an `AckFlush` → store and adapter make it durable and answer with an `Outcome`.

A *position* is a record's place in its partition: immutable, hashable and, in a log, totally
ordered (Kafka: int; Kinesis: ``(sequence, sub_sequence)``; Pulsar: ``(ledger, entry, index)``).
There need not be a "next" one. Stores see its text form only, which the adapter makes.
"""

from consumer_sdk.records.branches import Branch, BranchHolder, Tree
from consumer_sdk.records.capabilities import Capabilities, Kind
from consumer_sdk.records.checkpoint import Checkpoint, Comparison, Lost
from consumer_sdk.records.dead_letter import DeadLetter
from consumer_sdk.records.flushes import (
    AckFlush,
    Committed,
    Explanation,
    Outcome,
    OutcomeKind,
    SettledRecords,
)
from consumer_sdk.records.leases import Lease, LeaseView, Moves
from consumer_sdk.records.messages import Batch, Headers, Holder, Message, Redelivery
from consumer_sdk.records.partitions import (
    Assignment,
    AtPosition,
    AtTime,
    Partition,
    Position,
    Start,
    StartPoint,
)
from consumer_sdk.records.runs import Arrival, Due, Run, Tracked, Verdict, VerdictKind

__all__ = [
    "AckFlush",
    "Arrival",
    "Assignment",
    "AtPosition",
    "AtTime",
    "Batch",
    "Branch",
    "BranchHolder",
    "Capabilities",
    "Checkpoint",
    "Committed",
    "Comparison",
    "DeadLetter",
    "Due",
    "Explanation",
    "Headers",
    "Holder",
    "Kind",
    "Lease",
    "LeaseView",
    "Lost",
    "Message",
    "Moves",
    "Outcome",
    "OutcomeKind",
    "Partition",
    "Position",
    "Redelivery",
    "Run",
    "SettledRecords",
    "Start",
    "StartPoint",
    "Tracked",
    "Tree",
    "Verdict",
    "VerdictKind",
]
