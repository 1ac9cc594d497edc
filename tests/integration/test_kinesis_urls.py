"""``kinesis://`` URLs: one that works, and what cannot work, before any record is fetched."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from consumer_sdk import (
    ConfigurationError,
    Consumer,
    ConsumerSdkError,
    Message,
    TransientAdapterError,
)
from consumer_sdk.adapters import KinesisAdapter, open_url
from consumer_sdk.dead_letters import KinesisDeadLetters
from consumer_sdk.records import AtPosition
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing.servers import KinesisServer
from consumer_sdk.testing.servers.ports import HOST, free_ports
from tests.adapters.kinesis.server_harness import connection
from tests.integration.field import until
from tests.integration.kinesis_field import PATIENCE, KinesisField, Seen

pytestmark = pytest.mark.kinesis


@pytest.fixture
async def field(kinesis_server: KinesisServer, tmp_path: Path) -> KinesisField:
    """A stream of the test's own, with a record that nobody is to see."""
    field = KinesisField(kinesis_server, tmp_path)
    await field.create()
    await field.append(1)
    return field


def url(field: KinesisField, **options: Any) -> str:
    """The stream's; an option of None is left out."""
    given = {"group": "g", **connection(field.server), "stream": field.stream} | options
    stream, region = given.pop("stream"), given.pop("region_name")
    query = {name: value for name, value in given.items() if value is not None}
    return f"kinesis://{region or ''}/{stream}?{urlencode(query)}"


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's own is found."""
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))


async def refused(
    url: str, advice: str, kind: type[ConsumerSdkError] = ConfigurationError, **options: Any
) -> None:
    """The consumer ends with that error; a record that is handed out is one too many."""

    async def handle(message: Message) -> None:
        raise AssertionError(message)

    options.setdefault("store", MemoryStore())
    with pytest.raises(kind, match=advice):
        async with asyncio.timeout(PATIENCE):
            await Consumer(url, **options).run(handle, handle_signals=False)


async def test_url_opens_an_adapter_that_reads(field: KinesisField) -> None:
    """Region, stream, group, endpoint and credentials are all that it takes."""
    adapter = open_url(url(field, poll_interval=0.1, fast_decode="no", lease_duration=5))
    assert isinstance(adapter, KinesisAdapter)
    seen = Seen()
    async with field.running(Consumer(adapter, store=field.store()), seen.handle) as task:
        await until(lambda: seen.numbers == [0], "the record", task)


async def test_url_of_several_streams_reads_all_of_them(
    field: KinesisField, tmp_path: Path
) -> None:
    """One consumer, one store, one group."""
    other = KinesisField(field.server, tmp_path)
    await other.create(2)
    other.put = 1
    await other.append(20)
    streams = f"{field.stream},{other.stream}"
    seen = Seen()
    async with field.running(
        Consumer(url(field, stream=streams, poll_interval=0.1), store=field.store()), seen.handle
    ) as task:
        await until(lambda: sorted(seen.numbers) == list(range(21)), "all records", task)


@pytest.mark.parametrize(
    "options,advice",
    [
        ({"stream": "missing"}, "there is no stream 'missing' at http://.*: create it"),
        ({"region_name": None}, "give region_name=, or set AWS_DEFAULT_REGION"),
        (
            {"aws_access_key_id": None, "aws_secret_access_key": None},
            "give aws_access_key_id= and aws_secret_access_key=",
        ),
        ({"profile": "nobody"}, "give another profile="),
        ({"endpoint_url": "nowhere"}, "give http:"),
    ],
)
async def test_wrong_place_or_credentials_are_found_at_open(
    field: KinesisField, no_aws: None, options: dict[str, Any], advice: str
) -> None:
    """Each says what is missing, and where to put it."""
    await refused(url(field, **options), advice)


async def test_server_that_cannot_be_reached_is_named(field: KinesisField) -> None:
    """It may come back: whoever runs the service decides how often to try."""
    (port,) = free_ports(1)
    endpoint = f"http://{HOST}:{port}"
    await refused(url(field, endpoint_url=endpoint), endpoint, TransientAdapterError)


@pytest.mark.parametrize(
    "options,advice",
    [
        ({"store": None}, "give the consumer store=LocalStore"),
        ({"restart": "from_start", "application_id": "v2"}, "give a new application another group"),
        ({"max_lag": 100}, "leave max_lag= out"),
        ({"start": AtPosition(7)}, r"give AtPosition\(\(sequence number, sub-sequence"),
    ],
)
async def test_what_a_leased_log_cannot_do_is_refused_with_what_to_do(
    field: KinesisField, options: dict[str, Any], advice: str
) -> None:
    """Known from what the adapter says of itself, not from a record."""
    await refused(url(field), advice, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"group": 5},
        {"stream": None},
        {"lease_duration": "10"},
        {"buffer_bytes": "10"},
        {"request_timeout": "10"},
        {"connections": None},
    ],
    ids=str,
)
def test_option_of_another_type_is_refused_by_name(options: dict[str, Any]) -> None:
    """It would end as a TypeError somewhere inside."""
    (name,) = options
    with pytest.raises(ConfigurationError, match=f"{name}="):
        KinesisAdapter(**{"stream": "s", "group": "g"} | options)


async def test_dead_letter_stream_that_is_not_there_is_named_at_start(
    field: KinesisField,
) -> None:
    """Not found out when the first poison record comes."""
    letters = KinesisDeadLetters("no-letters", **connection(field.server))
    await refused(url(field), "'no-letters'", dead_letters=letters)
