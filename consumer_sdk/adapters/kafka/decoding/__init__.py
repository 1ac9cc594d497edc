"""Decodes record batches into messages."""

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?
