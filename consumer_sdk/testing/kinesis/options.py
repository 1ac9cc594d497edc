"""What a test may choose: the limits of a shard, and how the service behaves where it may."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Quirks", "ShardLimits"]

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLimits:
    """What a shard gives to all of its readers together; the defaults are those of AWS.

    Attributes:
        calls: GetRecords calls in any second.
        bytes: bytes of GetRecords in any second; a larger answer is paid for afterwards.
        answer: bytes in one answer of GetRecords.
        iterators: GetShardIterator calls in any second.
    """

    calls: int = 5
    bytes: float = 2 * MEBIBYTE
    answer: int = 10 * MEBIBYTE
    iterators: int = 5

    @classmethod
    def none(cls) -> ShardLimits:
        """A shard that never refuses; an answer still ends at 10 MiB."""
        return cls(calls=10**9, bytes=float("inf"), iterators=10**9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """What Kinesis and the servers that imitate it do differently, or do at times.

    Attributes:
        null_with_last_records: the last records of a closed shard come without a next iterator;
            else it is one empty answer later.
        names_children: the end of a closed shard names its child shards.
        empty_pages: answers without records that come before each one with records.
        list_lag: seconds until a new shard is listed.
        close_lag: seconds until readers of a closed shard are told of its end: its children are
            listed before.
        takeover_error: a subscription that is taken over fails with ResourceInUseException; else
            it just ends. AWS's documentation allows both.
        creating: seconds until a fan-out consumer is active.
        false_ends: of so many answers of a shard one lacks what to read on with, as behind a proxy
            that is broken; 0: none.
    """

    null_with_last_records: bool = True
    names_children: bool = True
    empty_pages: int = 0
    list_lag: float = 0.0
    close_lag: float = 0.0
    takeover_error: bool = False
    creating: float = 0.5
    false_ends: int = 0
