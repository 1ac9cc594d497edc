"""Avro values whose writers' schemas are in a schema registry."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

from consumer_sdk.errors import ConfigurationError, MissingExtraError, UnknownSchemaError
from consumer_sdk.schema_registry import SchemaRegistry, avro_schema, read_schema_number

try:
    import fastavro
    from fastavro import _read_py

    from consumer_sdk.spark_bridge.decoding.avro_schemas import is_recursive, parse
except ImportError as _error:
    raise MissingExtraError("fastavro", "avro") from _error

__all__ = ["AvroDecoder", "avro_decoder"]

UNKNOWN = 60.0
"""Seconds for which a registry is not asked again for a schema that it does not have."""
REMEMBERED = 1000
"""Schemas, and numbers that no registry knows: heads of garbage have any number."""


def avro_decoder(
    registry: SchemaRegistry | str, schema: str | Mapping[str, Any] | Sequence[Any] | None = None
) -> AvroDecoder:
    """A decoder of values that begin with a zero and the number of the schema that they were written with.

    In `Consumer.run` a schema that is new is asked for in a thread, before the handler is called; a
    registry that is away fails the delivery, and rejects nothing. When you pull, ``message.body`` asks, and
    blocks, for each schema's first value; ``await`` what ``decoder.prepare(message.value)`` returns before.

    Args:
        registry: it, or its URL.
        schema: the reader's, as JSON text or Python values; None: each value is as it was written.

    Raises:
        MissingExtraError: the extra ``avro`` is not installed.
        ConfigurationError: the URL is none, or the schema is none.
    """
    known = SchemaRegistry.from_url(registry) if isinstance(registry, str) else registry
    if not isinstance(known, SchemaRegistry):
        raise ConfigurationError(f"avro_decoder({registry!r}): give a SchemaRegistry, or its URL")
    return AvroDecoder(known, None if schema is None else _reader(schema))


def _reader(schema: str | Mapping[str, Any] | Sequence[Any]) -> Any:
    try:
        return parse(json.loads(schema) if isinstance(schema, str) else schema)
    except ConfigurationError:
        raise
    except Exception as error:  # whatever fastavro makes of it
        raise ConfigurationError(
            f"avro_decoder(schema=…): this is no Avro schema: {error!r}"
        ) from error


@dataclass(frozen=True, slots=True)
class _Writer:
    """A schema for fastavro, and its function that reads a value of it.

    The compiled function overruns the thread's stack on a value that is nested some thousands
    deep, which ends the process; fastavro's other one goes as deep as Python allows.
    """

    schema: Any
    read: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Unknown:
    """That the registry has no such schema, for a while: it may be told of it later."""

    why: str
    until: float


@final
class AvroDecoder:
    """See `avro_decoder`.

    Args:
        clock: seconds; for tests.
    """

    def __init__(
        self, registry: SchemaRegistry, reader: Any, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._registry = registry
        self._reader = reader
        self._writers: OrderedDict[int, _Writer | _Unknown] = OrderedDict()
        self._asking: dict[tuple[asyncio.AbstractEventLoop, int], asyncio.Task[Any]] = {}

    def __call__(self, data: bytes) -> Any:
        """The value.

        Raises:
            UnknownSchemaError: the registry has no such schema.
            SchemaRegistryError: it cannot be asked now.
            Exception: the bytes are no value of the schema.
        """
        number, begin = read_schema_number(data)
        writer = self._known(number) or self._learn(number)
        if isinstance(writer, _Unknown):
            raise UnknownSchemaError(writer.why)
        source = io.BytesIO(data)
        source.seek(begin)
        value = writer.read(source, writer.schema, self._reader)
        if rest := len(data) - source.tell():
            raise ValueError(f"{rest} bytes are left over behind the Avro value")
        return value

    def prepare(self, data: bytes) -> Awaitable[None] | None:
        """None if the schema is known, or the value names none; else what asks for it in a thread.

        Cancellation: of one that waits ends neither the question nor the others' wait.
        """
        try:
            number, _begin = read_schema_number(data)
        except ValueError:
            return None
        return None if self._known(number) else self._asked(number)

    async def _asked(self, number: int) -> None:
        """Asks once for all values that name a schema."""
        which = asyncio.get_running_loop(), number
        task = self._asking.get(which)
        if task is None:
            task = asyncio.create_task(asyncio.to_thread(self._learn, number))
            self._asking[which] = task
            task.add_done_callback(partial(self._answered, which))
        # A wait, and not the task's own end: cancelling one leaves the others their answer.
        await asyncio.wait({task})
        task.result()

    def _answered(
        self, which: tuple[asyncio.AbstractEventLoop, int], task: asyncio.Task[Any]
    ) -> None:
        del self._asking[which]
        if not task.cancelled():
            task.exception()  # also where all who waited were cancelled

    def _known(self, number: int) -> _Writer | _Unknown | None:
        found = self._writers.get(number)
        is_old = isinstance(found, _Unknown) and self._clock() >= found.until
        return None if is_old else found

    def _learn(self, number: int) -> _Writer | _Unknown:
        try:
            found: _Writer | _Unknown = self._look_up(number)
        except UnknownSchemaError as error:
            found = _Unknown(str(error), self._clock() + UNKNOWN)
        self._writers[number] = found
        while len(self._writers) > REMEMBERED:
            self._writers.popitem(last=False)
        return found

    def _look_up(self, number: int) -> _Writer:
        registered = self._registry.schema(number)
        if registered.kind != "AVRO":
            raise UnknownSchemaError(f"the schema {number} is {registered.kind} and not AVRO")
        schema = parse(avro_schema(self._registry, registered))
        read = _read_py.schemaless_reader if is_recursive(schema) else fastavro.schemaless_reader
        return _Writer(schema, read)
