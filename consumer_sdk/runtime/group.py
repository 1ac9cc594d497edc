"""`Group`: several consumers in one process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, final

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import instance, optional
from consumer_sdk.runtime.consumer import Consumer, check_run
from consumer_sdk.runtime.dispatch.handlers import Handler, RunsHandlers, check_handler

__all__ = ["Group"]

log = logging.getLogger(__name__)
HANDLERS = optional(
    instance(Mapping, "{consumer: handler, …}, since a consumer has no handler of its own")
)
CONSUMER = instance(Consumer, "a Consumer, such as Consumer(adapter)")


@final
class Group(RunsHandlers):
    """Consumers that run and end together, each with its handler.

    A signal, `stop` or cancellation ends all of them, each with a drain and a last flush. If one
    fails, the others end in the same way. If one is stopped by itself, the others go on.

    Args:
        handlers: the handler of each consumer.

    Raises:
        ConfigurationError: what `add` raises, or the handlers are no mapping.

    Example:
        ``await Group({orders: handle_order, payments: handle_payment}).run()``
    """

    def __init__(self, handlers: Mapping[Consumer, Handler] | None = None) -> None:
        self._runs: dict[Consumer, tuple[Handler, dict[str, Any]]] = {}
        HANDLERS.check("handlers", handlers, "Group")
        for consumer, handler in (handlers or {}).items():
            self.add(consumer, handler)

    def add(self, consumer: Consumer, handler: Handler, **options: Any) -> None:
        """Adds a consumer and its handler, with options of `Consumer.run` such as ``concurrency``.

        Raises:
            ConfigurationError: the consumer was added before, or is no consumer, or the handler
                cannot work.
        """
        CONSUMER.check("consumer", consumer, "Group.add")
        if consumer in self._runs:
            raise ConfigurationError(f"{consumer!r} is in the group; a consumer has one handler")
        check_handler(handler, takes_batch=options.get("batch_size") is not None)
        self._runs[consumer] = handler, options

    @property
    def consumers(self) -> Sequence[Consumer]:
        """The consumers, in the order in which they were added."""
        return list(self._runs)

    def check(self) -> None:
        """Checks the handler and options of each consumer, and opens nothing.

        Raises:
            ConfigurationError: as `run`.
        """
        if not self._runs:
            raise ConfigurationError("Group(): there is no consumer; give {consumer: handler, …}")
        for consumer, (handler, options) in self._runs.items():
            check_run(consumer, handler, **options)

    def stop(self) -> None:
        """Asks each consumer to end, as `Consumer.stop` does."""
        for consumer in self._runs:
            consumer.stop()

    async def run(self) -> None:
        """Runs all consumers, until the last one has ended.

        Raises:
            ConfigurationError: there is no consumer in it, or one has an option that cannot work.
            Exception: the error of the first consumer that failed. Errors of the others, as they
                end, are logged.

        Cancellation: all drain and flush first.
        """
        self.check()
        try:
            async with asyncio.TaskGroup() as tasks:
                for consumer, (handler, options) in self._runs.items():
                    tasks.create_task(consumer.run(handler, **options))
        except BaseExceptionGroup as failed:
            first, *others = failed.exceptions
        else:
            return
        for error in others:
            log.error("another consumer of the group failed as it ended", exc_info=error)
        raise first
