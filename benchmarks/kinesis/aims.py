"""What is measured, and what it should reach."""

from __future__ import annotations

from benchmarks.kinesis.sharing import SHARING_AIMS

__all__ = ["AIMS", "RATIOS"]

AIMS: dict[str, tuple[str, float]] = {
    "drain_vs_async_kinesis": ("≥", 8),
    "drain_vs_raw_kinesalite": ("≥", 0.9),
    "decode_vs_aiobotocore": ("≥", 8),
    "busy_shard_p99_s": ("<", 1),
    "read_calls_per_shard_per_s": ("≤", 5),
    **SHARING_AIMS,
}

RATIOS: dict[str, tuple[str, str]] = {
    "drain_vs_async_kinesis": ("ours_batches", "async_kinesis"),
    "messages_vs_async_kinesis": ("ours_messages", "async_kinesis"),
    "run_vs_async_kinesis": ("ours_run", "async_kinesis"),
    "drain_vs_raw_loop": ("ours_batches", "raw_loop"),
    "drain_vs_raw_kinesalite": ("ours_kinesalite", "raw_kinesalite"),
}
"""Whose rate over whose."""
