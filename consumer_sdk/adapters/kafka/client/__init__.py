"""The aiokafka client: its options, its errors, what is asked of brokers beside it."""

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?
