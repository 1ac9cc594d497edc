"""Avro values whose writers' schemas are in a schema registry."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Any, final

from consumer_sdk.errors import (
    ConfigurationError,
    MissingExtraError,
    TransientSchemaRegistryError,
    UnknownSchemaError,
)
from consumer_sdk.schema_registry import SchemaRegistry, avro_schema, read_schema_number

try:
    from consumer_sdk.spark_bridge.decoding.avro.schemas import WriterSchema, parse
except ImportError as _error:
    raise MissingExtraError("fastavro", "avro") from _error

__all__ = ["AvroDecoder", "avro_decoder"]

log = logging.getLogger(__name__)

UNKNOWN = 60.0
"""Seconds for which a registry is not asked again for a schema that it does not have."""
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
"""Seconds between two questions to a registry that is away; each pause is twice as long as the one before."""
REMEMBERED = 1000
"""Schemas, and numbers that no registry knows: heads of garbage have any number."""


def avro_decoder(
    registry: SchemaRegistry | str, schema: str | Mapping[str, Any] | Sequence[Any] | None = None
) -> AvroDecoder:
    """Returns a decoder of values that begin with a zero byte and the id of the writer's schema.

    In `Consumer.run`, a thread asks the registry for a new schema before the handler is called.
    While the registry is unreachable or too busy, the delivery waits without a limit, and counts no
    failure. If the registry refuses the credentials, or sends an invalid response, the delivery
    fails.

    When you pull, ``message.body`` itself asks the registry for each schema's first value,
    ``attempts`` times, and blocks the event loop. To avoid that, await
    ``decoder.prepare(message.value)`` first.

    Args:
        registry: the registry, or its URL.
        schema: the reader's schema, as JSON text or Python values. None: each value is decoded by
            its writer's schema.

    Raises:
        MissingExtraError: the extra ``avro`` is not installed.
        ConfigurationError: the URL or the schema is invalid.
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
class _Unknown:
    """Remembers for a while that the registry has no such schema; it may be registered later."""

    why: str
    until: float


@dataclass(slots=True)
class _Question:
    """A task that asks for a schema, and how many values wait for it."""

    task: asyncio.Task[Any]
    waiting: int = 0

    def end_unless_awaited(self) -> None:
        """Cancels the task if nobody waits any more."""
        if not self.waiting and not self.task.cancel() and not self.task.cancelled():
            self.task.exception()  # else asyncio says that nobody has looked at it


class _DaemonThreads(Executor):
    """A thread for each call, for which no process waits that ends: a registry may hang.

    The event loop's own executor is joined, and a thread pool's threads are at the interpreter's exit.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001 - it is whoever waits who sees it
                    future.set_exception(error)

        threading.Thread(target=work, name="consumer_sdk schema registry", daemon=True).start()
        return future


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
        self._once = replace(registry, attempts=1)
        self._threads = _DaemonThreads()
        self._reader = reader
        self._writers: OrderedDict[int, WriterSchema | _Unknown] = OrderedDict()
        self._asking: dict[tuple[asyncio.AbstractEventLoop, int], _Question] = {}

    def __call__(self, data: bytes) -> Any:
        """The value.

        Raises:
            UnknownSchemaError: the registry has no such schema.
            SchemaRegistryError: it cannot be asked now.
            Exception: the bytes are no value of the schema.
        """
        number, begin = read_schema_number(data)
        writer = self._known(number) or self._learn(number, self._registry)
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

        That waits while the registry is away or too busy.

        Its Raises:
            SchemaRegistryError: the registry refuses the credentials, or answers what none does.

        Cancellation: of one that waits does not end the others' wait; the question ends with the last.
        """
        try:
            number, _begin = read_schema_number(data)
        except ValueError:
            return None
        return None if self._known(number) else self._asked(number)

    async def _asked(self, number: int) -> None:
        """Asks once for all values that name a schema."""
        which = asyncio.get_running_loop(), number
        question = self._asking.get(which)
        if question is None:
            question = _Question(asyncio.create_task(self._answer(number)))
            self._asking[which] = question
        question.waiting += 1
        try:
            # A wait, and not the task's own end: cancelling one leaves the others their answer.
            await asyncio.wait({question.task})
        finally:
            question.waiting -= 1
            is_over = question.task.done() or not question.waiting
            if is_over and self._asking.get(which) is question:
                del self._asking[which]
            question.end_unless_awaited()
        question.task.result()

    async def _answer(self, number: int) -> None:
        """Asks again and again until the registry answers. A thread asks for one attempt at most."""
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE
        while True:
            try:
                await loop.run_in_executor(self._threads, self._learn, number, self._once)
            except TransientSchemaRegistryError as error:
                log.warning("%s; records wait, and it is asked again in %g s", error, pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                return

    def _known(self, number: int) -> WriterSchema | _Unknown | None:
        found = self._writers.get(number)
        is_old = isinstance(found, _Unknown) and self._clock() >= found.until
        return None if is_old else found

    def _learn(self, number: int, registry: SchemaRegistry) -> WriterSchema | _Unknown:
        try:
            found: WriterSchema | _Unknown = _look_up(number, registry)
        except UnknownSchemaError as error:
            found = _Unknown(str(error), self._clock() + UNKNOWN)
        self._writers[number] = found
        while len(self._writers) > REMEMBERED:
            self._writers.popitem(last=False)
        return found


def _look_up(number: int, registry: SchemaRegistry) -> WriterSchema:
    registered = registry.schema(number)
    if registered.kind != "AVRO":
        raise UnknownSchemaError(f"the schema {number} is {registered.kind} and not AVRO")
    return WriterSchema.of(avro_schema(registry, registered))
