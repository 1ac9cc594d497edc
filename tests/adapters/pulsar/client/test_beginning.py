"""Whether a subscription has begun: what a role may not ask, and what is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from consumer_sdk.adapters import PulsarAdapter
from consumer_sdk.adapters.pulsar.client.admin import Admin
from consumer_sdk.adapters.pulsar.client.beginning import BEGUN, MARK, Beginning
from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.errors import AdapterError, TransientAdapterError

TOPIC = "persistent://public/default/t"


class Lister(Admin):
    """Of a role that may list subscriptions, and nothing else."""

    found: Sequence[str] = ()

    def __init__(self) -> None:
        super().__init__("http://h:8080")

    async def subscriptions(self, topic: str) -> Sequence[str]:
        """As the test says."""
        del topic
        return self.found

    async def after_last(self, topic: str) -> Place | None:
        """Refused."""
        raise AdapterError(f"{topic}: 403")

    async def properties(self, topic: str, subscription: str) -> Mapping[str, str] | None:
        """Refused."""
        raise AdapterError(f"{topic}: {subscription}: 403")


class Gone(Admin):
    """A subscription with a mark, which is deleted before it has begun."""

    def __init__(self) -> None:
        super().__init__("http://h:8080")
        self.is_gone = True
        self.written: list[Mapping[str, str]] = []

    async def properties(self, topic: str, subscription: str) -> Mapping[str, str] | None:
        """Its mark, and somebody's property."""
        del topic, subscription
        return {MARK: "7:3", "their": "own"}

    async def set_properties(
        self, topic: str, subscription: str, properties: Mapping[str, str]
    ) -> bool:
        """As the test says."""
        del topic, subscription
        self.written.append(properties)
        return not self.is_gone


def beginning_on(admin: Admin, **options: Any) -> Beginning:
    """Of a failover subscription ``s``."""
    adapter = PulsarAdapter(
        "t", service_url="pulsar://h:6650", subscription="s", type="failover", **options
    )
    return Beginning(admin, TOPIC, adapter._options, is_discovered=False)


@pytest.mark.parametrize("is_new", [True, False])
async def test_role_that_may_not_write_is_told_once_where_it_matters(
    caplog: pytest.LogCaptureFixture, *, is_new: bool
) -> None:
    """A consumer that did without before goes on without."""
    admin = Lister()
    admin.found = [] if is_new else ["s"]
    beginning = beginning_on(admin)
    await beginning.prepare()
    await beginning.look()
    assert beginning.is_new is is_new
    assert len(caplog.records) == int(is_new)
    await beginning.begun()
    assert beginning.is_new is False
    admin.close()


async def test_subscription_that_is_deleted_before_it_has_begun_is_an_error() -> None:
    """One that may pass; and the properties of others stay."""
    admin = Gone()
    beginning = beginning_on(admin)
    await beginning.look()
    assert [beginning.is_new, beginning.end] == [True, (7, 3, 0)]
    with pytest.raises(TransientAdapterError, match="has no subscription 's' any more"):
        await beginning.begun()
    admin.is_gone = False
    await beginning.begun()
    assert not beginning.is_new
    assert admin.written == [{MARK: BEGUN, "their": "own"}] * 2
    admin.close()


class Broker(Admin):
    """A topic that ends behind ``7:2``, its subscriptions with their properties, and what was asked."""

    def __init__(self, **subscriptions: Mapping[str, str]) -> None:
        super().__init__("http://h:8080")
        self.known = dict(subscriptions)
        self.meanwhile: Mapping[str, Mapping[str, str]] = {}
        self.end: Place | None = (7, 3, 0)
        self.trouble: Exception | None = None
        self.asked: list[Any] = []

    async def subscriptions(self, topic: str) -> Sequence[str]:
        """Their names."""
        assert topic == TOPIC
        return list(self.known)

    async def after_last(self, topic: str) -> Place | None:
        """Its end; none where there is no topic."""
        assert topic == TOPIC
        self.asked.append("end")
        self.known |= self.meanwhile
        if self.trouble is not None:
            raise self.trouble
        return self.end

    async def make_subscription(
        self,
        topic: str,
        subscription: str,
        properties: Mapping[str, str],
        *,
        is_latest: bool = False,
        is_replicated: bool = False,
    ) -> bool:
        """False: it is there already."""
        assert topic == TOPIC
        self.asked.append(("make", is_latest, is_replicated))
        return self.known.setdefault(subscription, properties) is properties

    async def properties(self, topic: str, subscription: str) -> Mapping[str, str] | None:
        """None: there is no such subscription."""
        assert topic == TOPIC
        self.asked.append("properties")
        if self.trouble is not None:
            raise self.trouble
        return self.known.get(subscription)

    async def set_properties(
        self, topic: str, subscription: str, properties: Mapping[str, str]
    ) -> bool:
        """They are stored."""
        assert topic == TOPIC
        self.asked.append("set")
        self.known[subscription] = properties
        return True


@pytest.mark.parametrize("where", ["latest", "earliest"])
@pytest.mark.parametrize("is_replicated", [True, False])
async def test_new_subscription_is_made_with_the_end_of_the_topic_until_it_has_begun(
    where: Any, *, is_replicated: bool
) -> None:
    """Another consumer of it reads there that it is new; after the first record nobody does."""
    admin = Broker()
    options = {
        "initial_position": where,
        "replicate_subscription_state_enabled": is_replicated,
    }
    mine, theirs = beginning_on(admin, **options), beginning_on(admin, **options)
    assert [mine.is_new, mine.end] == [None, None]
    await mine.prepare()
    assert mine.is_new
    assert admin.known == {"s": {MARK: "7:3"}}
    await theirs.prepare()
    assert not theirs.is_new
    assert admin.asked == ["end", ("make", where == "latest", is_replicated)]
    for each in (mine, theirs):
        await each.look()
        assert [each.is_new, each.end] == [True, (7, 3, 0)]
    await mine.begun()
    assert [mine.is_new, mine.end] == [False, None]
    assert admin.known == {"s": {MARK: BEGUN}}
    await theirs.look()
    assert [theirs.is_new, theirs.end] == [False, None]
    admin.asked.clear()
    await mine.look()
    await theirs.begun()
    assert admin.asked == []
    admin.close()


async def test_subscription_that_somebody_makes_meanwhile_is_theirs() -> None:
    """It was not there a moment ago; without a mark it is followed."""
    admin = Broker()
    beginning = beginning_on(admin)
    admin.meanwhile = {"s": {}}
    await beginning.prepare()
    assert beginning.is_new is False
    await beginning.look()
    assert [beginning.is_new, beginning.end] == [False, None]
    assert admin.known == {"s": {}}
    admin.close()


async def test_subscription_of_a_topic_that_is_missing_is_new_and_not_made() -> None:
    """Subscribing makes both, or fails."""
    admin = Broker()
    admin.end = None
    beginning = beginning_on(admin)
    await beginning.prepare()
    await beginning.look()
    assert [beginning.is_new, beginning.end] == [True, None]
    assert admin.known == {}
    await beginning.begun()
    assert beginning.is_new is False
    assert "set" not in admin.asked
    admin.close()


@pytest.mark.parametrize("is_discovered", [True, False])
async def test_queue_and_topic_that_is_newer_than_the_adapter_have_no_mark(
    *, is_discovered: bool
) -> None:
    """Nobody is granted a queue alone, and a newer topic is read from its first record."""
    admin = Broker()
    adapter = PulsarAdapter(
        "t",
        service_url="pulsar://h:6650",
        subscription="s",
        type="failover" if is_discovered else "shared",
    )
    beginning = Beginning(admin, TOPIC, adapter._options, is_discovered=is_discovered)
    await beginning.prepare()
    await beginning.look()
    assert beginning.is_new
    assert [admin.asked, admin.known] == [[], {}]
    admin.close()


@pytest.mark.parametrize("mark", ["x:3", "7:x", "7", "", ":"])
async def test_mark_that_names_no_place_is_of_a_new_subscription_all_the_same(mark: str) -> None:
    """Where its topic ended is not known."""
    admin = Broker(s={MARK: mark})
    beginning = beginning_on(admin)
    await beginning.look()
    assert [beginning.is_new, beginning.end] == [True, None]
    admin.close()


async def test_broker_that_does_not_answer_leaves_the_mark_to_the_next_try() -> None:
    """Only a refusal lets a consumer do without."""
    admin = Broker(s={MARK: "7:3"})
    beginning = beginning_on(admin)
    admin.trouble = TransientAdapterError("no answer")
    with pytest.raises(TransientAdapterError, match="no answer"):
        await beginning.look()
    admin.trouble = None
    await beginning.look()
    assert [beginning.is_new, beginning.end] == [True, (7, 3, 0)]
    admin.close()


async def test_without_the_rest_api_nothing_is_known() -> None:
    """And nothing is asked."""
    adapter = PulsarAdapter("t", service_url="pulsar://h:6650", subscription="s", type="failover")
    beginning = Beginning(None, TOPIC, adapter._options, is_discovered=False)
    await beginning.prepare()
    await beginning.look()
    assert [beginning.is_new, beginning.end] == [None, None]
    await beginning.begun()
    assert beginning.is_new is False
