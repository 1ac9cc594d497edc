"""What importing one part of an adapter loads, and what it says where the client is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import consumer_sdk
from tests.adapters.test_urls import run_python

PACKAGE = Path(consumer_sdk.__file__).parent
CLIENTS = {
    "kafka": ("aiokafka",),
    "kinesis": ("aiobotocore", "aiohttp", "botocore", "orjson"),
    "pulsar": ("_pulsar", "pulsar"),
}
PURE = {
    "kafka": {"commits.metadata"},
    "kinesis": {"service.aggregation", "service.service", "starts"},
    "pulsar": {"details"},
}
WITHOUT = """
import importlib, json, sys
for client in {clients}:
    sys.modules[client] = None
from consumer_sdk.errors import MissingExtraError
found = []
for name in {names}:
    try:
        importlib.import_module(name)
        found.append(name)
    except MissingExtraError:
        pass
print(json.dumps(found))
"""


OTHER_DOORS = """
import sys
for client in {clients}:
    sys.modules[client] = None
from consumer_sdk.dead_letters.resending import resending_to
from consumer_sdk.dead_letters.urls import dead_letters_from_url
from consumer_sdk.errors import MissingExtraError
for door in (dead_letters_from_url, resending_to):
    try:
        door({url!r})
    except MissingExtraError as error:
        print(error.extra)
"""
FAKES = """
import importlib, sys
for client in {clients}:
    sys.modules[client] = None
from consumer_sdk.errors import MissingExtraError
for name in ("", ".service", ".server", ".shapes"):
    try:
        importlib.import_module("consumer_sdk.testing.kinesis" + name)
    except MissingExtraError as error:
        print(error.extra)
"""


def modules_of(broker: str) -> list[str]:
    """All modules of an adapter."""
    paths = sorted((PACKAGE / "adapters" / broker).rglob("*.py"))
    parts = (path.relative_to(PACKAGE.parent).with_suffix("").parts for path in paths)
    return [".".join(each).removesuffix(".__init__") for each in parts]


@pytest.mark.parametrize(
    "broker,name",
    [("kafka", "ranges.KafkaRanges"), ("kinesis", "ranges"), ("pulsar", "ranges.PulsarRanges")],
)
def test_reader_of_ranges_loads_no_group_consumer(broker: str, name: str) -> None:
    """Each worker of Spark pays for what it imports, and reads ranges alone."""
    package = f"consumer_sdk.adapters.{broker}"
    loaded = json.loads(
        run_python(
            f"import json, sys, {package}.ranges\n"
            f"assert {package}.{name}\n"
            "print(json.dumps(sorted(sys.modules)))"
        )
    )
    assert f"{package}.ranges" in loaded
    assert not [
        each for each in loaded if each.startswith((f"{package}.consumer", f"{package}.adapter"))
    ]


@pytest.mark.parametrize("broker", CLIENTS)
def test_what_is_pure_needs_no_client_and_the_rest_says_which(broker: str) -> None:
    """No module ends with the client's own ImportError."""
    code = WITHOUT.format(clients=CLIENTS[broker], names=modules_of(broker))
    found = set(json.loads(run_python(code)))
    package = f"consumer_sdk.adapters.{broker}"
    assert found >= {package} | {f"{package}.{name}" for name in PURE[broker]}


@pytest.mark.parametrize("broker", CLIENTS)
def test_url_of_dead_letters_says_which_client_is_missing(broker: str) -> None:
    """Of a destination, and of where they are sent again."""
    code = OTHER_DOORS.format(clients=CLIENTS[broker], url=f"{broker}://host:1/topic")
    assert run_python(code).split() == [broker, broker]


def test_fake_kinesis_says_which_client_is_missing() -> None:
    """A test that imports it is told what to install."""
    assert run_python(FAKES.format(clients=CLIENTS["kinesis"])).split() == ["kinesis"] * 4
