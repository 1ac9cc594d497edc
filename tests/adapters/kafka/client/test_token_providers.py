"""Token providers that are named by their import path."""

from __future__ import annotations

import base64
import json
import time

import pytest
from aiokafka.abc import AbstractTokenProvider

from consumer_sdk.adapters.kafka.client.token_providers import token_provider
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.pull.options.options import PullOptions
from tests.adapters.kafka.harness import KafkaHarness


class Provider(AbstractTokenProvider):  # type: ignore[misc]  # the client has no types
    """Has one token."""

    async def token(self) -> str:
        return "secret"


made = Provider()
number = 3


def ask() -> str:
    """Return the token."""
    return "secret"


async def ask_later() -> str:
    """Return the token."""
    return "secret"


def ask_wrongly() -> int:
    """Return something else."""
    return 3


@pytest.mark.parametrize("name", ["Provider", "made", "ask", "ask_later"])
async def test_what_is_named_gives_tokens(name: str) -> None:
    """An object, its class, or a function."""
    assert await token_provider(f"{__name__}:{name}").token() == "secret"


@pytest.mark.parametrize(
    "path", ["no.such:ask", f"{__name__}:nothing", f"{__name__}:number", "x", ""]
)
def test_a_wrong_path_says_what_is_wanted(path: str) -> None:
    """Before anything connects."""
    with pytest.raises(ConfigurationError, match=r"package\.module:name"):
        token_provider(path)


async def test_something_else_than_a_token_is_refused() -> None:
    """It would be sent as one."""
    with pytest.raises(ConfigurationError, match="returned a"):
        await token_provider(f"{__name__}:ask_wrongly").token()


def unsigned(seconds: float = 600) -> str:
    """Return a token that the test's Kafka takes for so long.

    Kafka refuses one that was issued after its own clock, which has whole milliseconds: one of the same millisecond, too.
    """
    now = int(time.time()) - 1
    parts = (
        {"alg": "none"},
        {"sub": "alice", "iat": now + min(seconds - 600, 0), "exp": now + seconds},
    )
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join([*texts, b""]).decode()


def test_token_is_issued_before_the_millisecond_in_which_it_is_made() -> None:
    """A broker that answers within that millisecond finds no future in it."""
    before = time.time_ns() // 1_000_000
    text = unsigned().split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    assert claims["iat"] * 1000 <= before


@pytest.mark.kafka
async def test_a_real_broker_takes_the_tokens(harness: KafkaHarness, sasl_servers: str) -> None:
    """Of a provider that is named in the options of Spark's Kafka source."""
    topic = await harness.create_stream()
    options = {
        "kafka.bootstrap.servers": f"SASL_PLAINTEXT://{sasl_servers}",
        "subscribe": topic,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "saslTokenProvider": f"{__name__}:unsigned",
    }
    reader = PullOptions.parse(options).open_reader()
    try:
        await reader.open()
        assert len(await reader.partitions()) == 1
    finally:
        await reader.aclose()
