"""The configuration file: the options of the keyword arguments, and their errors."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import AtTime, Consumer, RetryPolicy
from consumer_sdk.cli.run.config import Config, parse_config, read_config
from consumer_sdk.cli.run.services import admin_server, make_group
from consumer_sdk.errors import ConfigurationError
from tests.cli.run import apps

URL = "kafka://broker:9092/orders?group=billing"
WHOLE = f"""
app = "billing.service:handle"

[consumer]
url = "{URL}"
store = "sqlite:///state.db"
dead_letters = {{ url = "kafka://broker:9092/orders-dlq", sasl_plain_password = "file:secret" }}
start = 2026-01-01T00:00:00Z
max_hole_age = 300.0
max_holes = "none"
trees = false
decode = "json:loads"
retry = {{ max_attempts = "none", initial = 0.5, maximum = 60.0 }}

[consumer.client]
security_protocol = "SASL_SSL"
sasl_plain_username = "env:KAFKA_USER"
sasl_plain_password = "file:secret"
session_timeout = 20

[run]
concurrency = 500
ordering = "partition"
workers = 2

[telemetry]
log = "json"
"""


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in the environment, one in a file, with what a URL would read as something else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_USER", "reader")
    (tmp_path / "secret").write_text("a&b=c +%20#?\n")


def test_file_is_what_python_would_be_given(secrets: None) -> None:
    """Client options stand in the URL, whose reader says what is wrong with them."""
    config = parse_config(WHOLE, "consumer.toml")

    options = config.consumer_options()
    password = "a%26b%3Dc%20%2B%2520%23%3F"  # noqa: S105 - no real one
    assert options.pop("adapter") == (
        f"{URL}&security_protocol=SASL_SSL&sasl_plain_username=reader"
        f"&sasl_plain_password={password}&session_timeout=20"
    )
    assert options == {
        "store": "sqlite:///state.db",
        "dead_letters": f"kafka://broker:9092/orders-dlq?sasl_plain_password={password}",
        "start": AtTime(datetime(2026, 1, 1, tzinfo=UTC)),
        "max_hole_age": 300.0,
        "max_holes": None,
        "trees": False,
        "decode": json.loads,
        "retry": RetryPolicy(max_attempts=None, initial=0.5, maximum=60.0),
    }
    assert config.run_options() == {"concurrency": 500, "ordering": "partition"}


def test_secret_reaches_the_client_whole(secrets: None) -> None:
    """Through the URL's query and back."""
    config = parse_config(WHOLE, "consumer.toml")
    adapter = Consumer(config.consumer_options()["adapter"])._adapter

    options = adapter._options.client_options  # type: ignore[attr-defined]  # of Kafka
    assert options["sasl_plain_password"] == "a&b=c +%20#?"  # noqa: S105 - likewise


def test_secrets_are_hidden_when_it_is_shown() -> None:
    """A name of one is no secret; what stands in the file or in a URL is."""
    text = """
    [consumer]
    url = "kafka://user:pw@h:1/t?group=g&sasl_plain_password=pw&session_timeout=5"
    [consumer.client]
    token = "pw"
    password = "env:PASSWORD"
    aws_secret_access_key = "pw"
    basic_auth = "pw"
    proxy_pass = "pw"
    """
    shown = parse_config(text, "f").shown()

    assert shown["consumer"] == {
        "url": "kafka://…@h:1/t?group=g&sasl_plain_password=…&session_timeout=5",
        "client": {
            "token": "…",
            "password": "env:PASSWORD",
            "aws_secret_access_key": "…",
            "basic_auth": "…",
            "proxy_pass": "…",
        },
    }


def test_command_line_comes_before_the_file() -> None:
    """And what it does not say stays."""
    config = parse_config(WHOLE, "f").changed("run", concurrency=3, ordering=None)

    assert config.run == {"concurrency": 3, "ordering": "partition", "workers": 2}


@pytest.mark.parametrize(
    "text, words",
    [
        ("[consumer", "f: this is no TOML: Expected ']'"),
        ("consumer = 3", "f: consumer=3: make it a table, [consumer]"),
        ("[consummer]\n", "f: unknown option consummer=: did you mean consumer=?"),
        ("[consumer]\nmax_hole = 1", "f: [consumer]: unknown option max_hole=: did you mean"),
        ("[consumer]\nhooks = 1", "f: [consumer]: hooks= is an object: only Python can give it"),
        ("[run]\nconcurency = 1", "f: [run]: unknown option concurency=: did you mean concurr"),
        ("[run]\nworkers = 0", "f: [run]: workers=0: give a whole number, 1 or more"),
        ("[telemetry]\nlog = 'xml'", "f: [telemetry]: log='xml': give 'text' or 'json'"),
        ("app = 3", "f: app=3: give a name"),
    ],
)
def test_unknown_and_odd_values_are_named_with_their_place(text: str, words: str) -> None:
    """Of the file and the table, before anything is looked up."""
    with pytest.raises(ConfigurationError) as found:
        parse_config(text, "f")
    assert words in str(found.value)


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "f: a handler needs a broker: give --url, or url= in [consumer]"),
        (f"url = '{URL}'\nfetch_wait = 'x'", "f: fetch_wait='x': give seconds, above 0"),
        (f"url = '{URL}'\nretry = {{ max = 1 }}", "f: retry: unknown option max=: did you mean"),
        (f"url = '{URL}'\ndecode = 'jsn'", "f: decode='jsn': write json, or module:name"),
        (f"url = '{URL}'\nretry = 3", "f: retry=3: make it a table"),
        (f"url = '{URL}'\nclient = 3", "f: client=3: make it a table"),
        (f"url = '{URL}'\nclient = {{ a = [] }}", "a= must be a text or a number"),
        (f"url = '{URL}'\nclient = {{ sesion_timeout = 1 }}", "did you mean session_timeout=?"),
        (f"url = '{URL}'\nclient = {{ session_timeout = 'x' }}", "give seconds, above 0"),
        (f"url = '{URL}'\nclient = {{ group = 'g' }}", "the option group= is given twice"),
        ("url = 'env:NO_SUCH_NAME'", "f: url=env:…: no environment variable 'NO_SUCH_NAME'"),
        (f"url = '{URL}'\nstart = 2026-01-01T00:00:00", "a datetime without a time zone"),
        (f"url = '{URL}'\ndead_letters = {{ a = 1 }}", "[consumer.dead_letters]: url= is missing"),
    ],
)
async def test_what_cannot_work_is_the_keyword_arguments_error(text: str, words: str) -> None:
    """With the file's name before it."""
    config = parse_config(f"app = 'tests.cli.run.apps:handle'\n[consumer]\n{text}", "f")

    with pytest.raises(ConfigurationError) as found:
        await make_group(config, apps.handle)
    assert words in str(found.value)


@pytest.mark.parametrize(
    "options, handler, words",
    [
        ({"concurrency": 0}, "handle", "concurrency=0"),
        ({"batch_size": 10}, "handle", "it takes one message, and batch_size=… gives it batches"),
        ({"batch_wait": -1}, "handle", "batch_wait=-1"),
        ({"ordering": "keys"}, "handle", "ordering='keys'"),
        ({"concurrency": "many"}, "handle", "concurrency='many'"),
        ({}, "broker", "the handler must be a function"),
    ],
)
async def test_what_run_would_refuse_is_refused_when_the_group_is_made(
    options: dict[str, Any], handler: str, words: str
) -> None:
    """So ``--check`` says it too."""
    name = f"tests.cli.run.apps:{handler}"
    config = Config(app="tests.cli.run.apps:consumer", handler=name, run=options)
    with pytest.raises(ConfigurationError) as found:
        await make_group(config, apps.consumer if handler == "broker" else apps.make)
    assert words in str(found.value)


async def test_application_that_makes_its_consumer_takes_no_options_of_it() -> None:
    """They would have no effect."""
    config = Config(app="tests.cli.run.apps:consumer", consumer={"url": URL})
    with pytest.raises(ConfigurationError, match="the application makes its consumer"):
        await make_group(config, apps.consumer)
    config = Config(app="tests.cli.run.apps:group", run={"concurrency": 3, "workers": 2})
    with pytest.raises(ConfigurationError, match=r"\[run\] concurrency=: the application makes"):
        await make_group(config, apps.group)
    with pytest.raises(ConfigurationError, match=r"make_nothing\(\) returned int"):
        await make_group(Config(app="tests.cli.run.apps:make_nothing"), apps.make_nothing)


async def test_factories_are_called_and_handlers_found() -> None:
    """The handler of a consumer is ``handle`` of its module, or the one that is named."""
    for found in (apps.make, apps.make_group, apps.consumer, apps.group):
        group = await make_group(Config(app="tests.cli.run.apps:any"), found)
        assert len(group.consumers) == 1
    config = Config(app="tests.cli.run.apps:consumer", handler="tests.cli.run.apps:none")
    with pytest.raises(ConfigurationError, match="has no 'none'"):
        await make_group(config, apps.consumer)


async def test_factory_that_fails_is_shown_as_a_module_that_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its traceback once, from its own first frame on; what it says of options stands alone."""

    async def make() -> Consumer:
        raise OSError("no database")

    def make_odd() -> Consumer:
        return Consumer("kafka://h:9092/t?group=g", fetch_wait=0)

    with pytest.raises(ConfigurationError, match=r"^m:make\(\) failed: OSError: no database$"):
        await make_group(Config(app="m:make"), make)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert f'File "{__file__}"' in lines[1]
    assert lines[-1] == "OSError: no database"
    with pytest.raises(ConfigurationError, match=r"^fetch_wait=0"):
        await make_group(Config(app="m:make_odd"), make_odd)
    assert capsys.readouterr().err == ""


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """So is one that is no text."""
    with pytest.raises(ConfigurationError, match="No such file"):
        read_config(str(tmp_path / "none.toml"))
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="it is no UTF-8"):
        read_config(str(tmp_path / "bytes"))


async def test_telemetry_of_the_file_is_around_the_handler() -> None:
    """A middleware for traces; metrics are read from snapshots."""
    url = "kafka://127.0.0.1:9/orders?group=billing"
    given: dict[str, Any] = {"app": "tests.cli.run.apps:handle", "consumer": {"url": url}}
    for telemetry, count in (({}, 0), ({"traces": "otel", "metrics": "otel"}, 1)):
        group = await make_group(Config(**given, telemetry=telemetry), apps.handle)
        ((_handler, options),) = group._runs.values()
        assert len(options["around"]) == count


async def test_admin_table_is_what_serve_is_given(secrets: None) -> None:
    """Its secret looked up; an empty table is one, and none is none."""
    text = "token = 'file:secret'\nactions = true\nhosts = ['page.internal']\nmax_viewers = 8"
    config = parse_config(f"[admin]\n{text}", "f")
    options = {
        "address": None,
        "token": "a&b=c +%20#?",
        "actions": True,
        "hosts": ["page.internal"],
        "max_viewers": 8,
    }
    assert config.admin_options() == options
    assert parse_config("[admin]", "f").admin is not None
    assert parse_config("", "f").admin is None
    with pytest.raises(ConfigurationError, match=r"f: \[admin\]: unknown option listn=: did you"):
        parse_config("[admin]\nlistn = 'auto'", "f")
    with pytest.raises(ConfigurationError, match=r"hosts='page': give names in a sequence"):
        parse_config("[admin]\nhosts = 'page'", "f")
    config = Config(app="tests.cli.run.apps:make", admin={"listen": "0.0.0.0:9464"})
    group = await make_group(config, apps.make)
    with pytest.raises(ConfigurationError, match="give a token"):
        admin_server(config, group)


@pytest.mark.parametrize("value", ["[" * 5000, "{b=" * 5000, "9" * 5000])
def test_file_that_python_cannot_read_is_no_toml(value: str) -> None:
    """Nested too deep, or with too many digits."""
    with pytest.raises(ConfigurationError, match=r"x\.toml: this is no TOML"):
        parse_config(f"a={value}", "x.toml")
