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
    """A feed directory could not be written or read.

    Cause:
        two queries use one reader name, or the feed has ended by itself.

    What to do:
        give each query a name of its own. Make a feed that has ended anew, together with its
        consumer. Records that were not stored are delivered again.
    """


class TransientFeedError(FeedError):
    """The file system refused a write (disk full, quota, I/O error): try again.

    No half segment is left. If a record was stored nevertheless, the feed recognises it by its
    position.

    Cause:
        the disk is full, a quota is used up, or the file system has an I/O error.

    What to do:
        let it pass out of the handler: the record is retried.
    """


class FeedFormatError(FeedError):
    """A manifest or segment is damaged or missing; names the file.

    Cause:
        a file was cut, changed or deleted by something other than the feed and Spark.

    What to do:
        put the file back from a copy, or start a new directory and a new query with it.
    """


class FeedRecordError(FeedError):
    """Records do not fit the feed's columns (no bytes, a timestamp out of range).

    Cause:
        a key or value that is no bytes, a timestamp that Spark cannot hold, or a position
        without a text form.

    What to do:
        nothing, where `SparkFeed.put` raises it in a handler: the record goes to the dead
        letters at the retry limit, and all others are stored. After `SparkFeed.write`, settle
        what ``records`` names.

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
    """A Spark query that pulls from a broker cannot go on as it was asked to.

    Cause:
        that of one of the errors that derive from it.

    What to do:
        catch a more exact type.
    """


class DataLossError(SparkBridgeError):
    """Records that the query has not read are gone.

    Cause:
        retention deleted records that the query has not read, or a topic was deleted or made
        again.

    What to do:
        ``failOnDataLoss=false`` goes on with what is there. Then raise the topic's retention,
        or run the query more often.
    """


class DeadLetterError(SparkBridgeError):
    """Rows could not be written to their dead-letter destination; their task fails.

    None of them is lost: Spark tries the task, or the batch, again.

    Cause:
        the destination is unreachable, does not exist, or refuses the rows.

    What to do:
        fix the destination; Spark repeats the task or the batch.
    """


class OffsetFormatError(SparkBridgeError):
    """An offset in Spark's checkpoint was not written by this source, or for another broker.

    Cause:
        the checkpoint directory belongs to another query, to Spark's own Kafka source, or to
        another broker.

    What to do:
        give the query a checkpoint directory of its own. `import_checkpoint` takes over one of
        Spark's Kafka source.
    """


class SinkError(SparkBridgeError):
    """Rows could not be written to their topic; their task fails.

    No row is lost: Spark runs the task, or the batch, again. Then rows that were written before are
    there twice.

    Cause:
        the broker is unreachable, or refuses the rows: the topic does not exist, or a row is too
        large.

    What to do:
        fix what the text names. Readers of the topic have to tolerate repeated rows.
    """


class StrictAckError(SparkBridgeError):
    """The group's offset could not be moved, and with ``strictAcks`` that ends the query.

    Cause:
        the broker refuses the commit because the group has running members, or the broker is
        unreachable.

    What to do:
        stop the other members of the group, and start the query again: it goes on from Spark's
        checkpoint. Without ``strictAcks`` the query goes on by itself.
    """
