"""Parts of Pulsar topics, read without a consumer."""

from consumer_sdk.adapters.pulsar.ranges.ranges import PulsarRanges

__all__ = ["PulsarRanges"]
