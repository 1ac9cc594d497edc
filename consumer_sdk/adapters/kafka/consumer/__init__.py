"""Assigns, fetches, commits and revokes the partitions of one consumer."""

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?
