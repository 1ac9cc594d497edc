"""Bounds the memory of a consumer of large messages."""

from consumer_sdk.adapters import PulsarAdapter

adapter = PulsarAdapter(
    "scans",
    service_url="pulsar://127.0.0.1:6650",
    subscription="ocr",
    memory_limit=256 * 2**20,  # for all partitions
    max_message_size=2 * 2**20,  # no message is larger
)
