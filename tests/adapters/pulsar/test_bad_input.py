"""What cannot work is an error within its time, on a real Pulsar."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from consumer_sdk import Consumer
from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.errors import AdapterError, ConfigurationError
from consumer_sdk.testing.servers.ports import HOST, free_ports
from tests.integration.pulsar_field import until

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import PulsarServer

pytestmark = pytest.mark.pulsar

Make = Callable[..., PulsarAdapter]

WAIT = 5
"""Seconds in which a busy broker has said what is wrong."""


@pytest.fixture
def make(pulsar_server: PulsarServer) -> Make:
    """Makes adapters that know the admin interface."""

    def make(*topics: str, **options: Any) -> PulsarAdapter:
        given: dict[str, Any] = {
            "service_url": pulsar_server.service_url,
            "admin_url": pulsar_server.admin_url,
            "subscription": "billing",
            "busy_timeout": 300,
            "operation_timeout": 20,
        }
        return PulsarAdapter(*topics, **given | options)

    return make


@pytest.fixture
def topic() -> str:
    """A name of this test's own."""
    return f"bad-input-{uuid.uuid4().hex[:8]}"


async def opened(adapter: PulsarAdapter) -> None:
    """Opens a consumer and closes it."""
    async with Consumer(adapter):
        pass


async def test_topic_that_is_not_there_is_an_error_and_is_not_made(
    pulsar_server: PulsarServer, make: Make, topic: str
) -> None:
    """The broker would make a topic of any name that is mistyped."""
    with pytest.raises(ConfigurationError, match="does not exist: create it, or correct its name"):
        await opened(make(topic))
    assert f"persistent://public/default/{topic}" not in await pulsar_server.topics()


async def test_topic_without_the_admin_url_is_made_by_the_broker(
    pulsar_server: PulsarServer, make: Make, topic: str
) -> None:
    """As Pulsar's own clients have it: nobody can look before."""
    await opened(make(topic, admin_url=None))
    assert await pulsar_server.subscriptions(topic) == ["billing"]


async def test_namespace_that_is_not_there_is_an_error(make: Make) -> None:
    """With the broker's word for it."""
    with pytest.raises((ConfigurationError, AdapterError), match="nobody/nowhere/t"):
        await opened(make("nobody/nowhere/t", admin_url=None, busy_timeout=WAIT))


async def test_broker_that_is_away_is_an_error_within_the_timeouts(make: Make) -> None:
    """It says which, and leaves nothing open."""
    (port,) = free_ports(1)
    url = f"pulsar://{HOST}:{port}"
    began = time.monotonic()
    with pytest.raises(AdapterError, match=r"looking up|does not answer"):
        await opened(
            make("t", service_url=url, admin_url=None, operation_timeout=2, busy_timeout=2)
        )
    assert time.monotonic() - began < 25


async def test_admin_interface_that_is_away_is_an_error_that_names_it(make: Make) -> None:
    """Not a topic that does not exist."""
    (port,) = free_ports(1)
    url = f"http://{HOST}:{port}"
    with pytest.raises(AdapterError, match=url):
        await opened(make("t", admin_url=url, busy_timeout=2))


@pytest.mark.parametrize(
    "first, second",
    [("shared", "exclusive"), ("exclusive", "shared"), ("failover", "key_shared")],
)
async def test_subscription_that_is_in_use_as_another_type_is_an_error_in_time(
    pulsar_server: PulsarServer, make: Make, topic: str, first: str, second: str
) -> None:
    """The broker says busy for both; so the error names both, and comes after the busy timeout."""
    await pulsar_server.create_topic(topic)
    async with Consumer(make(topic, type=first)):
        began = time.monotonic()
        with pytest.raises(AdapterError, match="has it with another type"):
            await opened(make(topic, type=second, busy_timeout=WAIT))
        assert WAIT <= time.monotonic() - began < 25


async def test_second_exclusive_consumer_gets_it_when_the_first_is_gone(
    pulsar_server: PulsarServer, make: Make, topic: str
) -> None:
    """Within the busy timeout it is a standby; afterwards an error."""
    await pulsar_server.create_topic(topic)
    async with Consumer(make(topic)):
        with pytest.raises(AdapterError, match="another consumer has the subscription"):
            await opened(make(topic, busy_timeout=WAIT))
    await opened(make(topic))


async def test_pattern_that_matches_nothing_yet_is_no_error_and_says_so(
    make: Make, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Topics come and go."""
    await opened(make(pattern=f"{topic}-.*"))
    assert f"pattern='{topic}-.*' matches none of the " in caplog.text


async def test_pattern_finds_each_alternative_and_names_like_those_of_partitions(
    pulsar_server: PulsarServer, make: Make, topic: str
) -> None:
    """A partitioned topic is found once, with all of its partitions."""
    for name, partitions in (("aa", 2), ("bb-partition-b", 0), ("cc-partition-own", 0), ("dd", 0)):
        await pulsar_server.create_topic(f"{topic}-{name}", partitions)
    async with Consumer(make(pattern=f"{topic}-aa|{topic}-[bc]{{2}}-.*")) as consumer:
        await until(lambda: len(consumer.stats().partitions) == 4)
        found = sorted(
            (each.stream.rpartition("/")[2].removeprefix(topic), each.id)
            for each in consumer.stats().partitions
        )
    names = [("-aa", "0"), ("-aa", "1"), ("-bb-partition-b", "-1"), ("-cc-partition-own", "-1")]
    assert found == names
