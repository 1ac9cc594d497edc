"""Share groups (KIP-932): Kafka as a queue."""

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?
