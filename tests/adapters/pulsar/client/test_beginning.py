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
