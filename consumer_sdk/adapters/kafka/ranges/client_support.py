"""Whether this client has what direct reading needs; found out by doing it once."""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["can_read_directly"]


@cache
def can_read_directly() -> bool:
    """The client's fetch requests and record batches are as `RangeRead` uses them."""
    try:
        return _asks() and _decodes()
    except Exception:  # noqa: BLE001 - whatever is missing or other: the public way works
        return False


def _asks() -> bool:
    from aiokafka.protocol.fetch import FetchRequest

    from consumer_sdk.adapters.kafka.decoding.unpacking import partition_names

    request = FetchRequest(500, 0, 1000, 1, [("t", [(0, 7, 1000)])])
    sent: Any = request.prepare({1: (4, 11)})  # API 1 is Fetch; Kafka 4 has versions from 4 on
    names = set(partition_names(sent.RESPONSE_TYPE))
    return names >= {"error_code", "highwater_offset", "last_stable_offset", "message_set"}


def _decodes() -> bool:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    from consumer_sdk.adapters.kafka.ranges.batches import Columnizer, open_batches

    builder = DefaultRecordBatchBuilder(2, 0, 1, 5, 0, 0, 1000)
    builder.append(0, 1234, b"k", b"v", [("h", None)])
    columnizer = Columnizer(0, 1, is_committed=True, with_headers=True, max_bytes=1)
    (columns,) = columnizer.columns(open_batches(bytes(builder.build())), [])
    return (list(columns.positions), columns.keys, columns.values, columns.timestamps) == (
        [0],
        [b"k"],
        [b"v"],
        [1234],
    )
