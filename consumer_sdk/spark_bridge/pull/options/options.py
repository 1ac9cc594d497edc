"""What a pulling query was asked to do: Spark's options, read once and checked.

Either ``url``, or the option names of Spark's own Kafka source, so that a query that exists ports
by changing its format.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import StartPoint
from consumer_sdk.spark_bridge.columns import COLUMNS
from consumer_sdk.spark_bridge.pull.options import option_values as values
from consumer_sdk.spark_bridge.pull.options.kafka_options import STREAMS, KafkaSource
from consumer_sdk.spark_bridge.pull.options.kafka_security import TOKENS
from consumer_sdk.spark_bridge.pull.options.kafka_settings import MAX_BATCH, OUTAGE, is_unused
from consumer_sdk.spark_bridge.pull.options.start_options import ENDING, STARTING, ending, starting
from consumer_sdk.spark_bridge.pull.options.url_source import UrlSource
from consumer_sdk.spark_bridge.pull.planning.admission import Limits
from consumer_sdk.spark_bridge.pull.planning.starts import Starts
from consumer_sdk.spark_bridge.pull.planning.tasks import Sizing

if TYPE_CHECKING:
    from consumer_sdk.range_reads import RangeReader

__all__ = ["PATIENCE", "AckMode", "PullOptions"]

PATIENCE = 30.0
"""How many seconds of an outage a query sits out before it fails."""

AckMode: TypeAlias = Literal["auto", "commit", "none"]

OURS = (
    *("url", "group", "store", "ackMode", "strictAcks", "columns", "tasks", "includeHeaders"),
    *("failOnDataLoss", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *(
        "maxBytesPerTrigger",
        "minPartitions",
        "maxRecordsPerPartition",
        "timestampOverflow",
        "maxOutage",
    ),
    *(*STREAMS, TOKENS, MAX_BATCH, *STARTING, *ENDING),
)


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
        null_times: a record's time that Spark cannot hold is null, and no error.
        store: the URL of a checkpoint store that is told too, or None.
        outage: seconds that the broker may be away before the query fails; None where nothing was
            said.
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
    null_times: bool
    store: str | None = field(repr=False)  # its URL may hold a password
    outage: float | None
    ack_mode: AckMode
    strict_acks: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> PullOptions:
        """Reads Spark's options; the case of their names does not matter.

        Raises:
            ConfigurationError: an option is unknown or its value wrong; says what is allowed.
        """
        given = values.spelled(options, OURS, is_unused)
        source = _source(given)
        made = cls(
            source=source,
            starting=starting(given),
            ending=ending(given),
            fail_on_data_loss=_truth(given, "failOnDataLoss", default=True),
            limits=_limits(given),
            sizing=_sizing(given),
            column_names=_columns(given, source.broker),
            null_times=_null_times(given),
            store=given.get("store"),
            outage=_outage(given),
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
        return replace(self, source=self.source.for_tasks(self.outage), strict_acks=False)

    @property
    def patience(self) -> float:
        """How many seconds of an outage the query sits out."""
        return PATIENCE if self.outage is None else self.outage

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


def _source(given: Mapping[str, str]) -> UrlSource | KafkaSource:
    group = given.get("group")
    if group is not None and not group.strip():
        raise ConfigurationError(f"group={group!r}: give a name, or leave it out")
    if "url" not in given:
        return KafkaSource.parse(given, group)
    others = [n for n in given if n in (*STREAMS, TOKENS, MAX_BATCH) or n.startswith("kafka.")]
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


def _outage(given: Mapping[str, str]) -> float | None:
    names = [name for name in ("maxOutage", OUTAGE) if name in given]
    if len(names) > 1:
        raise ConfigurationError(f"{' and '.join(names)} say the same: give one of them")
    return values.duration(names[0], given[names[0]]) if names else None


def _null_times(given: Mapping[str, str]) -> bool:
    found = given.get("timestampOverflow", "error").lower()
    return values.choice("timestampOverflow", found, ("error", "null")) == "null"


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
