"""Requests counted on the wire."""

from __future__ import annotations

import struct

import pytest

from benchmarks.spark.broker_calls import Calls, Requests

SENT = b"".join(
    struct.pack(">ih", 2 + len(rest), kind) + rest
    for kind, rest in [(3, b"meta"), (1, b"x" * 5_000), (2, b""), (77, b"\x00\x01")]
)


@pytest.mark.parametrize("size", [1, 5, 6, 7, 4_096, len(SENT)])
def test_requests_are_counted_however_they_are_cut(size: int) -> None:
    """TCP cuts where it likes."""
    calls = Calls()
    requests = Requests(calls)
    for begin in range(0, len(SENT), size):
        requests.feed(SENT[begin : begin + size])
    assert [kind for _, kind in calls.seen] == [3, 1, 2, 77]


def test_only_requests_within_the_time_count() -> None:
    """From the begin on, before the end; kinds that nobody named keep their number."""
    calls = Calls([(1.0, 1), (2.0, 2), (2.5, 2), (2.9, 77), (3.0, 1)])
    assert calls.between(2.0, 3.0) == {"ListOffsets": 2, "kind 77": 1}
