"""Which clients are refused, and what the error says."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchRequest

import consumer_sdk
from consumer_sdk.adapters.kafka import client_support
from consumer_sdk.adapters.kafka.client_support import BELOW, LEAST, REQUIRED, check_client
from consumer_sdk.adapters.kafka.decoding.unpacking import partition_names
from consumer_sdk.errors import ConfigurationError
from tests.adapters.test_urls import run_python

PACKAGE = Path(consumer_sdk.__file__).parent
PUBLIC = {"aiokafka", "aiokafka.abc", "aiokafka.client", "aiokafka.conn", "aiokafka.errors"}
"""Modules of which not all names are looked for: their classes are, or nothing private is used."""


def test_supported_versions_are_those_of_the_extra() -> None:
    """What pip installs is what the check lets pass."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    extra = project["project"]["optional-dependencies"]["kafka"]
    assert f"aiokafka>={LEAST},<{BELOW}" in extra


@pytest.mark.parametrize("version", ["0.13.0", "0.14.0", "0.14.7.dev3"])
def test_supported_version_passes(version: str) -> None:
    """The last number says nothing."""
    check_client(version)


@pytest.mark.parametrize("version", ["0.12.0", "0.15.0", "0.15.0rc1", "1.0", "0.9"])
def test_other_version_is_refused_with_those_that_are_supported(version: str) -> None:
    """Names alone do not tell what a release does with them."""
    with pytest.raises(ConfigurationError, match=rf"aiokafka {version} .* 0\.13 .* below 0\.15"):
        check_client(version)


@pytest.mark.parametrize(
    "place,named",
    [
        ("aiokafka.client:AIOKafkaClient", r"AIOKafkaClient\._gone"),
        ("aiokafka.protocol.api", r"aiokafka\.protocol\.api\._gone"),
        ("aiokafka:Nothing", "aiokafka:Nothing"),
        ("aiokafka.nothing:Consumer", "aiokafka.nothing:Consumer"),
    ],
)
def test_client_that_lacks_something_private_is_refused(
    place: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new version of the client fails at start-up with its name, not in a rebalance."""
    monkeypatch.setattr(client_support, "REQUIRED", {place: ("_gone",)})
    with pytest.raises(ConfigurationError, match=rf"aiokafka .* lacks {named}; .*pip install"):
        check_client()


@pytest.mark.parametrize(
    "wanted",
    [
        "adapters.kafka import KafkaAdapter",
        "adapters.kafka.ranges import KafkaRanges",
        "dead_letters import KafkaDeadLetters",
        "adapters.kafka.producing.writing import KafkaWriter",
    ],
)
def test_whatever_is_imported_first_refuses_another_client(wanted: str) -> None:
    """Not an ImportError from somewhere inside."""
    code = (
        "import aiokafka.protocol.api as api; del api.RequestStruct\n"
        "from consumer_sdk.errors import ConfigurationError\n"
        f"try: from consumer_sdk.{wanted}\n"
        "except ConfigurationError as error: print(error)"
    )
    assert "lacks aiokafka.protocol.api.RequestStruct; install" in run_python(code)


def test_all_that_is_imported_of_the_protocol_is_checked() -> None:
    """A name that a release drops is an error of the check, wherever it is used."""
    for path in (PACKAGE / "adapters" / "kafka").rglob("*.py"):
        for module, name in _imported(ast.parse(path.read_text(encoding="utf-8"))):
            places = {module, f"{module}:{name}", f"{module}.{name}"} & REQUIRED.keys()
            is_listed = name in REQUIRED.get(module, ()) or places - {module}
            assert is_listed or module in PUBLIC, f"{path}: {module}.{name}"


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("aiokafka"):
            yield from ((str(node.module), alias.name) for alias in node.names)


def test_fetch_of_this_client_tells_what_ranges_need() -> None:
    """Fields are read by the names of the client's own schema."""
    request = FetchRequest(500, 0, 1000, 1, [("t", [(0, 7, 1000)])])
    sent: Any = request.prepare({1: (4, 11)})  # API 1 is Fetch; Kafka 4 has versions from 4 on
    names = set(partition_names(sent.RESPONSE_TYPE))
    assert names >= {"error_code", "highwater_offset", "last_stable_offset", "message_set"}
