"""Ack tracking: pure and synchronous; time, randomness and wake-ups come in by argument."""

from consumer_sdk.trackers.checkpoint_json import decode_checkpoint, encode_checkpoint
from consumer_sdk.trackers.queue_tracker import QueueTracker
from consumer_sdk.trackers.retry import Reject, Retry, RetryPolicy
from consumer_sdk.trackers.watermark import WatermarkTracker

__all__ = [
    "QueueTracker",
    "Reject",
    "Retry",
    "RetryPolicy",
    "WatermarkTracker",
    "decode_checkpoint",
    "encode_checkpoint",
]
