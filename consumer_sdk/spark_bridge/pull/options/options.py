"""What a pulling query was asked to do: Spark's options, read once and checked.

Either ``url``, in which a secret may be named instead of written, or the option names of Spark's own Kafka
source, so that a query that exists ports by changing its format.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import TEXT, option, spelling_of
from consumer_sdk.records import AtTime, Partition, StartPoint
from consumer_sdk.spark_bridge.columns import COLUMNS
from consumer_sdk.spark_bridge.option_values import (
    COUNT,
    DURATION,
    NAMES,
    NUMBER,
    TRUTH,
    choice,
    json_object,
    one_of,
    read_fields,
    spelled,
)
from consumer_sdk.spark_bridge.pull.options.kafka_security import TOKENS
from consumer_sdk.spark_bridge.pull.options.sources import (
    MAX_BATCH,
    OUTAGE,
    STREAMS,
    KafkaSource,
    UrlSource,
    is_unused,
)
from consumer_sdk.spark_bridge.pull.planning.admission import Limits
from consumer_sdk.spark_bridge.pull.planning.starts import PositionText, Starts, Wanted
from consumer_sdk.spark_bridge.pull.planning.tasks import Sizing

if TYPE_CHECKING:
    from consumer_sdk.range_reads import RangeReader

__all__ = [
    "ENDING",
    "PATIENCE",
    "STARTING",
    "AckMode",
    "PullOptions",
    "PullSettings",
    "ending",
    "starting",
]

STARTING = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
)
ENDING = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")

POINTS = {
    "earliest": StartPoint.EARLIEST,
    "latest": StartPoint.LATEST,
    "committed": StartPoint.BROKER,
}
SPECIAL = {-2: StartPoint.EARLIEST, -1: StartPoint.LATEST}
POSITIONS = '{"topic":{"0":23,"1":-2}} (-2: earliest, -1: latest)'
TIMES = '{"topic":{"0":1700000000000,"1":-2}} (milliseconds; -2: earliest, -1: latest)'


def starting(options: Mapping[str, str]) -> Starts | None:
    """Where the query begins; None where no option says.

    A time for all comes before times for each, and these before positions, as in Spark.

    Raises:
        ConfigurationError: a value is wrong.
    """
    strategy = "startingOffsetsByTimestampStrategy"
    is_latest = TOO_LATE.parse(strategy, options.get(strategy, "error")) == "latest"
    return _bound(options, STARTING, tuple(POINTS), StartPoint.LATEST if is_latest else None)


def ending(options: Mapping[str, str]) -> Starts | None:
    """Where a batch query ends; None where no option says. A time too late is the latest record.

    Raises:
        ConfigurationError: a value is wrong.
    """
    found = _bound(options, ENDING, ("latest",), StartPoint.LATEST)
    if found and StartPoint.EARLIEST in dict(found.each).values():
        raise ConfigurationError(f"{found.option}: a query cannot end at -2, the earliest record")
    return found


def _bound(
    options: Mapping[str, str],
    names: tuple[str, ...],
    points: tuple[str, ...],
    late: StartPoint | None,
) -> Starts | None:
    at, each_at, positions, *_ = names
    if (text := options.get(at)) is not None:
        return Starts(_time(at, text), option=at, late=late)
    if (text := options.get(each_at)) is not None:
        return Starts(None, _each(each_at, text, TIMES, _time_of), each_at, late)
    if (text := options.get(positions)) is not None:
        return _positions(positions, text, points)
    return None


def _positions(option: str, text: str, points: tuple[str, ...]) -> Starts:
    point = text.strip().lower()
    if point in points:
        return Starts(POINTS[point], option=option)
    form = f"{', '.join(points)} or {POSITIONS}"
    return Starts(None, _each(option, text, form, _position), option)


def _each(
    option: str, text: str, form: str, read: Callable[[str, Any], Wanted | None]
) -> tuple[tuple[Partition, Wanted], ...]:
    found = []
    for stream, partitions in json_object(option, text, form).items():
        for id_, value in partitions.items():
            wanted = read(option, value)
            if wanted is None:
                raise ConfigurationError(f"{option}: {value!r} of {stream}/{id_}: give {form}")
            found.append((Partition(stream, id_), wanted))
    return tuple(sorted(found, key=lambda pair: pair[0]))


def _position(_option: str, value: Any) -> Wanted | None:
    if type(value) is int:
        return PositionText(str(value)) if value >= 0 else SPECIAL.get(value)
    return PositionText(value) if isinstance(value, str) else None


def _time_of(option: str, value: Any) -> Wanted | None:
    if type(value) is not int and not isinstance(value, str):
        return None
    special = {str(number): point for number, point in SPECIAL.items()}
    return special.get(str(value).strip()) or _time(option, str(value))


def _time(option: str, text: str) -> AtTime:
    return AtTime(NUMBER.parse(option, text) / 1000)


PATIENCE = 30.0
"""How many seconds of an outage a query sits out before it fails."""

AckMode: TypeAlias = Literal["auto", "commit", "none"]


URL = replace(TEXT, wanted="kafka:// or pulsar://")
GROUP = replace(TEXT, wanted="a name")
STORE_URL = replace(TEXT, wanted="sqlite:// or zookeeper://")
STARTS = replace(TEXT, wanted="earliest, latest, committed, or positions as JSON")
ENDS = replace(TEXT, wanted="latest, or positions as JSON")
TIME = replace(TEXT, wanted="milliseconds")
TIMES_OF_EACH = replace(TEXT, wanted="milliseconds as JSON")
TOO_LATE = one_of(("error", "latest"), any_case=True)
OVERFLOW = one_of(("error", "null"), any_case=True)
ACK_MODE = one_of(get_args(AckMode), any_case=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """Spark's options of a pulling query, but for ``kafka.…``: each with what its text means.

    Attributes:
        url: a broker's URL. Without it, give ``kafka.bootstrap.servers`` with one of ``subscribe``,
            ``subscribePattern``, ``assign``, as for Spark's Kafka source. A ``subscribePattern`` matches a part
            of a topic's name: ``o`` chooses ``orders``.
        group: the consumer group whose offset follows the query; ``kafka.group.id`` means the same. Without
            a group, no offset is moved. By default the URL's group.
        starting_offsets: ``earliest``, ``latest``, ``committed`` (the position in ``store`` or of the group,
            or else the earliest), or ``{"orders":{"0":23,"1":-2}}``, where -2 is earliest and -1 latest. By
            default ``latest``, for a batch ``earliest``. The functions of the bridge also take a dictionary.
            Pulsar's positions are texts.
        starting_timestamp: milliseconds, for all partitions; it overrides ``startingOffsets``.
        starting_offsets_by_timestamp: milliseconds for each partition (-2 is earliest, -1 latest); they
            override ``startingOffsets``.
        starting_offsets_by_timestamp_strategy: what to do if the time is after the last record.
        ending_offsets: the end of a batch; by default ``latest``. An end before the start is an error.
        ending_timestamp: the end of a batch in milliseconds, for all partitions.
        ending_offsets_by_timestamp: the end of a batch in milliseconds, for each partition.
        max_offsets_per_trigger: most records in a micro-batch. Each partition gets a share in proportion to
            its waiting records, and at least one record.
        max_bytes_per_trigger: most bytes in a micro-batch, shared in the same way; approximate, counted as
            the broker stores them.
        min_offsets_per_trigger: minimum records per micro-batch; with fewer, the query waits.
        max_trigger_delay: longest time to wait for that minimum.
        min_partitions: minimum number of tasks; large ranges are split.
        max_records_per_partition: most records in a task; approximate.
        tasks: maximum number of tasks, unless the two options above ask for more; by default Spark's
            parallelism. A micro-batch has one task for each 50 000 records, up to this maximum. With ``format()``
            alone, without ``register``, the default maximum is the number of ranges.
        fail_on_data_loss: whether lost records fail the query.
        include_headers: adds a column ``headers``.
        columns: the columns to decode; by default all. ``.schema(…)`` with some of the columns does the same.
        max_outage: how long the broker may be unreachable before the query fails, both where Spark plans
            and in its tasks; by default 30 s. ``kafka.default.api.timeout.ms`` means the same.
        max_batch_bytes: largest decompressed size of a Kafka record batch; a larger one fails the query. By default
            128 MiB. In a URL: ``max_batch_bytes``.
        timestamp_overflow: what to do with a record's timestamp after the year 290 000, which Spark's
            microseconds cannot hold: ``error`` names the record and fails the query, ``null`` leaves the
            column null.
        ack_mode: when the group's offset moves.
        strict_acks: whether a group whose offset cannot be moved fails the query.
        store: the URL of a checkpoint store, to which the position is written before the broker.
    """

    url: str | None = option(URL, default=None, repr=False)  # it may hold a password
    group: str | None = option(GROUP, default=None)
    starting_offsets: str | None = option(STARTS, spelled="startingOffsets", default=None)
    starting_timestamp: str | None = option(TIME, spelled="startingTimestamp", default=None)
    starting_offsets_by_timestamp: str | None = option(
        TIMES_OF_EACH, spelled="startingOffsetsByTimestamp", default=None
    )
    starting_offsets_by_timestamp_strategy: str = option(
        TOO_LATE, spelled="startingOffsetsByTimestampStrategy", default="error"
    )
    ending_offsets: str | None = option(ENDS, spelled="endingOffsets", default=None)
    ending_timestamp: str | None = option(TIME, spelled="endingTimestamp", default=None)
    ending_offsets_by_timestamp: str | None = option(
        TIMES_OF_EACH, spelled="endingOffsetsByTimestamp", default=None
    )
    max_offsets_per_trigger: int | None = option(
        COUNT, spelled="maxOffsetsPerTrigger", default=None
    )
    max_bytes_per_trigger: int | None = option(COUNT, spelled="maxBytesPerTrigger", default=None)
    min_offsets_per_trigger: int | None = option(
        COUNT, spelled="minOffsetsPerTrigger", default=None
    )
    max_trigger_delay: float = option(DURATION, spelled="maxTriggerDelay", default=900.0)
    min_partitions: int | None = option(COUNT, spelled="minPartitions", default=None)
    max_records_per_partition: int | None = option(
        COUNT, spelled="maxRecordsPerPartition", default=None
    )
    tasks: int | None = option(COUNT, default=None)
    fail_on_data_loss: bool = option(TRUTH, spelled="failOnDataLoss", default=True)
    include_headers: bool = option(TRUTH, spelled="includeHeaders", default=False)
    columns: tuple[str, ...] | None = option(NAMES, default=None)
    max_outage: float | None = option(DURATION, spelled="maxOutage", default=None)
    max_batch_bytes: int | None = option(COUNT, spelled=MAX_BATCH, default=None)
    timestamp_overflow: str = option(OVERFLOW, spelled="timestampOverflow", default="error")
    ack_mode: AckMode = option(ACK_MODE, spelled="ackMode", default="auto")
    strict_acks: bool = option(TRUTH, spelled="strictAcks", default=False)
    store: str | None = option(STORE_URL, default=None, repr=False)  # it may hold a password

    def __post_init__(self) -> None:
        if self.group is not None and not self.group.strip():
            raise ConfigurationError(f"group={self.group!r}: give a name, or leave it out")

    def limits(self) -> Limits:
        """Of one micro-batch."""
        most, least = self.max_offsets_per_trigger, self.min_offsets_per_trigger
        if most is not None and least is not None and least > most:
            raise ConfigurationError(
                f"minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}: no batch fits"
            )
        return Limits(most, least, self.max_trigger_delay, self.max_bytes_per_trigger)

    def column_names(self, broker: str) -> tuple[str, ...]:
        """Of the rows, in order."""
        if self.columns is None:
            left_out = set() if self.include_headers else {"headers"}
            left_out |= {"partitionId", "position"} if broker == "kafka" else set()
            return tuple(name for name in COLUMNS if name not in left_out)
        return tuple(choice("columns", name, tuple(COLUMNS)) for name in self.columns)


OURS = (*spelling_of(PullSettings), *STREAMS, TOKENS)


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
        given = spelled(options, OURS, is_unused)
        settings = read_fields(PullSettings, given)
        source = _source(given, settings)
        made = cls(
            source=source,
            starting=starting(given),
            ending=ending(given),
            fail_on_data_loss=settings.fail_on_data_loss,
            limits=settings.limits(),
            sizing=Sizing(
                settings.min_partitions, settings.max_records_per_partition, settings.tasks
            ),
            column_names=settings.column_names(source.broker),
            null_times=settings.timestamp_overflow == "null",
            store=settings.store,
            outage=_outage(given, settings),
            ack_mode=settings.ack_mode,
            strict_acks=settings.strict_acks,
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


def _source(given: Mapping[str, str], settings: PullSettings) -> UrlSource | KafkaSource:
    if settings.url is None:
        return KafkaSource.parse(given, settings.group)
    others = [n for n in given if n in (*STREAMS, TOKENS, MAX_BATCH) or n.startswith("kafka.")]
    if others:
        raise ConfigurationError(
            f"url and {', '.join(sorted(others))}: the URL says it all; give one of the two"
        )
    return UrlSource.parse(settings.url, settings.group)


def _outage(given: Mapping[str, str], settings: PullSettings) -> float | None:
    if OUTAGE not in given:
        return settings.max_outage
    if settings.max_outage is not None:
        raise ConfigurationError(f"maxOutage and {OUTAGE} say the same: give one of them")
    seconds: float = DURATION.parse(OUTAGE, given[OUTAGE])
    return seconds
