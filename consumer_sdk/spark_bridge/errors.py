"""Errors of the bridge.

::

    ConsumerSdkError
    ├── FeedError
    │   ├── TransientFeedError    the write failed in a way that may pass: try again
    │   ├── FeedFormatError       the directory's files are damaged or not a feed
    │   └── FeedRecordError       these records cannot be stored, however often it is tried
    └── SparkBridgeError
        ├── DataLossError         records that the query has yet to read are gone from the broker
        ├── DeadLetterError       rows were not written to their dead-letter destination
        ├── OffsetFormatError     an offset of Spark's checkpoint was not written by this source
        ├── SinkError             rows were not written to Kafka or Pulsar
        └── StrictAckError        with strictAcks: the group's position could not be moved
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from consumer_sdk.errors import ConsumerSdkError

if TYPE_CHECKING:
    from consumer_sdk.records import Message

__all__ = [
    "DataLossError",
    "DeadLetterError",
    "FeedError",
    "FeedFormatError",
    "FeedRecordError",
    "OffsetFormatError",
    "SinkError",
    "SparkBridgeError",
    "StrictAckError",
    "TransientFeedError",
]


class FeedError(ConsumerSdkError):
    """A feed directory could not be written or read."""


class TransientFeedError(FeedError):
    """The file system refused a write (disk full, quota, I/O error): try again.

    No half segment is left. A record that did get stored after all is recognised by its position.
    """


class FeedFormatError(FeedError):
    """A manifest or segment is damaged or missing; names the file."""


class FeedRecordError(FeedError):
    """Records do not fit the feed's columns (no bytes, a timestamp out of range).

    Attributes:
        records: each of them, with what is wrong with it. All others of the call are durable.
    """

    records: Sequence[tuple[Message, str]] = ()

    @classmethod
    def of(cls, records: Sequence[tuple[Message, str]]) -> FeedRecordError:
        """The error of a call with these records, of which there is one at least."""
        message, reason = records[0]
        others = f" (and {len(records) - 1} more records of this call)" if records[1:] else ""
        # Not repr(): what is wrong with a message may be its size.
        where = f"{message.partition}@{message.position!r}, attempt {message.attempt}"
        error = cls(f"{where}: {reason}{others}")
        error.records = records
        return error


class SparkBridgeError(ConsumerSdkError):
    """A Spark query that pulls from a broker cannot go on as it was asked to."""


class DataLossError(SparkBridgeError):
    """Records that the query has yet to read are gone; ``failOnDataLoss=false`` goes on."""


class DeadLetterError(SparkBridgeError):
    """Rows could not be written to their dead-letter destination; their task fails.

    None of them is lost: Spark tries the task, or the batch, again.
    """


class OffsetFormatError(SparkBridgeError):
    """An offset in Spark's checkpoint was not written by this source, or for another broker."""


class SinkError(SparkBridgeError):
    """Rows could not be written to their topic; their task fails.

    None of them is lost: Spark tries the task, or the batch, again, and what was written before
    is there twice then.
    """


class StrictAckError(SparkBridgeError):
    """The group's position could not be moved, and ``strictAcks`` makes that the query's end."""
