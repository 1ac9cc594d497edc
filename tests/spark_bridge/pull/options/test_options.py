"""Everything that the options of a pulling query say."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import AtTime, StartPoint
from consumer_sdk.spark_bridge.pull.options.options import PullOptions, PullSettings
from consumer_sdk.spark_bridge.pull.planning.admission import Limits
from consumer_sdk.spark_bridge.pull.planning.starts import Starts
from consumer_sdk.spark_bridge.pull.planning.tasks import Sizing

URL = {"url": "kafka://127.0.0.1:1/orders"}
KAFKA = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}
SPARKS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


@pytest.mark.parametrize("given", [URL, KAFKA])
def test_defaults_are_sparks(given: dict[str, str]) -> None:
    """A stream from latest, a batch of all, losses fail, no limits; nobody's group."""
    options = PullOptions.parse(given)
    assert options.stream_starts() == Starts(StartPoint.LATEST)
    begin, end = options.batch_bounds()
    assert (begin.everywhere, end.everywhere) == (StartPoint.EARLIEST, StartPoint.LATEST)
    assert options.fail_on_data_loss
    assert (options.limits, options.sizing) == (Limits(max_delay=900), Sizing())
    assert (options.group, options.store) == (None, None)
    assert (options.ack_mode, options.strict_acks) == ("auto", False)
    assert (options.column_names, options.with_headers) == (SPARKS, False)


def test_every_option_is_read_in_lower_case() -> None:
    """As Spark hands them over."""
    given = {
        "failOnDataLoss": "false",
        "maxOffsetsPerTrigger": "100",
        "minOffsetsPerTrigger": "10",
        "maxTriggerDelay": "1m",
        "maxBytesPerTrigger": "4096",
        "minPartitions": "4",
        "maxRecordsPerPartition": "50",
        "tasks": "8",
        "includeHeaders": "true",
        "group": "etl",
        "store": "sqlite:///var/state.db",
        "ackMode": "Commit",
        "strictAcks": "true",
        "startingTimestamp": "1500",
    }
    options = PullOptions.parse({name.lower(): value for name, value in (URL | given).items()})
    assert options == PullOptions.parse(URL | given)
    assert not options.fail_on_data_loss
    assert options.limits == Limits(100, 10, 60, 4096)
    assert options.sizing == Sizing(4, 50, 8)
    assert (options.group, options.store) == ("etl", "sqlite:///var/state.db")
    assert (options.ack_mode, options.strict_acks) == ("commit", True)
    assert options.stream_starts().everywhere == AtTime(1.5)
    assert options.with_headers


def test_columns_are_sparks_and_what_a_broker_adds() -> None:
    """Pulsar has no integers; headers come where Spark has them; or exactly what is asked for."""
    assert PullOptions.parse(KAFKA | {"includeHeaders": "true"}).column_names == (
        *SPARKS,
        "headers",
    )
    pulsar = PullOptions.parse({"url": "pulsar://h/t"})
    assert (pulsar.broker, pulsar.column_names) == ("pulsar", (*SPARKS, "partitionId", "position"))
    asked = PullOptions.parse(URL | {"columns": "value, headers,position"})
    assert (asked.column_names, asked.with_headers) == (("value", "headers", "position"), True)


def test_a_stream_has_no_end() -> None:
    """As in Spark."""
    with pytest.raises(ConfigurationError, match="endingOffsets is for batch queries"):
        PullOptions.parse(URL | {"endingOffsets": "latest"}).stream_starts()


@pytest.mark.parametrize("text", ["latest", '{"orders":{"0":-1}}'])
def test_a_batch_cannot_begin_at_the_latest(text: str) -> None:
    """As in Spark: it would read nothing."""
    with pytest.raises(ConfigurationError, match="startingOffsets: a batch query cannot begin"):
        PullOptions.parse(URL | {"startingOffsets": text}).batch_bounds()


@pytest.mark.parametrize(
    "given, complaint",
    [
        ({}, "kafka.bootstrap.servers is missing"),
        (URL | KAFKA, "url and kafka.bootstrap.servers, subscribe: .*one of the two"),
        (URL | {"kafka.client.id": "x"}, "url and kafka.client.id"),
        (URL | {"maxoffsetpertrigger": "5"}, "did you mean maxOffsetsPerTrigger?"),
        (URL | {"password": "s3cret"}, "unknown option password: "),
        (URL | {"tasks": "0"}, "tasks='0'"),
        (URL | {"ackMode": "always"}, "ackMode='always': give one of auto, commit, none"),
        (URL | {"columns": "value,length"}, "columns='length': give one of key, value"),
        (URL | {"group": " "}, "group=' ': give a name"),
        (URL | {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "no batch fits"),
        (URL | {"strictAcks": "true"}, "needs a group or a store"),
        (URL | {"group": "g", "strictAcks": "true", "ackMode": "none"}, "give one of them"),
    ],
)
def test_a_wrong_option_says_what_to_do(given: dict[str, str], complaint: str) -> None:
    """By its name as it is written, and without secrets."""
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        PullOptions.parse(given)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("given", [URL, KAFKA])
def test_connections_are_shared_by_what_makes_them(given: dict[str, str]) -> None:
    """Trap 14: same broker and credentials, same connection; another group, another one."""
    options = PullOptions.parse(given)
    assert PullOptions.parse(given | {"tasks": "9"}).identity() == options.identity()
    others = [given | {"group": "g"}, given | {"group": "h"}]
    identities = {options.identity(), *(PullOptions.parse(each).identity() for each in others)}
    assert len(identities) == 3


def test_passwords_are_part_of_the_identity() -> None:
    """Trap 14: whoever has another password gets no connection that is open."""
    urls = [f"pulsar://h/t?token={token}" for token in ("a", "b")]
    one, two = (PullOptions.parse({"url": url}).identity() for url in urls)
    assert one != two


@pytest.mark.parametrize("given", [URL, KAFKA])
def test_tasks_connect_without_the_group(given: dict[str, str]) -> None:
    """The rest is the same."""
    options = PullOptions.parse(given | {"group": "etl", "columns": "value", "strictAcks": "true"})
    tasks = options.for_tasks()
    assert (tasks.group, tasks.column_names) == (None, ("value",))
    assert tasks.identity() != options.identity()
    assert tasks.open_reader().group is None


@pytest.mark.parametrize(
    "given",
    [URL | {"url": "kafka://h/t?sasl_plain_password=s3cret"}, {"url": "pulsar://h/t?token=s3cret"}],
)
def test_options_travel_and_show_no_secret(given: dict[str, str]) -> None:
    """Trap 22: they are pickled into plans, and may be logged."""
    options = PullOptions.parse(given)
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 - our own bytes
    assert hash(options) == hash(PullOptions.parse(given))
    assert "s3cret" not in repr(options)


def test_parsing_loads_no_client_and_no_spark() -> None:
    """Trap 17: it happens in Spark's planner, where nothing may be connected or threaded."""
    code = (
        "import sys; from consumer_sdk.spark_bridge.pull.options.options import PullOptions\n"
        "PullOptions.parse({'url': 'pulsar://h/t'})\n"
        "PullOptions.parse({'kafka.bootstrap.servers': 'h', 'subscribe': 't'})\n"
        "print(sorted({'aiokafka', 'pulsar', '_pulsar', 'pyspark', 'pyarrow'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_a_store_s_password_is_not_shown() -> None:
    """Spark logs sources by their repr."""
    options = PullOptions.parse({"url": "kafka://h/t?group=g", "store": "redis://u:hunter2@h/0"})
    assert "hunter2" not in repr(options)
    assert options.store == "redis://u:hunter2@h/0"


def test_options_before_they_are_checked_show_no_secret() -> None:
    """Some tools log an error with the local variables of each function."""
    settings = PullSettings(url="pulsar://h/t?token=s3cret", store="redis://u:hunter2@h/0")
    assert "s3cret" not in repr(settings)
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize(
    "options, patience",
    [
        ({}, 30.0),
        ({"maxOutage": "10m"}, 600.0),
        ({"kafka.default.api.timeout.ms": "60000"}, 60.0),
    ],
)
def test_an_outage_may_be_said_by_kafkas_name_too(options: dict[str, str], patience: float) -> None:
    """Of Java's consumer, whose calls wait for as long."""
    servers = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    assert PullOptions.parse(servers | options).patience == patience
    with pytest.raises(ConfigurationError, match="maxOutage and kafka"):
        PullOptions.parse(
            servers | {"maxOutage": "1s", "kafka.default.api.timeout.ms": "1"} | options
        )
