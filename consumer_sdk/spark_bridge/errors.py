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
        give each query a name of its own. A feed that has ended is made anew, together with its
        consumer; what was not stored is delivered again.
    """


class TransientFeedError(FeedError):
    """The file system refused a write (disk full, quota, I/O error): try again.

    No half segment is left. A record that did get stored after all is recognised by its position.

    Cause:
        the disk is full, a quota is used up, or the file system has an I/O error.

    What to do:
        raise it out of the handler, which is what happens by itself: the record is retried.
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
    """Records that the query has yet to read are gone; ``failOnDataLoss=false`` goes on.

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
        the destination is away, does not exist, or refuses the rows.

    What to do:
        mend the destination; Spark repeats the task or the batch.
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

    None of them is lost: Spark tries the task, or the batch, again, and what was written before
    is there twice then.

    Cause:
        the broker is away, or refuses the rows: a topic that does not exist, a row that is too
        large.

    What to do:
        mend what the text names. Readers of the topic have to bear repeated rows.
    """


class StrictAckError(SparkBridgeError):
    """The group's position could not be moved, and ``strictAcks`` makes that the query's end.

    Cause:
        the broker refuses the commit, because the group has members that run, or it is away.

    What to do:
        stop what else uses the group, and start the query again: it goes on where Spark's
        checkpoint says. Without ``strictAcks`` the query goes on by itself.
    """
