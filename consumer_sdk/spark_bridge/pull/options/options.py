"""What a pulling query was asked to do: Spark's options, read once and checked.

Either ``url``, in which a secret may be named instead of written, or the option names of Spark's own Kafka
source, so that a query that exists ports by changing its format.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from consumer_sdk.adapters.urls import split_url
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import AtTime, Partition, StartPoint
from consumer_sdk.spark_bridge import option_values as values
from consumer_sdk.spark_bridge.columns import COLUMNS
from consumer_sdk.spark_bridge.option_values import choice, json_object, number, secret
from consumer_sdk.spark_bridge.pull.options.kafka_options import (
    MAX_BATCH,
    OUTAGE,
    STREAMS,
    KafkaSource,
    is_unused,
)
from consumer_sdk.spark_bridge.pull.options.kafka_security import TOKENS
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
    "UrlSource",
    "ending",
    "starting",
]

BROKERS = {"kafka": "kafka", "pulsar": "pulsar", "pulsar+ssl": "pulsar"}
GROUPS = {"kafka": "group", "pulsar": "subscription"}
"""The option of a URL that names whose position is moved."""
FORM = "give kafka://host:port/topic?group=name, pulsar://host:port/topic or feed:///directory"
WAITS = {"kafka": ("connect_timeout", "read_timeout"), "pulsar": ("stall_timeout",)}
"""Options of a URL that say how many seconds a task waits for the broker."""
SECRETS = ("sasl_plain_username", "sasl_plain_password", "token", "admin_token")
"""Options of a URL that may name a secret instead: ``token=env:TOKEN``."""


@dataclass(frozen=True, slots=True)
class UrlSource:
    """A ``kafka://`` or ``pulsar://`` URL, as `open_ranges` takes it.

    Attributes:
        url: with its secrets as they were given.
        shown: the URL without its options, for logs.
        broker: ``"kafka"`` or ``"pulsar"``.
        group: whose position is moved, or None.
    """

    url: str = field(repr=False)
    shown: str
    broker: str
    group: str | None

    @classmethod
    def parse(cls, url: str, group: str | None) -> UrlSource:
        """Reads a URL; ``group`` is what the option says, and goes into it.

        Raises:
            ConfigurationError: it is malformed, or of another scheme; or names another group.
        """
        shown = url.partition("?")[0].rpartition("@")[2]
        if shown.startswith("kinesis:"):
            raise ConfigurationError(
                f"url={shown!r}: Spark cannot pull from Kinesis, whose records have no numbers: "
                f"run a consumer that feeds a directory (SparkFeed), and read feed://"
            )
        parts, texts = split_url(url, BROKERS, FORM)
        broker = BROKERS[parts.scheme]
        name = GROUPS[broker]
        if group is not None and texts.setdefault(name, group) != group:
            raise ConfigurationError(
                f"group={group!r}, but the URL has {name}={texts[name]!r}: give one of them"
            )
        return cls(_with(parts, texts), shown, broker, texts.get(name))

    def for_tasks(self, outage: float | None = None) -> UrlSource:
        """The same without the group, which tasks have no business with.

        Nor do they need topics that are not theirs: one may be gone, and others are still read.

        Args:
            outage: how many seconds they wait for the broker; None for as long as it says itself.
        """
        parts, texts = _parts(self.url)
        texts.pop(GROUPS[self.broker], None)
        for name in WAITS[self.broker] if outage is not None else ():
            texts[name] = str(max(outage or 0, float(texts.get(name, 0))))
        if self.broker == "kafka":
            texts["require_topics"] = "false"
        return replace(self, url=_with(parts, texts), group=None)

    def open_reader(self) -> RangeReader:
        """A reader that is not open yet; secrets are looked up now.

        Raises:
            ConfigurationError: a secret cannot be found, or an option is wrong.
            MissingExtraError: the broker's client is not installed.
        """
        from consumer_sdk.adapters.ranges import open_ranges

        return open_ranges(self.resolved())

    def resolved(self) -> str:
        """The URL with the secrets themselves.

        Raises:
            ConfigurationError: a secret cannot be found.
        """
        parts, texts = _parts(self.url)
        found = {name: secret(name, text) for name, text in texts.items() if name in SECRETS}
        return _with(parts, texts | found)


def _parts(url: str) -> tuple[SplitResult, dict[str, str]]:
    parts = urlsplit(url)
    return parts, dict(parse_qsl(parts.query, keep_blank_values=True))


def _with(parts: SplitResult, texts: Mapping[str, str]) -> str:
    return parts._replace(query=urlencode(texts)).geturl()


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
    given = options.get(strategy, "error").strip().lower()
    is_latest = choice(strategy, given, ("error", "latest")) == "latest"
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
    return AtTime(number(option, text) / 1000)


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
