"""`deliver`: runs a handler on values, without a broker and without waiting."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import DeadLetter, Message
from consumer_sdk.records.outputs import Output
from consumer_sdk.runtime import Consumer, Hooks
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker
from consumer_sdk.testing.memory.dead_letters import MemoryDeadLetters
from consumer_sdk.testing.memory.transactions import MemoryTransactions
from consumer_sdk.testing.simulation import Simulation, simulate
from consumer_sdk.trackers import RetryPolicy

__all__ = ["Delivered", "deliver"]


@dataclass(frozen=True, slots=True)
class Delivered:
    """The outcome of the values.

    Attributes:
        acked: the values whose records were acked, in that order.
        retried: the values whose delivery failed and was repeated: one entry for each failure.
        dead: the dead letters, with the bytes of their records.
        sent: what `Message.send` wrote, in order: each has ``stream``, ``value``, ``key`` and
            ``headers``. Outputs of failed deliveries are left out.
    """

    acked: list[Any] = field(default_factory=list)
    retried: list[Any] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    sent: list[Output] = field(default_factory=list)


def deliver(
    handler: Callable[[Any], Awaitable[object]],
    *values: Any,
    decode: Callable[[bytes], Any] | None = None,
    retry: RetryPolicy | None = None,
    around: Sequence[Any] = (),
    batch_size: int | None = None,
    time_limit: float = 86_400.0,
) -> Delivered:
    """Runs a handler for values, as `Consumer.run` does, until each is acked or a dead letter.

    It runs on virtual time: retries with their back-off, and sleeps of the handler, take no time.
    Call it from a function that is not async.

    Args:
        handler: takes a message, or a batch with ``batch_size``.
        values: one for each record, in one partition: bytes, None (a tombstone), a text, or what
            JSON can be made of.
        decode: the consumer's ``decode``.
        retry: the consumer's retry policy.
        around: middleware.
        batch_size: records in a batch, at most.
        time_limit: virtual seconds; a day of them costs some seconds of the processor.

    Raises:
        ConfigurationError: the handler, or an option, cannot work; or an event loop runs already.
        SimulationTimeoutError: a record is neither acked nor dead-lettered by then.
    """
    _check_loop()

    async def main(simulation: Simulation) -> Delivered:
        broker = MemoryBroker(wall=simulation.clock.wall)
        broker.create_stream("values")
        for value in values:
            broker.append("values", _bytes(value))
        letters = MemoryDeadLetters()
        watch = _Watch(values, lambda: consumer.stop())
        consumer = Consumer(
            MemoryAdapter(broker, "values", group="deliver"),
            dead_letters=letters,
            decode=decode,
            retry=retry,
            hooks=watch,
            clock=simulation.clock,
        )
        run: Any = consumer.run  # of a batch or of none
        if values:
            await run(
                handler,
                around=around,
                concurrency=1,
                batch_size=batch_size,
                transactions=_Kept(watch.delivered.sent),
            )
        watch.delivered.dead.extend(letters.letters)
        return watch.delivered

    return simulate(main, time_limit=time_limit)


def _check_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        "deliver() has an event loop of its own, and one runs already: call it from a function that "
        "is not async, or as await asyncio.to_thread(deliver, …)"
    )


class _Kept(MemoryTransactions):
    """Keeps what was sent, to whatever topic."""

    def __init__(self, sent: list[Output]) -> None:
        super().__init__()
        self._sent = sent

    def _write(self, output: Output) -> None:
        self._sent.append(output)


class _Watch(Hooks):
    """Keeps what becomes of each record; ends when nothing is left."""

    def __init__(self, values: Sequence[Any], stop: Callable[[], None]) -> None:
        self._values = values
        self._stop = stop
        self._left = len(values)
        self.delivered = Delivered()

    def settled(self, message: Message) -> None:
        self.delivered.acked.append(self._values[message.position])
        self._one_less()

    def retried(self, message: Message, error: BaseException | str, delay: float) -> None:  # noqa: ARG002 - as it is called
        self.delivered.retried.append(self._values[message.position])

    def dead_lettered(self, message: Message, error: BaseException | str) -> None:  # noqa: ARG002 - as it is called
        self._one_less()

    def _one_less(self) -> None:
        self._left -= 1
        if not self._left:
            self._stop()


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()
