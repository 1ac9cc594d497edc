"""Receives, buffers and acks the topic partitions of one consumer."""

from consumer_sdk.adapters.pulsar import client_support as _support  # noqa: F401 - is it there?
