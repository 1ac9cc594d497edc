"""What a consumer is and does at one moment, as values: for pages, metrics and people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, Self

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Partition
from consumer_sdk.runtime.observing.events import Event
from consumer_sdk.runtime.observing.health import Health, State
from consumer_sdk.runtime.observing.stats import ConsumerStats
from consumer_sdk.runtime.observing.timing import HistogramSnapshot

__all__ = ["PartitionSnapshot", "PauseReason", "Pinned", "Snapshot"]

PauseReason = Literal["full", "holes", "lag", "operator", "retention"]
"""Why a partition is not fetched: its records in flight or their holes, its lag, a person; or the
broker no longer stores what comes next."""


class Pinned(NamedTuple):
    """The first unsettled record of a partition: its position cannot pass it.

    Attributes:
        position: as text.
        state: what it is doing; see `Explanation`.
        age: seconds since it was fetched.
        attempts: its failed deliveries.
        key: its key, where that is known.
        running: seconds for which its handler has been running; None where it is not.
    """

    position: str
    state: str
    age: float
    attempts: int
    key: bytes | None
    running: float | None


class PartitionSnapshot(NamedTuple):
    """One partition at one moment.

    The counts are since this consumer first held it, also in earlier assignments.

    Attributes:
        partition: which one.
        is_held: False: the partition was held before, and has only counts.
        epoch: grows with each assignment.
        position: the position up to which all records are settled, as text; None if there is none.
        pinned: the record that holds that position; None if all records are settled.
        in_flight, in_flight_bytes: unsettled records, and their estimated bytes.
        retrying: unsettled records that wait for their next delivery.
        blocked: unsettled records that wait behind such a retry.
        holes: unsettled stretches below settled records.
        lanes: keys, or records without one, that are queued or in a handler; 0 when pulling.
        trees: open trees of branches.
        paused: why it is not fetched; None if it is.
        pause_text: the reason that a person gave. A partition that was paused by hand comes back
            paused.
        is_draining: it is being revoked.
        lag: records behind the end; None if unknown.
        lag_seconds: seconds behind the end: as the broker reports, or the age of the record that
            was fetched last; 0 at the end.
        fetched, suppressed, settled, failed, redelivered, dead_lettered: as in `ConsumerStats`.
        assigned, revoked, lost: how often it was assigned, revoked, and lost without a flush.
        worker: the number of the worker process that holds it, from 0; None if there is only one
            process, or none holds it.
    """

    partition: Partition
    is_held: bool = True
    epoch: int = 0
    position: str | None = None
    pinned: Pinned | None = None
    in_flight: int = 0
    in_flight_bytes: int = 0
    retrying: int = 0
    blocked: int = 0
    holes: int = 0
    lanes: int = 0
    trees: int = 0
    paused: PauseReason | None = None
    pause_text: str | None = None
    is_draining: bool = False
    lag: int | None = None
    lag_seconds: float | None = None
    fetched: int = 0
    suppressed: int = 0
    settled: int = 0
    failed: int = 0
    redelivered: int = 0
    dead_lettered: int = 0
    assigned: int = 0
    revoked: int = 0
    lost: int = 0
    worker: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A whole consumer at one moment.

    Attributes:
        time: seconds since the epoch.
        broker: such as ``"kafka"``.
        group: the adapter's group, or None.
        state: what the consumer is doing.
        health: the answer to a probe.
        stats: what `Consumer.stats` returns.
        partitions: the partitions that are held, and up to 1 000 that were held before.
        handlers: that run now.
        handlers_limit: most handlers that may run at once; 0 when pulling.
        in_flight_limit: unsettled records at which fetching stops.
        is_full: whether so many records are in flight that no more are fetched.
        loop_lag: seconds by which the event loop was late when it was looked at last.
        handler_times: how long handlers took, by stream and error (None: they returned).
        request_times: how long requests took, by ``"receive"``, ``"commit"``, ``"save"`` and error.
        dead_letters: durable ones by error.
        flushes: flushed partitions by ``"durable"``, ``"sent"``, ``"retry"``, ``"fenced"``.
        events: the last 200, the oldest first.
        event_counts: of each kind since the beginning.
        ready_workers: the worker processes that are ready; None if there is only one process.
    """

    time: float
    broker: str
    group: str | None
    state: State
    health: Health
    stats: ConsumerStats
    partitions: tuple[PartitionSnapshot, ...]
    handlers: int
    handlers_limit: int
    in_flight_limit: int
    is_full: bool
    loop_lag: float
    handler_times: Mapping[tuple[str, str | None], HistogramSnapshot]
    request_times: Mapping[tuple[str, str | None], HistogramSnapshot]
    dead_letters: Mapping[str, int]
    flushes: Mapping[str, int]
    events: tuple[Event, ...]
    event_counts: Mapping[str, int]
    ready_workers: int | None = None

    def to_json(self) -> str:
        """One JSON object with the attributes as names; a key of a record as text.

        In a thread it leaves room for the event loop: nothing of it is one long call.
        """
        plain: dict[str, Any] = {
            "time": self.time,
            "broker": self.broker,
            "group": self.group,
            "state": self.state,
            "health": asdict(self.health),
            "stats": asdict(self.stats),
            "handlers": self.handlers,
            "handlers_limit": self.handlers_limit,
            "in_flight_limit": self.in_flight_limit,
            "is_full": self.is_full,
            "loop_lag": self.loop_lag,
            "handler_times": _times(self.handler_times, "stream"),
            "request_times": _times(self.request_times, "operation"),
            "dead_letters": dict(self.dead_letters),
            "flushes": dict(self.flushes),
            "events": [asdict(event) for event in self.events],
            "event_counts": dict(self.event_counts),
            "ready_workers": self.ready_workers,
        }
        head = json.dumps(plain, default=_text)
        rows = ", ".join([json.dumps(_plain(each), default=_text) for each in self.partitions])
        return f'{head[:-1]}, "partitions": [{rows}]}}'

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """What `json.loads` makes of `to_json`: an equal one, but for keys that are no UTF-8.

        Raises:
            ConfigurationError: this is none, or one of another version.
        """
        try:
            return cls._read(plain)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ConfigurationError(
                f"this is no snapshot ({error!r}): give what json.loads makes of Snapshot.to_json(), of "
                "the same version"
            ) from error

    @classmethod
    def _read(cls, plain: Mapping[str, Any]) -> Self:
        health, stats = plain["health"], plain["stats"]
        read: dict[str, Any] = {
            "health": Health(health["live"], health["ready"], tuple(health["reasons"])),
            "stats": ConsumerStats(**{name: _read_stat(each) for name, each in stats.items()}),
            "partitions": tuple(map(_read_partition, plain["partitions"])),
            "handler_times": _read_times(plain["handler_times"], "stream"),
            "request_times": _read_times(plain["request_times"], "operation"),
            "events": tuple(map(_read_event, plain["events"])),
        }
        return cls(**{**plain, **read})


def _plain(each: PartitionSnapshot) -> dict[str, Any]:
    pinned = None if each.pinned is None else each.pinned._asdict()
    return {**each._asdict(), "pinned": pinned}


def _times(
    times: Mapping[tuple[str, str | None], HistogramSnapshot], name: str
) -> list[dict[str, Any]]:
    return [
        {name: of, "error": error, "counts": each.counts, "sum": each.sum}
        for (of, error), each in times.items()
    ]


def _read_stat(value: Any) -> Any:
    return tuple(Partition(*each) for each in value) if isinstance(value, list) else value


def _read_partition(plain: Mapping[str, Any]) -> PartitionSnapshot:
    pinned = plain["pinned"]
    if pinned is not None:
        key = pinned["key"]
        pinned = Pinned(**{**pinned, "key": None if key is None else key.encode()})
    return PartitionSnapshot(
        **{**plain, "partition": Partition(*plain["partition"]), "pinned": pinned}
    )


def _read_times(
    plain: list[dict[str, Any]], name: str
) -> dict[tuple[str, str | None], HistogramSnapshot]:
    return {
        (each[name], each["error"]): HistogramSnapshot(tuple(each["counts"]), each["sum"])
        for each in plain
    }


def _read_event(plain: Mapping[str, Any]) -> Event:
    named = tuple(Partition(*each) for each in plain["partitions"])
    return Event(**{**plain, "partitions": named})


def _text(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
