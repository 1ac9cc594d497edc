"""Where a group may begin; a group has one of these consumers."""

from datetime import UTC, datetime

from consumer_sdk import AtTime, Consumer
from consumer_sdk.adapters import KinesisAdapter
from consumer_sdk.stores import LocalStore

adapter = KinesisAdapter("clicks", group="billing", region_name="eu-central-1")
store = LocalStore("state.db")

Consumer(adapter, store=store, start="earliest")  # the default: all that the stream still keeps
Consumer(adapter, store=store, start="latest")  # records after the group's first start
Consumer(adapter, store=store, start=AtTime(1_763_000_000.0))  # seconds since the epoch, UTC
Consumer(adapter, store=store, start=AtTime(datetime(2026, 11, 1, tzinfo=UTC)))  # with a zone
