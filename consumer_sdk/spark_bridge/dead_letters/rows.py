"""Makes dead letters of rows. Pure, without Spark.

=================  ==================  ==========================================================
column             type                is
=================  ==================  ==========================================================
``value``          binary or string    the record's value; null if it had none
``topic``          string              the topic or stream that it came from
``partitionId``    string              the partition there; or ``partition`` (int)
``position``       string              the position there; or ``offset`` (bigint)
``reason``         string              why it is given up
``key``            binary or string    optional
``timestamp``      timestamp           optional; the record's own
``headers``        as Spark's Kafka    optional
                   source has them
``errorType``      string              optional; ``rejected`` where it is null or missing
``attempts``       int                 optional; deliveries that failed, 1 by default
=================  ==================  ==========================================================

Other columns are ignored. As in Spark, names of columns are not case-sensitive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import DeadLetter, Partition
from consumer_sdk.spark_bridge.errors import DeadLetterError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["check_columns", "letters_of"]

_BYTES = {"binary", "string"}
_HEADERS = "array<struct<key:string,value:binary>>"
_TYPES: dict[str, set[str]] = {
    "value": _BYTES,
    "topic": {"string"},
    "reason": {"string"},
    "key": _BYTES,
    "partitionId": {"string"},
    "partition": {"int", "bigint"},
    "position": {"string"},
    "offset": {"int", "bigint"},
    "timestamp": {"timestamp"},
    "headers": {_HEADERS},
    "errorType": {"string"},
    "attempts": {"int", "bigint"},
}
_NEEDED = (
    ("value",),
    ("topic",),
    ("partitionId", "partition"),
    ("position", "offset"),
    ("reason",),
)


_NAMES = {name.lower(): name for name in _TYPES}


def check_columns(types: Mapping[str, str]) -> None:
    """Checks that rows can become letters.

    Args:
        types: columns → their Spark SQL types.

    Raises:
        ConfigurationError: a column is missing or of another type; says which.
    """
    found = {_known(name): kind for name, kind in types.items()}
    for names in _NEEDED:
        if not found.keys() & set(names):
            raise ConfigurationError(
                f"dead letters need a column {' or '.join(map(repr, names))}: keep the source's "
                f"columns beside what is made of them (there are {', '.join(types)})"
            )
    for name, allowed in _TYPES.items():
        if found.get(name, next(iter(allowed))) not in allowed:
            raise ConfigurationError(
                f"column {name!r} is {found[name]}, and dead letters take "
                f"{' or '.join(sorted(allowed))}: cast it"
            )


def letters_of(batch: pa.RecordBatch, group: str, failed_at: float) -> Iterator[DeadLetter]:
    """The letters of a batch, in order.

    Args:
        batch: rows with the columns above.
        group: who gives the records up.
        failed_at: seconds since the epoch.

    Raises:
        DeadLetterError: a row does not say where it came from.
    """
    for row in _rows(batch):
        yield DeadLetter(
            partition=Partition(_text(row, "topic"), _text(row, "partitionId", "partition")),
            position=_text(row, "position", "offset"),
            key=_bytes(row.get("key")),
            value=_bytes(row["value"]),
            headers=[(each["key"], each["value"]) for each in row.get("headers") or ()],
            timestamp=row.get("timestamp"),
            error=row["reason"] or "",
            error_type=row.get("errorType") or "rejected",
            attempts=row.get("attempts") or 1,
            group=group,
            failed_at=failed_at,
        )


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    named = batch.rename_columns([_known(name) for name in batch.schema.names])
    names = [name for name in named.schema.names if name in _TYPES]
    chosen = named.select(names)
    if "timestamp" in names:
        chosen = _with_milliseconds(chosen)
    rows: list[dict[str, Any]] = chosen.to_pylist()
    return rows


def _known(name: str) -> str:
    return _NAMES.get(name.lower(), name)


def _with_milliseconds(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    # As whole numbers: a record's time may lie beyond what a datetime can say.
    micros = batch.column("timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    at = batch.schema.get_field_index("timestamp")
    numbers = [None if each is None else each // 1000 for each in micros.to_pylist()]
    return batch.set_column(at, "timestamp", pa.array(numbers, pa.int64()))


def _text(row: Mapping[str, Any], *names: str) -> str:
    """The first of the columns that is there and not null."""
    for name in names:
        if row.get(name) is not None:
            return str(row[name])
    where = {name: row[name] for name in ("topic", "partition", "offset") if name in row}
    raise DeadLetterError(
        f"a row has null in {' and in '.join(names)}, so nobody could find its record again "
        f"({where}): fill it before the row is written"
    )


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
