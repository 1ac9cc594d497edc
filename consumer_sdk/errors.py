"""Every error of the SDK, in one tree.

::

    ConsumerSdkError
    ├── ConfigurationError (also ValueError)   what was asked for cannot work; found before any record is fetched
    │   └── MissingExtraError                  an optional client is not installed
    ├── AdapterError                           the broker, or its client
    │   ├── TransientAdapterError              worth trying again; the runtime does
    │   ├── PartitionLostError                 the assignment is gone; the record will be delivered again
    │   ├── PositionOutOfRangeError            the wanted position is no longer (or not yet) stored
    │   ├── ProducerFencedError                another producer has this consumer's transactional id
    │   └── UnreadableRecordError              what the broker stores there cannot be read, however often
    ├── StoreError                             the checkpoint store
    │   ├── TransientStoreError                worth trying again; the runtime does
    │   ├── FencedError                        another owner has taken over
    │   ├── CheckpointMismatchError            the checkpoint belongs to another stream or broker
    │   ├── CheckpointFormatError              the stored bytes are not a checkpoint
    │   └── ImportRefusedError (stores)        what would be imported is behind what is stored
    ├── SchemaRegistryError                    the schema registry refuses, or answers what no registry does
    │   ├── TransientSchemaRegistryError       it is away or too busy, and was at each attempt
    │   ├── SchemaRegistryAccessError          it does not take the credentials (401, 403)
    │   └── UnknownSchemaError (also LookupError)  it has no such schema, subject or version
    ├── TokenFormatError (also ValueError)     these bytes are no branch's token, or no receipts
    ├── FeedError (spark_bridge)               the directory that feeds Spark; has a tree of its own
    ├── ServerError (testing.servers)          a server for tests could not be started
    ├── HandlerError                           user code, or a record that could not be settled
    │   ├── NoTransactionsError                message.send() in a run without transactions=
    │   └── OutputError                        what a handler sends cannot be written
    └── ConsumerClosedError                    the consumer is closed, or used where it cannot work

An unknown exception of user code or of a client flies unchanged.
"""

__all__ = [
    "AdapterError",
    "CheckpointFormatError",
    "CheckpointMismatchError",
    "ConfigurationError",
    "ConsumerClosedError",
    "ConsumerSdkError",
    "FencedError",
    "HandlerError",
    "MissingExtraError",
    "NoTransactionsError",
    "OutputError",
    "PartitionLostError",
    "PositionOutOfRangeError",
    "ProducerFencedError",
    "SchemaRegistryAccessError",
    "SchemaRegistryError",
    "StoreError",
    "TokenFormatError",
    "TransientAdapterError",
    "TransientSchemaRegistryError",
    "TransientStoreError",
    "UnknownSchemaError",
    "UnreadableRecordError",
]


class ConsumerSdkError(Exception):
    """Base of every error that the SDK raises.

    Cause:
        that of one of the errors that derive from it.

    What to do:
        catch a more exact type first. The transient types are the only ones for which a retry
        of the same call helps; inside a consumer the runtime has retried already.
    """


class ConfigurationError(ConsumerSdkError, ValueError):
    """An option, or a combination of options, cannot work. Raised before any record is fetched.

    Cause:
        an option is unknown or out of bounds, options contradict each other, a URL is
        malformed, or the broker or the subscription cannot do what was asked for.

    What to do:
        read the text: it names the option, what was given and what may be given. Nothing was
        fetched or changed.
    """


class MissingExtraError(ConfigurationError):
    """An optional client is not installed, or is too old.

    Cause:
        the adapter, store or exporter needs a package that is not part of the base
        installation.

    What to do:
        run the ``pip install`` that the text names.

    Args:
        package: the module that is missing, such as ``"aiokafka"``.
        extra: the extra that installs it, such as ``"kafka"``.
        found: the version that is installed; None for none.
        needed: the oldest version that will do, where ``found`` is too old.
    """

    def __init__(
        self, package: str, extra: str, found: str | None = None, needed: str | None = None
    ) -> None:
        super().__init__(
            f"the {package!r} package is not installed; "
            f"install it with: pip install 'consumer-sdk[{extra}]'"
            if found is None
            else f"{package} {found} is installed, and {needed} or newer is needed; "
            f"install it with: pip install '{package}>={needed}'"
        )
        self.package = package
        self.extra = extra
        self.found = found
        self.needed = needed

    def __reduce__(self) -> tuple[type, tuple[str | None, ...]]:
        # Else it cannot come out of a pickle.
        return type(self), (self.package, self.extra, self.found, self.needed)


class AdapterError(ConsumerSdkError):
    """The broker or its client failed, and a retry does not help.

    Cause:
        the broker refuses: the topic does not exist, credentials or rights are not accepted, or a
        request is unknown to it.

    What to do:
        read the text, fix what it names, and start the consumer again. Records that were not
        settled are delivered again.
    """


class TransientAdapterError(AdapterError):
    """The broker failed for now; the runtime tries again.

    Cause:
        the broker is unreachable, restarts, elects a leader or is too busy, or the connection
        broke.

    What to do:
        nothing, inside a consumer: it tries again with a back-off and logs that it does. Where
        a call of yours raises it, call again later.
    """


class PartitionLostError(AdapterError):
    """The partition was lost. Records that were not durable are delivered again, perhaps to another consumer.

    Cause:
        a rebalance gave the partition to another member, often because this process did not
        answer for a session: a blocked event loop, a paused machine. Or its topic or shard was
        deleted.

    What to do:
        nothing for the records: they are delivered again. If this happens often, keep handlers from
        blocking the event loop, or raise ``session_timeout`` (Kinesis: ``lease_duration``).
    """


class PositionOutOfRangeError(AdapterError):
    """The broker does not store the wanted position, any more or yet.

    Cause:
        retention deleted the records at the checkpoint's position before they were read, or the
        log was truncated or made anew.

    What to do:
        choose where to go on: ``out_of_range="earliest"``, ``"latest"`` or an `AtTime`, or
        ``consumer-sdk checkpoints reset``. Then find out why the consumer was so far behind:
        ``max_lag`` warns earlier.
    """


class ProducerFencedError(AdapterError):
    """Another producer has this consumer's transactional id, or the transaction took too long.

    Cause:
        two consumers run with the same ``transactional_id``; or this process was frozen, or the
        brokers were away, for longer than the ``timeout`` of the transactions. The broker has
        aborted the open transaction and takes nothing more from this producer.

    What to do:
        give each consumer that runs at the same time a transactional id of its own, which it
        keeps when it is restarted. Then start this consumer again: what was not committed is
        delivered again, and none of its outputs can be seen by ``read_committed``.
    """


class UnreadableRecordError(AdapterError):
    """The record at a position cannot be read, even if it is fetched again.

    Cause:
        bytes on the broker's disk are damaged, or a batch is larger than ``max_batch_bytes``
        when it is decompressed.

    What to do:
        fix what the text names; or give ``unreadable="dead_letter"``, which keeps the raw
        bytes in the dead letters and goes on behind them.
    """


class StoreError(ConsumerSdkError):
    """The checkpoint store failed, and a retry does not help.

    Cause:
        the store refuses: a path that does not exist, a full disk, rights that are missing.

    What to do:
        read the text and fix what it names. No checkpoint was changed; records since the last
        one are delivered again.
    """


class TransientStoreError(StoreError):
    """The checkpoint store failed for now; the runtime tries again.

    Cause:
        the store is unreachable or too busy, or another process has locked its file.

    What to do:
        nothing, inside a consumer: it writes the checkpoint again. Where a call of yours raises
        it, call again later.
    """


class FencedError(StoreError):
    """Another owner has taken the partition over; this one may no longer write.

    Cause:
        another consumer has claimed the partition since; usually after a rebalance that this
        one had not heard of yet.

    What to do:
        nothing, inside a consumer: it gives the partition up, and the new owner goes on. If it
        comes without a rebalance, two consumers use one group on separate brokers, or a tool
        moves checkpoints while consumers run: stop one of them.
    """


class CheckpointMismatchError(StoreError):
    """The stored checkpoint belongs to another stream, broker or incarnation of the stream.

    Cause:
        the stream was deleted and made again under its name, or the group's store was used with
        another broker.

    What to do:
        if the old records are gone, delete the group's checkpoints (``consumer-sdk checkpoints
        delete``); otherwise give this consumer the store or the group that belongs to its
        broker.
    """


class CheckpointFormatError(StoreError):
    """The stored bytes are not a checkpoint that this version can read.

    Cause:
        the bytes are damaged, or another program or a newer version of this SDK wrote them.

    What to do:
        restore a backup, delete the checkpoint that the text names, or run the newer version.
        Nothing was changed.
    """


class SchemaRegistryError(ConsumerSdkError):
    """The schema registry refuses, or answers what no registry does; says what was asked.

    Cause:
        the registry's URL is not that of a registry, or the registry refuses the request.

    What to do:
        compare the URL and the answer in the text with the registry.
    """


class TransientSchemaRegistryError(SchemaRegistryError):
    """The schema registry is away or too busy, and was at each attempt; try again later.

    Cause:
        the registry is away, restarts, or limits requests.

    What to do:
        nothing, in a handler: the record is retried. Elsewhere call again later.
    """


class SchemaRegistryAccessError(SchemaRegistryError):
    """The schema registry does not take the credentials, or they may not read this.

    Cause:
        the registry answered 401 or 403.

    What to do:
        check the credentials in the options, and the rights of that user on the subject.
    """


class UnknownSchemaError(SchemaRegistryError, LookupError):
    """The schema registry has no such schema, subject or version.

    Cause:
        a record names a schema that this registry does not have: its producer uses another
        registry, or the schema was deleted.

    What to do:
        give the producers' registry. Records that carry no schema number need another decoder.
    """


class TokenFormatError(ConsumerSdkError, ValueError):
    """These bytes are no token of a branch, or no receipts; nothing of them was applied.

    Cause:
        the bytes were cut, changed, or come from another program or another version.

    What to do:
        pass on what `Branch` or `Receipts` made, byte by byte. The tree's record is delivered
        again if nothing settles it.
    """


class HandlerError(ConsumerSdkError):
    """The handler cannot work, or a record could be neither settled nor dead-lettered.

    Cause:
        the handler returned nothing that can be awaited, takes another argument than it is
        given, or a record reached its retry limit and there is no destination for dead letters.

    What to do:
        fix the handler, or give ``dead_letters=``. The record is not settled and is delivered
        again.
    """


class NoTransactionsError(HandlerError):
    """``message.send()`` was called in a run without transactions; that ends the consumer.

    Cause:
        the handler sends outputs, and `Consumer.run` was not given ``transactions=``; or the
        message was pulled, for which there are no transactions.

    What to do:
        give ``run(handler, transactions=KafkaTransactions(transactional_id=…))``, or write with a
        producer of your own, at least once.
    """


class OutputError(HandlerError):
    """An output of a handler cannot be written; its record goes to the dead letters.

    Cause:
        the value or the key is not bytes, the topic is empty or none of ``topics=``, the output is
        larger than ``max_output_bytes``, or the message was settled before.

    What to do:
        read the text: it names what was given. Send before you settle the message, and send less
        in one output.

    Attributes:
        message: the one whose handler has sent it.
    """

    message: object = None


class ConsumerClosedError(ConsumerSdkError):
    """The consumer is closed, or is used from another event loop or a forked child.

    Cause:
        a call after ``aclose``, a second opening of an object that is opened once, a call from
        another event loop, or a process that was forked after the opening.

    What to do:
        make a new object in the event loop and the process that use it.
    """
