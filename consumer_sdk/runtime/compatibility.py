"""Which tracker a subscription gets and which options it refuses, by the adapter's capabilities."""

from __future__ import annotations

from collections.abc import Callable

from consumer_sdk.abc import AckTracker, Adapter, CheckpointStore, Transactions
from consumer_sdk.errors import CheckpointFormatError, ConfigurationError
from consumer_sdk.options import instance, optional
from consumer_sdk.records import Assignment, AtPosition, Kind, Position, StartPoint
from consumer_sdk.runtime.dispatch.lanes import Ordering
from consumer_sdk.runtime.fetch_loop import DEFAULT_IN_FLIGHT
from consumer_sdk.runtime.options import Options
from consumer_sdk.trackers import QueueTracker, TrackerOptions, WatermarkTracker

__all__ = ["check", "check_ordering", "check_transactions", "in_flight_of", "make_tracker"]

TRANSACTIONS = optional(
    instance(Transactions, "transactions such as KafkaTransactions(transactional_id=…)")
)

ROOM = 1000
"""Characters of commit metadata that hold any checkpoint without ranges and attempts, whose names are
not absurd. In less an application's id would get lost, and each restart would start it anew."""


def check(adapter: Adapter, store: CheckpointStore | None, options: Options) -> None:
    """Refuses options that this adapter or store does not support.

    Raises:
        ConfigurationError: says what, and what to do.
    """
    if adapter.capabilities.kind is Kind.QUEUE:
        _check_queue(adapter, options)
    if store is not None and adapter.capabilities.counts_deliveries:
        raise ConfigurationError(
            f"{adapter.broker}: the broker counts the deliveries of this queue's records, and keeps what "
            f"was settled: leave store= out"
        )
    if store is not None and not adapter.group:
        raise ConfigurationError(
            f"{adapter.broker}: a store keeps checkpoints by group: give the adapter group=…, or "
            f"leave store= out to keep no position, so that each start begins at start="
        )
    check_start(adapter, store, options)
    if isinstance(options.start, AtPosition):
        _check_position(adapter, options.start.position)
    _check_in_flight(adapter, options, options.max_in_flight or DEFAULT_IN_FLIGHT)
    if adapter.capabilities.needs_leases:
        _check_leases(adapter, store, options)


def _check_position(adapter: Adapter, position: Position) -> None:
    """Its text has to be that of a position, and mean this one."""
    try:
        is_position = adapter.decode_position(adapter.encode_position(position)) == position
    except ConfigurationError:  # the adapter's own, which says what its positions are
        raise
    except (CheckpointFormatError, TypeError, ValueError, LookupError, AttributeError):
        is_position = False
    if not is_position:
        raise ConfigurationError(
            f"start=AtPosition({position!r}) is no position of {adapter.broker}: give one such as "
            f"message.position"
        )


def _check_in_flight(adapter: Adapter, options: Options, wanted: int) -> None:
    """Refuses to wait for more records than the broker sends."""
    most = adapter.capabilities.max_unacked
    if most is not None and wanted + options.max_retrying > most:
        raise ConfigurationError(
            f"{adapter.broker}: the broker sends no more once about {most} records are not acked, and "
            f"{wanted} in flight with max_retrying={options.max_retrying} would wait for more: "
            f"give less concurrency, max_in_flight= or max_retrying="
        )


def in_flight_of(adapter: Adapter, options: Options, handled: int) -> int:
    """How many records may be in flight: the given number, or a default that the broker allows.

    Args:
        handled: records that are with handlers at a time.

    Raises:
        ConfigurationError: the broker sends fewer unacked records than handlers run.
    """
    if options.max_in_flight is not None:
        return options.max_in_flight
    _check_in_flight(adapter, options, handled)
    wanted = max(DEFAULT_IN_FLIGHT, 10 * handled)
    most = adapter.capabilities.max_unacked
    return wanted if most is None else min(wanted, most - options.max_retrying)


def _check_leases(adapter: Adapter, store: CheckpointStore | None, options: Options) -> None:
    if store is None or type(store).leases is CheckpointStore.leases:
        raise ConfigurationError(
            f"{adapter.broker}: the broker does not share a stream out, leases in a store do: give "
            f"the consumer store=LocalStore(…) or ZooKeeperStore(…), or leave the adapter's group= "
            f"out to read everything without checkpoints"
        )
    if options.restart == "from_start":
        raise ConfigurationError(
            f"{adapter.broker}: restart='from_start' would leave out the partitions that have ended, "
            f"whose leases say so: give a new application another group="
        )


def _check_queue(adapter: Adapter, options: Options) -> None:
    if options.start is not StartPoint.EARLIEST:
        raise ConfigurationError(
            f"{adapter.broker}: a queue starts where the broker's subscription stands: leave "
            f"start= out; where a new one begins, the adapter's initial_position= says"
        )
    if options.application_id is not None or options.max_lag is not None:
        raise ConfigurationError(
            f"{adapter.broker}: a queue has no checkpoint and no position: leave restart=, "
            f"application_id= and max_lag= out"
        )


def check_start(adapter: Adapter, store: CheckpointStore | None, options: Options) -> None:
    """Refuses a start that this subscription does not support.

    Called again when the adapter is open, because only then it is known how much its commits can
    carry.

    Raises:
        ConfigurationError: says what cannot work.
    """
    capabilities = adapter.capabilities
    if not capabilities.tells_new and options.start is not StartPoint.EARLIEST:
        raise ConfigurationError(
            f"{adapter.broker}: without its admin API the broker does not tell whether a subscription "
            f"is new, and start= is for new ones alone: give the adapter admin_url=…, or "
            f"initial_position=… in place of start="
        )
    carries_checkpoints = capabilities.commits and capabilities.metadata_size >= ROOM
    if options.restart == "from_start" and store is None and not carries_checkpoints:
        raise ConfigurationError(
            f"{adapter.broker}: restart='from_start' keeps the application_id in the checkpoint, and "
            f"{_no_checkpoint(adapter)}"
        )
    counts_records = capabilities.lag_unit == "records" and not capabilities.wants_settled
    if options.max_lag is not None and not counts_records:
        raise ConfigurationError(
            f"{adapter.broker}: max_lag counts positions that are whole numbers, and this "
            f"subscription's are not: leave max_lag= out"
        )


def _no_checkpoint(adapter: Adapter) -> str:
    if adapter.group:
        return "this subscription's commits have no room for one: give the consumer a store=…"
    return (
        "without a group there is none: leave restart= and application_id= out, since each start "
        "begins at start=; or give the adapter group=…"
    )


def check_ordering(adapter: Adapter, ordering: Ordering) -> None:
    """Refuses an order that the subscription does not keep.

    Raises:
        ConfigurationError: says which it keeps.
    """
    capabilities = adapter.capabilities
    if ordering is Ordering.KEY and not capabilities.keeps_key_order:
        raise ConfigurationError(
            f"{adapter.broker}: this subscription hands the records of one key to several "
            f"consumers at once, so that no consumer can keep their order: run with "
            f"ordering=Ordering.NONE, or subscribe so that a key stays with one consumer"
        )
    if ordering is Ordering.PARTITION and capabilities.kind is Kind.QUEUE:
        raise ConfigurationError(
            f"{adapter.broker}: the consumers of a queue share each partition, so that none can "
            f"keep its order: run with Ordering.NONE, or with Ordering.KEY where keys stay with "
            f"one consumer"
        )


def check_transactions(
    adapter: Adapter, store: CheckpointStore | None, transactions: Transactions | None
) -> None:
    """Refuses transactions that cannot commit this consumer's positions.

    Raises:
        ConfigurationError: says why, and what to do.
    """
    TRANSACTIONS.check("transactions", transactions, "run")
    if transactions is None:
        return
    if adapter.capabilities.kind is Kind.QUEUE:
        raise ConfigurationError(
            f"{adapter.broker}: a queue has no position that a transaction could commit: leave "
            f"transactions= out, or read the topic in a consumer group"
        )
    if store is not None:
        raise ConfigurationError(
            f"run(transactions=…) keeps positions in the broker, where the outputs go, so that both are "
            f"committed or neither: leave the consumer's store={type(store).__name__}(…) out"
        )
    if adapter.group is None:
        raise ConfigurationError(
            f"{adapter.broker}: without a group there are no positions to commit: give the adapter group=…, "
            f"or leave transactions= out"
        )
    transactions.check(adapter)


def make_tracker(
    adapter: Adapter,
    options: Options,
    assignment: Assignment,
    *,
    has_store: bool,
    wake: Callable[[], None],
    full: Callable[[], None],
) -> AckTracker:
    """The tracker for a new assignment.

    Args:
        wake: see `AckTracker`.
        full: see `QueueTracker`.
    """
    capabilities = adapter.capabilities
    shared: TrackerOptions = {
        "policy": options.retry,
        "flush_interval": options.flush_interval,
        "ack_timeout": options.ack_timeout,
        "identity": adapter.identity(assignment),
    }
    if capabilities.kind is Kind.QUEUE:
        count = options.flush_count
        return QueueTracker(
            assignment,
            wake,
            full=full,
            flush_count=count,
            max_deliveries=capabilities.max_deliveries,
            **shared,
        )
    names_settled = capabilities.wants_settled
    return WatermarkTracker(
        assignment,
        wake,
        keeps_ranges=has_store or names_settled or capabilities.metadata_size > 0,
        names_settled=names_settled,
        gaps=adapter.gaps,
        **shared,
    )
