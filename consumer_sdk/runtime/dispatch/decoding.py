"""Calls ``decode=``: when a value is decoded, and what happens to a record that cannot be decoded.

`Message.body` decodes when it is first read, so a record whose body nobody reads costs nothing. An
error of the decoder becomes a `Reject`, with that error as its cause, because the bytes will never
be decodable. Exceptions: an unreachable schema registry, and errors of this machine (such as a lack
of memory), which are retried.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from types import CoroutineType
from typing import Any, Protocol, TypeAlias, runtime_checkable

from consumer_sdk.errors import SchemaRegistryError, UnknownSchemaError
from consumer_sdk.options import OptionType
from consumer_sdk.records import Batch, Message
from consumer_sdk.runtime.dispatch.handlers import AsyncDecodeError, Handler, is_cancelled
from consumer_sdk.runtime.dispatch.lanes import LaneBatch
from consumer_sdk.runtime.partitions.held_partition import NACKED
from consumer_sdk.runtime.partitions.queue import Lane
from consumer_sdk.trackers import Reject, Retry

__all__ = ["DECODE", "Decode", "PreparedDecode", "body_reader", "prepared_handler"]

Decode: TypeAlias = Callable[[bytes], Any]
"""Makes a value of a record's bytes; never called for a tombstone."""

PASSING = (Reject, Retry, MemoryError, OSError, SchemaRegistryError)
"""Errors of a decoder that are raised as they are: a failed delivery, or the decoder's own choice."""


@runtime_checkable
class PreparedDecode(Protocol):
    """A decoder that has to ask a server, such as a schema registry, before it can decode some values."""

    def __call__(self, data: bytes, /) -> Any:
        """Makes the value."""

    def prepare(self, data: bytes, /) -> Awaitable[None] | None:
        """None if the value can be decoded at once; otherwise an awaitable to await before."""


def _is_decode(value: object) -> bool:
    call = getattr(value, "__call__", None)  # noqa: B004 - it is looked at
    return callable(value) and not any(map(inspect.iscoroutinefunction, (value, call)))


DECODE = OptionType(
    "a function of bytes, not async, such as json.loads or json_decoder(), or None",
    lambda value: value is None or _is_decode(value),
)


def body_reader(decode: Decode | None) -> Callable[[bytes | None], Any]:
    """Returns the function that makes a message's body; without a decoder the body is the value.

    Its Raises:
        Reject: the value cannot be decoded.
        AsyncDecodeError: the decoder returns coroutines.
        Exception: one of `PASSING`.
    """
    if decode is None:
        return lambda value: value

    def read(value: bytes | None) -> Any:
        try:
            made = None if value is None else decode(value)
        except UnknownSchemaError as error:
            raise Reject("the value cannot be decoded") from error
        except PASSING:
            raise
        except Exception as error:
            raise Reject("the value cannot be decoded") from error
        if isinstance(made, CoroutineType):
            made.close()  # else Python warns that nobody awaited it
            raise AsyncDecodeError(
                f"decode={decode!r} returned a coroutine, which nobody awaits: give a function that is "
                f"not async. The record is delivered again"
            )
        return made

    return read


def prepared_handler(handler: Handler, decode: Decode | None, *, takes_batch: bool) -> Handler:
    """Returns the handler, or a handler that first awaits the decoder's preparation.

    A batch is decoded before its handler is called. The handler gets the records that could be
    decoded, so that one bad record does not send the whole batch to the dead letters. If a record
    is to be retried, later records of its lane wait for it, and no delivery is counted for them.
    """
    prepare = decode.prepare if isinstance(decode, PreparedDecode) else None
    if decode is None or (prepare is None and not takes_batch):
        return handler

    async def ready(message: Message) -> None:
        waiting = None
        if prepare is not None and message.value is not None:
            waiting = prepare(message.value)
        if waiting is not None:
            await waiting

    async def one(message: Message) -> object:
        await ready(message)
        return await handler(message)

    async def many(taken: LaneBatch) -> object:
        decoded = [
            (lane, await _decodable(lane, messages, ready)) for lane, messages in taken.parts
        ]
        # A partition may have been lost while one of another was prepared.
        good = Batch(chain.from_iterable(found for lane, found in decoded if _is_open(lane)))
        taken[:] = good
        return await handler(good) if good else None

    return many if takes_batch else one


def _is_open(lane: Lane) -> bool:
    """Whether its partition is held still: what was lost is another consumer's to process."""
    return not lane.holding.is_closed


async def _decodable(
    lane: Lane, messages: Sequence[Message], ready: Callable[[Message], Awaitable[None]]
) -> list[Message]:
    """Those that have a body; where one is to be retried, the later ones of its lane go back."""
    good = []
    for at, message in enumerate(messages, 1):
        if not _is_open(lane):
            return []
        if await _decoded(message, ready(message)):
            good.append(message)
        elif message.index == NACKED:
            lane.give_back(at)
            break
    return good


async def _decoded(message: Message, ready: Awaitable[None]) -> bool:
    """Whether it has a body; if not, its delivery alone has failed."""
    try:
        await ready
        message.body  # noqa: B018 - it is made, and kept
    except AsyncDecodeError:
        raise
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        holder: Any = message.holder
        holder.raised(message, error)
        return False
    return True
