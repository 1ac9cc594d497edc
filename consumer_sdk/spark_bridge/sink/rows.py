"""How rows become records, with the columns of Spark's own Kafka sink. Pure; no Spark.

=============  ==================  ================================================================
column         type                is
=============  ==================  ================================================================
``value``      binary or string    the record's value; null is a tombstone
``key``        binary or string    optional; null for none
``topic``      string              where to; needed without the option ``topic``, which comes first
``headers``    array of (key:      optional; null for none
               string, value:
               binary)
``partition``  int                 optional; null lets the key choose
=============  ==================  ================================================================

Others are ignored. A column of the very name comes before one that differs in upper and lower case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.record_writes import Outgoing
from consumer_sdk.records import Headers
from consumer_sdk.spark_bridge.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SinkColumns"]

_BYTES = ("binary", "string")
_TYPES = {
    "value": _BYTES,
    "key": _BYTES,
    "topic": ("string",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Where each of the columns is.

    Attributes:
        places: a column's name → its number among the DataFrame's.
        topic: of all rows; None: the column says it.
    """

    places: tuple[tuple[str, int], ...]
    topic: str | None

    @classmethod
    def find(cls, types: Mapping[str, str], topic: str | None) -> SinkColumns:
        """Sees that rows can become records.

        Args:
            types: columns → their Spark SQL types, in order.
            topic: what the option says.

        Raises:
            ConfigurationError: a column is missing or of another type; says which.
        """
        places = _places(types)
        there = f"there are {', '.join(types) or 'none'}"
        if "value" not in places:
            raise ConfigurationError(f"no column 'value': select what is written as it ({there})")
        if topic is None and "topic" not in places:
            raise ConfigurationError(
                f"no topic: give the option topic, or a column 'topic' ({there})"
            )
        for name, place in places.items():
            _check_type(name, [*types.values()][place])
        return cls(tuple(places.items()), topic)

    def records_of(self, batch: pa.RecordBatch) -> Iterator[Outgoing]:
        """The records of a batch, those of each topic in order.

        Raises:
            SinkError: a row has no topic, or a header no name.
        """
        columns = {name: batch.column(place) for name, place in self.places}
        topics = columns.pop("topic", None)
        if self.topic is not None:
            yield _outgoing(self.topic, columns)
            return
        for topic, rows in _by_topic(topics):
            chosen = columns
            if len(rows) < batch.num_rows:
                chosen = {name: column.take(rows) for name, column in columns.items()}
            yield _outgoing(topic, chosen)


def _places(types: Mapping[str, str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for place, name in enumerate(types):
        known = name.lower()
        if known in _TYPES and (known not in found or name == known):
            found[known] = place
    return found


def _check_type(name: str, kind: str) -> None:
    plain = "string" if kind.startswith(("string ", "varchar(", "char(")) else kind
    if plain not in _TYPES[name]:
        raise ConfigurationError(
            f"column {name!r} is {kind}, and the sink takes {' or '.join(_TYPES[name])}: cast it"
        )


def _by_topic(topics: Any) -> Iterator[tuple[str, Any]]:
    """Each topic with the numbers of its rows, in the order in which topics come first."""
    import pyarrow as pa
    from pyarrow import compute

    if topics.null_count:
        row = topics.is_null().index(True).as_py()
        raise SinkError(
            f"row {row} of a batch has null in column 'topic': give each row one, or the option topic"
        )
    encoded = topics.dictionary_encode()
    for code, topic in enumerate(encoded.dictionary.to_pylist()):
        chosen = compute.equal(encoded.indices, pa.scalar(code, encoded.indices.type))
        yield topic, compute.indices_nonzero(chosen)


def _outgoing(topic: str, columns: Mapping[str, Any]) -> Outgoing:
    return Outgoing(
        topic,
        values=_binary(columns["value"]),
        keys=_present(columns, "key"),
        partitions=columns.get("partition"),
        headers=_headers(columns.get("headers")),
    )


def _present(columns: Mapping[str, Any], name: str) -> Any:
    column = columns.get(name)
    return None if column is None or column.null_count == len(column) else _binary(column)


def _binary(column: Any) -> Any:
    """As bytes, which are UTF-8 of a string; nothing is copied."""
    import pyarrow as pa

    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    return column.cast(pa.large_binary() if wide else pa.binary())


def _headers(column: Any) -> list[Headers] | None:
    if column is None or column.null_count == len(column):
        return None
    return [
        () if row is None else [(each["key"], each["value"]) for each in row]
        for row in _checked(column).to_pylist()
    ]


def _checked(column: Any) -> Any:
    entries = column.flatten()
    if entries.null_count or entries.field("key").null_count:
        raise SinkError("a header is null, or has no key: Kafka and Pulsar have no such header")
    return column
