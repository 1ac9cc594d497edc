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
