"""The topic partitions of one consumer: received, buffered, acked."""

from consumer_sdk.adapters.pulsar import client_support as _support  # noqa: F401 - is it there?
