"""`Hooks`: tells an application the outcome of each message, and which partitions come and go."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Message, Partition

__all__ = ["NO_HOOKS", "Hooks", "SafeHooks", "check_hooks"]

log = logging.getLogger(__name__)


class Hooks(Protocol):
    """Is told the outcome of messages, and assignments of partitions. Override the methods that you need.

    These are Storm's ack and fail callbacks with values (``IAckValueSpout``,
    ``IFailValueSpout``). The consumer calls them at once, in the event loop: be short, and do not
    block. If one raises, the consumer logs the error and goes on.

    Every record ends with exactly one call of `settled` or `dead_lettered`, even if it is acked
    several times. It ends with neither if its partition is lost, or the consumer is closed, before:
    then it is delivered again, perhaps elsewhere.

    A call says what has happened in this process, not that it is durable. After a crash a record
    may come again although `settled` was called. To know that an ack is durable, await
    `Message.durable` or `Consumer.flush`.

    The message is the latest delivery that was handed out, so ``message.attempt`` is its number.
    """

    def settled(self, message: Message) -> None:  # noqa: ARG002 - for overriders
        """The record was acked: alone, in a batch, by a cumulative ack, or by its tree."""
        return

    def retried(
        self,
        message: Message,  # noqa: ARG002 - for overriders
        error: BaseException | str,  # noqa: ARG002 - for overriders
        delay: float,  # noqa: ARG002 - for overriders
    ) -> None:
        """This delivery failed, and the next one comes in ``delay`` seconds.

        Args:
            message: the delivery that failed.
            error: what the handler raised, or the reason of a nack.
            delay: seconds.
        """
        return

    def expired(self, message: Message) -> None:  # noqa: ARG002 - for overriders
        """The ack timeout passed; `retried` or, in the end, `dead_lettered` follows."""
        return

    def dead_lettered(
        self,
        message: Message,  # noqa: ARG002 - for overriders
        error: BaseException | str,  # noqa: ARG002 - for overriders
    ) -> None:
        """The record's dead letter is durable, which settles the record.

        Args:
            message: its last delivery.
            error: what the handler raised, or why it was rejected.
        """
        return

    def tree_failed(
        self,
        message: Message,  # noqa: ARG002 - for overriders
        error: BaseException | str,  # noqa: ARG002 - for overriders
    ) -> None:
        """The message's tree failed; `retried` or, in the end, `dead_lettered` follows."""
        return

    def partitions_assigned(self, partitions: Sequence[Partition]) -> None:  # noqa: ARG002 - as above
        """This consumer reads these partitions from now on, and has handed out no record of them yet."""
        return

    def partitions_revoked(self, partitions: Sequence[Partition]) -> None:  # noqa: ARG002 - as above
        """This consumer no longer has these partitions.

        They were drained and flushed, read to their end, or lost without either.

        An ack of one of their records has no effect from now on.
        """
        return


NAMES = (
    "settled",
    "retried",
    "expired",
    "dead_lettered",
    "tree_failed",
    "partitions_assigned",
    "partitions_revoked",
)


def check_hooks(hooks: object) -> None:
    """Looks for what would fail at the first message.

    Raises:
        ConfigurationError: a hook is missing, or is a coroutine function that nobody awaits.
    """
    if isinstance(hooks, type):
        raise ConfigurationError(
            f"hooks={hooks.__name__} is the class itself: give an object of it"
        )
    for name in NAMES:
        hook = getattr(hooks, name, None)
        if not callable(hook):
            raise ConfigurationError(
                f"hooks={hooks!r} has no method {name}(): let its class inherit from "
                f"consumer_sdk.Hooks, where those that it does not want do nothing"
            )
        if inspect.iscoroutinefunction(hook):
            raise ConfigurationError(
                f"hooks={hooks!r}: {name}() is 'async def', and hooks are called, not awaited: "
                f"make it a plain method (which may put the message into a queue)"
            )


class SafeHooks(Hooks):
    """The user's hooks; one that raises is logged, and nothing else."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def settled(self, message: Message) -> None:
        _call(self._hooks.settled, message)

    def retried(self, message: Message, error: BaseException | str, delay: float) -> None:
        _call(self._hooks.retried, message, error, delay)

    def expired(self, message: Message) -> None:
        _call(self._hooks.expired, message)

    def dead_lettered(self, message: Message, error: BaseException | str) -> None:
        _call(self._hooks.dead_lettered, message, error)

    def tree_failed(self, message: Message, error: BaseException | str) -> None:
        _call(self._hooks.tree_failed, message, error)

    def partitions_assigned(self, partitions: Sequence[Partition]) -> None:
        _call(self._hooks.partitions_assigned, partitions)

    def partitions_revoked(self, partitions: Sequence[Partition]) -> None:
        _call(self._hooks.partitions_revoked, partitions)


def _call(hook: Callable[..., None], *args: object) -> None:
    try:
        hook(*args)
    except (Exception, asyncio.CancelledError):
        log.exception("a hook failed: %s%r", getattr(hook, "__qualname__", hook), args)


class _NoHooks(Hooks):
    """Those of a consumer that was given none."""


NO_HOOKS: Hooks = _NoHooks()
