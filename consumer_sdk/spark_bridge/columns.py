"""The columns that Spark sees.

The first seven are those of Spark's own Kafka source, with the same types. Then come its ``headers``,
which are null when there are none, as there. ``partition`` and ``offset`` are null for a broker whose
partitions or offsets are no integers; ``partitionId`` and ``position`` always have a value, as text.
``timestampType`` is Kafka's, 0 or 1, where Spark pulls from Kafka. In a feed it is null, because the
SDK's messages do not carry it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.spark_bridge.arrow import import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "COLUMNS",
    "arrow_schema",
    "partition_number",
]

_INT32 = 2**31

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "partitionId": "string",
    "position": "string",
}
"""Names and Spark SQL types."""


def arrow_schema() -> pa.Schema:
    """The Arrow schema that Spark expects for `COLUMNS`. Spark compares names, order, types and time zone."""
    pa = import_pyarrow()
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(pa.field("element", header))),
            ("partitionId", pa.string()),
            ("position", pa.string()),
        ]
    )


def partition_number(partition_id: str) -> int | None:
    """The partition's number, if its id is one."""
    if partition_id.isascii() and partition_id.isdecimal() and int(partition_id) < _INT32:
        return int(partition_id)
    return None
