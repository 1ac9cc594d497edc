"""Protobuf values to rows, one by one, in a Spark worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from consumer_sdk.errors import UnknownSchemaError
from consumer_sdk.schema_registry import (
    SchemaRegistry,
    read_message_indexes,
    read_schema_number,
    serialized_file,
)
from consumer_sdk.spark_bridge.decoding.in_workers import ArrowDecoder, RejectedError, rejected
from consumer_sdk.spark_bridge.decoding.protobuf.files import MessageType, message_at
from consumer_sdk.spark_bridge.decoding.protobuf.types import (
    Convert,
    Options,
    columns_of,
    row_reader,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from google.protobuf.message import Message

__all__ = ["ProtobufDecoder"]

_REMEMBERED = 1000


class ProtobufDecoder(ArrowDecoder):
    """Decodes Protobuf values.

    The parser stops at 100 messages within each other; what it makes of a value is some 100 times as
    large as the value at most, which ``max_bytes`` bounds.

    Args:
        wanted: the message that values are.
        options: of types.
        registry: values have its head; None if they have none.
        max_bytes: of a value.
        kind: the Arrow type of decoded values.
    """

    def __init__(
        self,
        wanted: MessageType,
        options: Options,
        registry: SchemaRegistry | None,
        max_bytes: int,
        kind: pa.DataType,
    ) -> None:
        super().__init__(kind)
        self._wanted = wanted
        self._options = options
        self._registry = registry
        self._max_bytes = max_bytes
        self._parser: tuple[type[Message], Convert] | None = None
        self._refusals: dict[tuple[int, tuple[int, ...]], str | None] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_parser": None, "_refusals": {}}

    def read(self, data: bytes) -> Any:
        if len(data) > self._max_bytes:
            raise RejectedError(f"the value has {len(data)} bytes, more than {self._max_bytes}")
        if self._registry is not None:
            data = data[self._begin(data, self._registry) :]
        if self._parser is None:
            self._parser = self._made()
        kind, row = self._parser
        message = kind()
        try:
            message.ParseFromString(data)
        except Exception as error:
            # Bytes that mean something else fail in every way that there is.
            raise rejected(f"the value is no {self._wanted.name}", error) from error
        if not message.IsInitialized():
            raise RejectedError(
                f"the value is no {self._wanted.name}: without {_missing(message)}"[:500]
            )
        return row(message)

    def _made(self) -> tuple[type[Message], Convert]:
        kind = self._wanted.message_class()
        return kind, row_reader(kind.DESCRIPTOR, columns_of(kind.DESCRIPTOR, self._options))

    # -- heads --------------------------------------------------------------------------------

    def _begin(self, data: bytes, registry: SchemaRegistry) -> int:
        """Where the message begins behind its head."""
        try:
            number, begin = read_schema_number(data)
            indexes, begin = read_message_indexes(data, begin)
        except ValueError as error:
            raise RejectedError(str(error)) from error
        which = number, indexes
        if which not in self._refusals:
            if len(self._refusals) >= _REMEMBERED:
                self._refusals.clear()  # heads of garbage have any number
            self._refusals[which] = self._refusal(registry, *which)
        if refusal := self._refusals[which]:
            raise RejectedError(refusal)
        return begin

    def _refusal(
        self, registry: SchemaRegistry, number: int, indexes: tuple[int, ...]
    ) -> str | None:
        """Why a value with this head is not what is wanted; None, if it is."""
        try:
            schema = registry.schema(number, serialized=True)
        except UnknownSchemaError:
            return f"the schema {number} is unknown"
        if schema.kind != "PROTOBUF":
            return f"the schema {number} is {schema.kind} and not PROTOBUF"
        try:
            name = message_at(serialized_file(schema), indexes)
        except LookupError:
            return f"the schema {number} has no message {indexes}"
        return (
            None if name == self._wanted.name else f"the value is a {name}, no {self._wanted.name}"
        )


def _missing(message: Message) -> str:
    """Which required fields are.

    Google's ``FindInitializationErrors`` would end the process where a map's key is no UTF-8.
    """
    required = [field.name for field in message.DESCRIPTOR.fields if field.is_required]
    own = [name for name in required if not message.HasField(name)]
    return ", ".join(own[:8]) or "a required field of a message in it"
