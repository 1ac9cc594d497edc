"""What a pulling query reads: a Kafka by the option names of Spark's own source, or a broker by its URL.

Of the settings of Java's clients (``kafka.…``) some have a counterpart here. Tuning of Java's client is
accepted and means nothing, so that a query ports unchanged. What cannot be kept is refused, with what to do.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from consumer_sdk.adapters.urls import split_url
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import TEXT, OptionType
from consumer_sdk.spark_bridge.option_values import (
    COUNT,
    MILLISECONDS,
    NAMES,
    NUMBER,
    TRUTH,
    choice,
    json_object,
    one_of,
    secret,
)
from consumer_sdk.spark_bridge.pull.options.kafka_security import (
    SECURITY,
    check_security,
    secured,
    security_of,
)

if TYPE_CHECKING:
    from consumer_sdk.range_reads import RangeReader

__all__ = [
    "CLIENT",
    "MAX_BATCH",
    "OUTAGE",
    "SERVERS",
    "STREAMS",
    "WRITES",
    "WRITING",
    "KafkaSource",
    "UrlSource",
    "check_names",
    "is_unused",
    "servers_of",
]

SERVERS = "kafka.bootstrap.servers"
GROUP = "kafka.group.id"
OUTAGE = "kafka.default.api.timeout.ms"
LEVEL = "kafka.isolation.level"
MAX_BATCH = "maxBatchBytes"
LEVELS = ("read_uncommitted", "read_committed")


CLIENT: Mapping[str, tuple[str, OptionType]] = {
    "kafka.client.id": ("client_id", TEXT),
    "kafka.client.rack": ("client_rack", TEXT),
    "kafka.request.timeout.ms": ("read_timeout", MILLISECONDS),
    "kafka.socket.connection.setup.timeout.ms": ("connect_timeout", MILLISECONDS),
    "kafka.metadata.max.age.ms": ("metadata_max_age_ms", COUNT),
    "kafka.retry.backoff.ms": ("retry_backoff_ms", NUMBER),
    "kafka.connections.max.idle.ms": ("connections_max_idle_ms", COUNT),
    MAX_BATCH: ("max_batch_bytes", COUNT),
}
"""Client settings that have a counterpart; the last one is ours."""

UNUSED = (
    *("groupidprefix", "kafkaconsumer.polltimeoutms"),
    *("fetchoffset.numretries", "fetchoffset.retryintervalms"),
    *("kafka.allow.auto.create.topics", "kafka.check.crcs", "kafka.client.dns.lookup"),
    "kafka.fetch.max.bytes",
    *("kafka.fetch.max.wait.ms", "kafka.fetch.min.bytes", "kafka.heartbeat.interval.ms"),
    *("kafka.max.partition.fetch.bytes", "kafka.max.poll.interval.ms"),
    *("kafka.max.poll.records", "kafka.receive.buffer.bytes", "kafka.reconnect.backoff.max.ms"),
    *("kafka.reconnect.backoff.ms", "kafka.retry.backoff.max.ms", "kafka.send.buffer.bytes"),
    *("kafka.session.timeout.ms", "kafka.socket.connection.setup.timeout.max.ms"),
)
"""Tuning of Java's consumer, which does not run here: accepted, so that a query ports unchanged."""

JAVA = "Java classes do not run here"
REFUSED = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "use group and ackMode",
    "kafka.interceptor.classes": JAVA,
    "kafka.key.deserializer": "the column key is binary: cast it",
    "kafka.value.deserializer": "the column value is binary: cast it",
    "kafka.group.instance.id": "a query joins no group: leave it out",
    "kafka.group.protocol": "a query joins no group: leave it out",
    "kafka.metric.reporters": f"{JAVA}: use spark_bridge.watch",
    "kafka.sasl.client.callback.handler.class": JAVA,
    "kafka.sasl.login.callback.handler.class": JAVA,
}
"""Settings that cannot be kept here → what to do."""
OPENSSL = (
    "Python's TLS has OpenSSL's settings (MinProtocol, CipherString in openssl.cnf): leave it out"
)
KERBEROS = "Kerberos cannot be used here: let the broker offer PLAIN, SCRAM or OAUTHBEARER"
REFUSED_KINDS = {
    "kafka.ssl.protocol": OPENSSL,
    "kafka.ssl.enabled.protocols": OPENSSL,
    "kafka.ssl.cipher.suites": OPENSSL,
    "kafka.sasl.kerberos.": KERBEROS,
}
"""Beginnings of their names → what to do."""


ACKS = one_of({"all": "all", "-1": "all", "1": 1})
COMPRESSION = one_of({"none": None} | {each: each for each in ("gzip", "snappy", "lz4", "zstd")})
WRITES: Mapping[str, tuple[str, OptionType]] = {
    "kafka.acks": ("acks", ACKS),
    "kafka.batch.size": ("max_batch_size", COUNT),
    "kafka.client.id": ("client_id", TEXT),
    "kafka.compression.type": ("compression_type", COMPRESSION),
    "kafka.connections.max.idle.ms": ("connections_max_idle_ms", COUNT),
    "kafka.delivery.timeout.ms": ("delivery_timeout", MILLISECONDS),
    "kafka.enable.idempotence": ("enable_idempotence", TRUTH),
    "kafka.max.block.ms": ("connect_timeout", MILLISECONDS),
    "kafka.max.request.size": ("max_request_size", COUNT),
    "kafka.metadata.max.age.ms": ("metadata_max_age_ms", COUNT),
    "kafka.request.timeout.ms": ("request_timeout_ms", COUNT),
    "kafka.retry.backoff.ms": ("retry_backoff_ms", NUMBER),
}
"""Settings of Java's producer that have a counterpart."""


@dataclass(frozen=True, slots=True)
class Names:
    """Which settings there are.

    Attributes:
        known: those that mean something.
        unused: accepted, so that a query ports unchanged.
        refused: those that cannot be kept → what to do.
    """

    known: Sequence[str]
    unused: Collection[str]
    refused: Mapping[str, str]


READING = Names((SERVERS, GROUP, LEVEL, OUTAGE, *CLIENT, *SECURITY), UNUSED, REFUSED)
WRITING = Names(
    (SERVERS, *WRITES, *SECURITY),
    (
        *("kafka.allow.auto.create.topics", "kafka.buffer.memory", "kafka.client.dns.lookup"),
        *("kafka.compression.gzip.level", "kafka.compression.lz4.level"),
        *("kafka.compression.zstd.level", "kafka.linger.ms", "kafka.metadata.max.idle.ms"),
        *("kafka.max.in.flight.requests.per.connection", "kafka.receive.buffer.bytes"),
        *("kafka.partitioner.adaptive.partitioning.enable", "kafka.reconnect.backoff.max.ms"),
        *("kafka.partitioner.availability.timeout.ms", "kafka.reconnect.backoff.ms"),
        *("kafka.retries", "kafka.retry.backoff.max.ms", "kafka.send.buffer.bytes"),
        *("kafka.socket.connection.setup.timeout.max.ms",),
        *("kafka.socket.connection.setup.timeout.ms",),
    ),
    {
        **{name: why for name, why in REFUSED.items() if why.startswith(JAVA)},
        "kafka.key.serializer": "the column key is binary or a string",
        "kafka.value.serializer": "the column value is binary or a string",
        "kafka.partitioner.class": "give a column partition",
        "kafka.partitioner.ignore.keys": "leave the column key out, or give a column partition",
        "kafka.transactional.id": "rows are written at least once, without a transaction",
        "kafka.transaction.timeout.ms": "rows are written at least once, without a transaction",
    },
)


def is_unused(option: str) -> bool:
    """Whether an option, in lower case, is accepted and means nothing."""
    return option in UNUSED


def check_names(options: Mapping[str, str], names: Names = READING) -> None:
    """Finds settings that would not be kept.

    Raises:
        ConfigurationError: one is unknown, or cannot be kept here; says what to do.
    """
    for name in options:
        kinds = [why for begin, why in REFUSED_KINDS.items() if name.startswith(begin)]
        if name in names.refused or kinds:
            raise ConfigurationError(f"{name} cannot be set: {names.refused.get(name) or kinds[0]}")
        if name.startswith("kafka.") and name not in (*names.known, *names.unused):
            near = difflib.get_close_matches(name, names.known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names.known)}"
            raise ConfigurationError(f"unknown option {name}: {hint}")


STREAMS = ("subscribe", "subscribePattern", "assign")
"""Each chooses topics; a query has one of them."""


PREFIX = re.compile(r"^[0-9a-zA-Z%._-]*://")
"""Of a server, as a broker's ``advertised.listeners`` has it; Java's client passes over it too."""
WAITS = {"connect_timeout": 10.0, "read_timeout": 30.0}
"""How long a task waits for the broker: arguments of `KafkaRanges`, and their defaults."""


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """Topics and a connection; secrets are still as they were given.

    Attributes:
        servers: ``host:port``, with commas between.
        topics: their names; none with a pattern, or where partitions are named.
        pattern: found anywhere in a topic's name, as Spark's is; or None.
        partitions: ``(topic, numbers)``: the only ones that are read; or None.
        group: whose position is moved, or None.
        client: keyword arguments of `KafkaRanges`.
        security: settings of the protocol, of SASL and of TLS, by their names in Kafka.
    """

    broker: ClassVar[str] = "kafka"

    servers: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[tuple[str, tuple[int, ...]], ...] | None = None
    group: str | None = None
    client: tuple[tuple[str, Any], ...] = ()
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str], group: str | None) -> KafkaSource:
        """Reads those of Spark's options that choose topics or configure the connection.

        Args:
            options: those of `STREAMS` by their names, and ``kafka.…`` in lower case.
            group: what the option ``group`` says.

        Raises:
            ConfigurationError: a setting is unknown or wrong.
        """
        check_names(options)
        check_security(options)
        return cls(
            servers=servers_of(options),
            **_streams(options),
            group=_group(options.get(GROUP), group),
            client=tuple(sorted(_client(options).items())),
            security=security_of(options),
        )

    def for_tasks(self, outage: float | None = None) -> KafkaSource:
        """The same without the group, which tasks have no business with.

        Nor do they need topics that are not theirs: one may be gone, and others are still read.

        Args:
            outage: how many seconds they wait for the broker; None for as long as it says itself.
        """
        given = dict(self.client)
        waits = {name: max(outage or 0, given.get(name, least)) for name, least in WAITS.items()}
        client = given | waits | {"require_topics": False}
        return replace(self, group=None, client=tuple(sorted(client.items())))

    def open_reader(self) -> RangeReader:
        """A reader that is not open yet; secrets are looked up now.

        Raises:
            ConfigurationError: a secret or file cannot be read.
            MissingExtraError: Kafka's client is not installed.
        """
        from consumer_sdk.adapters.kafka.ranges import KafkaRanges

        return KafkaRanges(**self.arguments())

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `KafkaRanges`, with the secrets themselves.

        Raises:
            ConfigurationError: a secret or file cannot be read.
        """
        return {
            "topics": self.topics,
            "bootstrap_servers": self.servers,
            "group": self.group,
            "pattern": self.pattern,
            "whole_names": False,
            "partitions": None if self.partitions is None else dict(self.partitions),
            **dict(self.client),
            **secured(dict(self.security)),
        }


def servers_of(options: Mapping[str, str]) -> str:
    """``host:port``, with commas between.

    Raises:
        ConfigurationError: there is none.
    """
    if not options.get(SERVERS, "").strip():
        raise ConfigurationError(f"{SERVERS} is missing: give host:port, several with commas")
    return ",".join(PREFIX.sub("", server.strip()) for server in options[SERVERS].split(","))


def _streams(options: Mapping[str, str]) -> dict[str, Any]:
    given = [name for name in STREAMS if name in options]
    if len(given) != 1:
        raise ConfigurationError(f"give one of {', '.join(STREAMS)}; there is {given or 'none'}")
    text = options[given[0]]
    if given == ["subscribePattern"]:
        return {"pattern": text}
    if given == ["subscribe"]:
        return {"topics": NAMES.parse("subscribe", text)}
    return {"partitions": _assigned(text)}


def _assigned(text: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    form = '{"topic":[0,1]}'
    found = json_object("assign", text, form, list)
    if not all(type(number) is int and number >= 0 for each in found.values() for number in each):
        raise ConfigurationError(f"assign={text!r}: give {form}")
    return tuple((topic, tuple(sorted(found[topic]))) for topic in sorted(found))


def _group(kafkas: str | None, ours: str | None) -> str | None:
    if kafkas is not None and ours is not None and kafkas != ours:
        raise ConfigurationError(f"{GROUP}={kafkas!r} and group={ours!r}: give one of them")
    return kafkas if ours is None else ours


def _client(options: Mapping[str, str]) -> dict[str, Any]:
    # Spark's default, other than that of the URL: a query that ports reads what it has read.
    level = choice(LEVEL, options.get(LEVEL, LEVELS[0]), LEVELS)
    found = {
        argument: kind.parse(n, options[n])
        for n, (argument, kind) in CLIENT.items()
        if n in options
    }
    return found | {"isolation_level": level}


BROKERS = {"kafka": "kafka", "pulsar": "pulsar", "pulsar+ssl": "pulsar"}
GROUPS = {"kafka": "group", "pulsar": "subscription"}
"""The option of a URL that names whose position is moved."""
URL_FORM = "give kafka://host:port/topic?group=name, pulsar://host:port/topic or feed:///directory"
URL_WAITS = {"kafka": ("connect_timeout", "read_timeout"), "pulsar": ("stall_timeout",)}
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
        parts, texts = split_url(url, BROKERS, URL_FORM)
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
        for name in URL_WAITS[self.broker] if outage is not None else ():
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
        from consumer_sdk.adapters.urls import open_ranges

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
