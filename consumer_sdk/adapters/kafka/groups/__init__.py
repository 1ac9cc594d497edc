"""Membership of a consumer group: its protocols as state machines without I/O, and the tasks that run them."""

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?
