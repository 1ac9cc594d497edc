"""Transactions: outputs of handlers, committed with the positions of their records."""

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?
