"""Ack tracking: pure and synchronous; time, randomness and wake-ups come in by argument."""

from consumer_sdk.checkpoints.binary import (
    decode_checkpoint_bytes,
    encode_checkpoint_bytes,
)
from consumer_sdk.checkpoints.json import decode_checkpoint, encode_checkpoint
from consumer_sdk.trackers.log_tracker import WatermarkTracker
from consumer_sdk.trackers.options import TrackerOptions
from consumer_sdk.trackers.queue_tracker import QueueTracker
from consumer_sdk.trackers.retry import Reject, Retry, RetryPolicy
from consumer_sdk.trackers.trees.naming import NamingTrees
from consumer_sdk.trackers.trees.receipts import Receipts
from consumer_sdk.trackers.trees.tracker import TreeTracker

__all__ = [
    "NamingTrees",
    "QueueTracker",
    "Receipts",
    "Reject",
    "Retry",
    "RetryPolicy",
    "TrackerOptions",
    "TreeTracker",
    "WatermarkTracker",
    "decode_checkpoint",
    "decode_checkpoint_bytes",
    "encode_checkpoint",
    "encode_checkpoint_bytes",
]
