"""What a share group cannot keep is an error before anything is connected."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from consumer_sdk import Consumer, Ordering
from consumer_sdk.adapters.kafka import KafkaAdapter
from consumer_sdk.adapters.kafka.share.adapter import ShareGroupAdapter
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import AtPosition, AtTime, Kind
from consumer_sdk.stores import LocalStore


def made(**options: Any) -> KafkaAdapter:
    """A member of a share group."""
    return KafkaAdapter("orders", bootstrap_servers="h:1", share_group="billing", **options)


def test_adapter_of_a_share_group_is_a_queue_that_counts_deliveries() -> None:
    """By its capabilities; also from a URL."""
    for adapter in (made(), KafkaAdapter.from_url("kafka://h:1/orders?share_group=billing")):
        assert isinstance(adapter, ShareGroupAdapter)
        assert adapter.group == "billing"
        assert adapter.capabilities.kind is Kind.QUEUE
        assert adapter.capabilities.counts_deliveries
        assert "share_group='billing'" in repr(adapter)


def test_adapter_without_a_share_group_is_none() -> None:
    """As ever."""
    adapter = KafkaAdapter("orders", bootstrap_servers="h:1", group="billing")
    assert type(adapter) is KafkaAdapter
    assert adapter.capabilities.kind is Kind.LOG


@pytest.mark.parametrize(
    "options, message",
    [
        ({"group": "other"}, r"group='other' beside share_group='billing'.*leave group= out"),
        ({"pattern": "o.*"}, "no patterns: name the topics"),
        ({"protocol": "consumer"}, "leave protocol= out"),
        ({"session_timeout": 9.0}, "share.session.timeout.ms"),
        ({"heartbeat_interval": 1.0}, "share.heartbeat.interval.ms"),
        ({"group_instance_id": "a"}, "no static members"),
        ({"partition_assignment_strategy": ["range"]}, "the broker assigns"),
        ({"isolation_level": "read_uncommitted"}, "share.isolation.level"),
        ({"acquire_mode": "all"}, "acquire_mode"),
        ({"initial_position": "middle"}, "initial_position"),
        ({"longest_hold": -1}, "longest_hold"),
    ],
)
def test_option_that_a_share_group_cannot_keep_is_refused(
    options: dict[str, Any], message: str
) -> None:
    """With what to do instead."""
    with pytest.raises(ConfigurationError, match=message):
        made(**options)


@pytest.mark.parametrize(
    "option",
    [{"acquire_mode": "record_limit"}, {"longest_hold": 1.0}, {"initial_position": "latest"}],
)
def test_option_of_share_groups_is_refused_without_one(option: dict[str, Any]) -> None:
    """It would have no effect."""
    with pytest.raises(ConfigurationError, match="is of share groups alone"):
        KafkaAdapter("orders", bootstrap_servers="h:1", group="billing", **option)


@pytest.mark.parametrize(
    "options",
    [{"start": AtTime(datetime(2026, 1, 1, tzinfo=UTC))}, {"start": AtPosition(5)}, {"max_lag": 5}],
)
def test_start_and_lag_of_a_log_are_refused(options: dict[str, Any]) -> None:
    """A queue has no positions."""
    with pytest.raises(ConfigurationError, match="a queue"):
        Consumer(made(), **options)


def test_store_is_refused(tmp_path: Any) -> None:
    """The broker keeps all that there is."""
    with pytest.raises(ConfigurationError, match="leave store= out"):
        Consumer(made(), store=LocalStore(tmp_path / "store"))


@pytest.mark.parametrize("ordering", [Ordering.KEY, Ordering.PARTITION])
async def test_order_that_members_cannot_keep_is_refused(ordering: Ordering) -> None:
    """Before anything is connected."""

    async def handle(_message: Any) -> None:
        """Is not called."""

    with pytest.raises(ConfigurationError, match=r"Ordering\.NONE"):
        await Consumer(made()).run(handle, ordering=ordering)
