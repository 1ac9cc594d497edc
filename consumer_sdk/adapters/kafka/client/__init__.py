"""The aiokafka client: its options and errors, and requests that it lacks."""

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?
