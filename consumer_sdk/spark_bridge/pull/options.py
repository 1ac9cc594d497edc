"""What a pulling query was asked to do: Spark's options, read once and checked.

Either ``url``, or the option names of Spark's own Kafka source, so that a query that exists ports
by changing its format.
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import StartPoint
from consumer_sdk.spark_bridge.columns import COLUMNS
from consumer_sdk.spark_bridge.pull import option_values as values
from consumer_sdk.spark_bridge.pull.admission import Limits
from consumer_sdk.spark_bridge.pull.kafka_options import STREAMS, KafkaSource
from consumer_sdk.spark_bridge.pull.kafka_settings import is_unused
from consumer_sdk.spark_bridge.pull.planning import Sizing
from consumer_sdk.spark_bridge.pull.start_options import ENDING, STARTING, ending, starting
from consumer_sdk.spark_bridge.pull.starts import Starts
from consumer_sdk.spark_bridge.pull.url_source import UrlSource

if TYPE_CHECKING:
    from consumer_sdk.range_reads import RangeReader

__all__ = ["AckMode", "PullOptions"]

AckMode: TypeAlias = Literal["auto", "commit", "none"]

OURS = (
    *("url", "group", "store", "ackMode", "strictAcks", "columns", "tasks", "includeHeaders"),
    *("failOnDataLoss", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *("maxBytesPerTrigger", "minPartitions", "maxRecordsPerPartition"),
    *(*STREAMS, *STARTING, *ENDING),
)
SPELLING = {name.lower(): name for name in OURS}
"""Spark hands options over in lower case."""


@dataclass(frozen=True, slots=True)
class PullOptions:
    """Everything that the options say; picklable, hashable, and its repr shows no secret.

    Attributes:
        source: what is read, and how it is connected to.
        starting: where the query begins; None where nothing was said.
        ending: likewise; for batch queries.
        fail_on_data_loss: raise `DataLossError` rather than go on.
        limits: of one micro-batch.
        sizing: of its tasks.
        column_names: of the rows, in order; keys of `spark_bridge.columns.COLUMNS`.
        store: the URL of a checkpoint store that is told too, or None.
        ack_mode: what moves the group's position; see the acks.
        strict_acks: a position that cannot be moved fails the query.
    """

    source: UrlSource | KafkaSource
    starting: Starts | None
    ending: Starts | None
    fail_on_data_loss: bool
    limits: Limits
    sizing: Sizing
    column_names: tuple[str, ...]
    store: str | None = field(repr=False)  # its URL may hold a password
    ack_mode: AckMode
    strict_acks: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> PullOptions:
        """Reads Spark's options; the case of their names does not matter.

        Raises:
            ConfigurationError: an option is unknown or its value wrong; says what is allowed.
        """
        given = _spelled(options)
        source = _source(given)
        made = cls(
            source=source,
            starting=starting(given),
            ending=ending(given),
            fail_on_data_loss=_truth(given, "failOnDataLoss", default=True),
            limits=_limits(given),
            sizing=_sizing(given),
            column_names=_columns(given, source.broker),
            store=given.get("store"),
            ack_mode=_ack_mode(given),
            strict_acks=_truth(given, "strictAcks", default=False),
        )
        made._check_acks()
        return made

    def _check_acks(self) -> None:
        if self.strict_acks and self.group is None and self.store is None:
            raise ConfigurationError("strictAcks=true needs a group or a store that is told")
        if self.strict_acks and self.ack_mode == "none":
            raise ConfigurationError("strictAcks=true and ackMode=none: give one of them")

    @property
    def broker(self) -> str:
        """``"kafka"`` or ``"pulsar"``."""
        return self.source.broker

    @property
    def group(self) -> str | None:
        """Whose position is moved; None for nobody's."""
        return self.source.group

    @property
    def with_headers(self) -> bool:
        """Headers have to be read."""
        return "headers" in self.column_names

    def stream_starts(self) -> Starts:
        """Where a streaming query begins: at the latest records, unless told otherwise.

        Raises:
            ConfigurationError: the options name an end, which a stream does not have.
        """
        if self.ending is not None:
            raise ConfigurationError(
                f"{self.ending.option} is for batch queries: a stream has no end; leave it out"
            )
        return self.starting or Starts(StartPoint.LATEST)

    def batch_bounds(self) -> tuple[Starts, Starts]:
        """Where a batch query begins and ends: all that there is, unless told otherwise.

        Raises:
            ConfigurationError: it would begin at the latest record.
        """
        begin = self.starting or Starts(StartPoint.EARLIEST)
        if StartPoint.LATEST in (begin.everywhere, *dict(begin.each).values()):
            raise ConfigurationError(
                f"{begin.option}: a batch query cannot begin at the latest record (-1): "
                f"nothing would be read; give earliest, a position or a time"
            )
        return begin, self.ending or Starts(StartPoint.LATEST, option="endingOffsets")

    def for_tasks(self) -> PullOptions:
        """For readers that read ranges and nothing else: they touch no group.

        A Pulsar reader that has one sees to its subscription on every partition when it opens,
        and a Kafka reader to its topics: neither is for each task to do.
        """
        return replace(self, source=self.source.for_tasks(), strict_acks=False)

    def open_reader(self) -> RangeReader:
        """A reader for them, not open yet; looks up secrets that are named by ``env:``, ``file:``.

        Raises:
            ConfigurationError: a secret cannot be found, or the reader refuses an option.
            MissingExtraError: the broker's client is not installed.
        """
        return self.source.open_reader()

    def identity(self) -> Hashable:
        """Equal for options that may share a connection, and for no others: all that makes one."""
        return self.source


def _spelled(options: Mapping[str, str]) -> dict[str, str]:
    """By the names as they are written here; ``kafka.…`` in lower case."""
    found = {}
    for name, value in options.items():
        lower = name.lower()
        if lower in SPELLING or lower.startswith("kafka."):
            found[SPELLING.get(lower, lower)] = value
        elif not is_unused(lower):
            raise ConfigurationError(_unknown(name))
    return found


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), SPELLING, n=1)
    hint = f"did you mean {SPELLING[near[0]]}?" if near else f"there are {', '.join(OURS)}"
    return f"unknown option {name}: {hint}"


def _source(given: Mapping[str, str]) -> UrlSource | KafkaSource:
    group = given.get("group")
    if group is not None and not group.strip():
        raise ConfigurationError(f"group={group!r}: give a name, or leave it out")
    if "url" not in given:
        return KafkaSource.parse(given, group)
    others = [name for name in given if name in STREAMS or name.startswith("kafka.")]
    if others:
        raise ConfigurationError(
            f"url and {', '.join(sorted(others))}: the URL says it all; give one of the two"
        )
    return UrlSource.parse(given["url"], group)


def _truth(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    return values.truth(name, given[name]) if name in given else default


def _count(given: Mapping[str, str], name: str) -> int | None:
    return values.count(name, given[name]) if name in given else None


def _limits(given: Mapping[str, str]) -> Limits:
    most, least = (_count(given, f"{name}OffsetsPerTrigger") for name in ("max", "min"))
    if most is not None and least is not None and least > most:
        raise ConfigurationError(
            f"minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}: no batch fits"
        )
    delay = values.duration("maxTriggerDelay", given.get("maxTriggerDelay", "15m"))
    return Limits(most, least, delay, _count(given, "maxBytesPerTrigger"))


def _sizing(given: Mapping[str, str]) -> Sizing:
    names = ("minPartitions", "maxRecordsPerPartition", "tasks")
    return Sizing(*(_count(given, name) for name in names))


def _columns(given: Mapping[str, str], broker: str) -> tuple[str, ...]:
    with_headers = _truth(given, "includeHeaders", default=False)
    if "columns" not in given:
        left_out = set() if with_headers else {"headers"}
        left_out |= {"partitionId", "position"} if broker == "kafka" else set()
        return tuple(name for name in COLUMNS if name not in left_out)
    found = values.names("columns", given["columns"])
    for name in found:
        values.choice("columns", name, tuple(COLUMNS))
    return found


def _ack_mode(given: Mapping[str, str]) -> AckMode:
    modes = get_args(AckMode)
    return cast("AckMode", values.choice("ackMode", given.get("ackMode", "auto").lower(), modes))
