"""Checks handlers, before a record is fetched or at the first call."""

from __future__ import annotations

import asyncio
import dis
import functools
import inspect
import itertools
import typing
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any

from consumer_sdk.errors import ConfigurationError, HandlerError
from consumer_sdk.records import Batch, Message

__all__ = [
    "AsyncDecodeError",
    "FactoryAsHandlerError",
    "Handler",
    "Middleware",
    "NotAwaitableError",
    "RunsHandlers",
    "UnawaitedError",
    "check_handler",
    "check_result",
    "is_cancelled",
    "wrap_handler",
]

Handler = Callable[[Any], Awaitable[object]]
Middleware = Callable[[Handler], Handler]
"""Takes a handler and returns one that does something around it."""

MANY = (Batch, list, Sequence, Collection, Iterable)

BLOCKING = (
    "the handler must be 'async def', or return what can be awaited; wrap a blocking one in "
    "asyncio.to_thread"
)


class NotAwaitableError(HandlerError):
    """A handler returned something that is no awaitable. No record is settled by that."""


class FactoryAsHandlerError(HandlerError):
    """A handler returned a consumer or a group, so it is a factory and no handler. No record is settled by that."""


class UnawaitedError(HandlerError):
    """A handler returned an awaitable that nobody awaits. No record is settled by that."""


class AsyncDecodeError(HandlerError):
    """A decoder returned an awaitable that nobody awaits. No record is settled by that."""


class RunsHandlers:
    """A consumer, or a group of them: no handler of records returns one."""

    __slots__ = ()


def is_cancelled() -> bool:
    """Whether a CancelledError means that this task is cancelled, and was not raised by something that it awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def check_result(handler: Any, made: object) -> None:
    """Checks the result of a handler, if it is not None.

    Raises:
        FactoryAsHandlerError: the function is a factory, and no handler of records.
        UnawaitedError: an await is missing, so the work has not been done, or still goes on.
    """
    is_over = asyncio.isfuture(made) and made.done()
    if not is_over and (inspect.isawaitable(made) or inspect.isasyncgen(made)):
        if inspect.iscoroutine(made):
            made.close()  # else Python warns that nobody awaited it
        raise UnawaitedError(
            f"{handler!r} returned {made!r}, which nobody awaits: write 'await' before the call that makes it, in "
            f"the handler or in what wraps it. What it was given is delivered again unless it was settled"
        )
    if isinstance(made, RunsHandlers):
        raise FactoryAsHandlerError(
            f"{handler!r} returned {made!r}: it makes a consumer, and is no handler; call it, and run what "
            f"it returns. What it was given is delivered again"
        )


def check_handler(handler: Any, *, takes_batch: bool) -> Handler:
    """Returns the handler; if its result cannot be known in advance, with a check of the result.

    Raises:
        ConfigurationError: it cannot work; the message names the mistake.
    """
    mistake = _mistake(handler, takes_batch=takes_batch)
    if mistake is not None:
        given: object = handler
        if inspect.iscoroutine(given):
            given.close()  # else Python warns that nobody awaited it
        raise ConfigurationError(f"run({handler!r}): {mistake}")
    is_async = inspect.iscoroutinefunction(_function(handler))
    call: Handler = handler if is_async else _checked(handler)
    return call


def wrap_handler(handler: Handler, around: Sequence[Middleware], *, takes_batch: bool) -> Handler:
    """Wraps the handler in all middleware, the first one outermost.

    Raises:
        ConfigurationError: an item is no function that takes a handler, or returns no handler.
    """
    given: object = around
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigurationError(f"run(around={around!r}): give a list, such as around=[traced()]")
    for middleware in reversed(around):
        if not callable(middleware):
            raise ConfigurationError(
                f"run(around=[{middleware!r}]): give functions that take a handler and return one"
            )
        handler = check_handler(middleware(handler), takes_batch=takes_batch)
    return handler


def _checked(handler: Handler) -> Handler:
    async def call(given: Any) -> object:
        made: Any = handler(given)
        if not inspect.isawaitable(made):
            raise NotAwaitableError(
                f"{handler!r} returned {made!r}, and nothing can be awaited: {BLOCKING}. What it "
                f"was given is delivered again unless it was settled"
            )
        return await made

    return call


def _mistake(handler: Any, *, takes_batch: bool) -> str | None:
    if inspect.isawaitable(handler):
        return "this is a call of the handler; give the function itself, without ()"
    if not callable(handler):
        return "the handler must be a function: async def handle(message): …"
    if inspect.isclass(handler) and not hasattr(handler, "__await__"):
        return "this is a class; give one of its instances, or a method of one"
    return (
        _wrong_kind(_function(handler))
        or _wrong_parameters(handler)
        or _wrong_number(handler, takes_batch=takes_batch)
    )


def _function(handler: Any) -> Any:
    """What is called in the end: behind partials, methods and callable objects."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not inspect.isroutine(handler) and not inspect.isclass(handler):
        handler = handler.__call__
    return getattr(handler, "__func__", handler)


def _wrong_kind(function: Any) -> str | None:
    if inspect.isasyncgenfunction(function):
        return "it yields, so that it is an async generator and no handler; return instead"
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        return None
    flags = function.__code__.co_flags
    if flags & inspect.CO_ITERABLE_COROUTINE:  # by types.coroutine
        return None
    return BLOCKING if flags & inspect.CO_GENERATOR or _returns_nothing(function) else None


def _returns_nothing(function: Any) -> bool:
    """No wrapper of a coroutine function either: that returns the coroutine."""
    code = list(dis.get_instructions(function))
    return all(
        before.opname == "LOAD_CONST" and before.argval is None
        for before, each in itertools.pairwise(code)
        if each.opname == "RETURN_VALUE"
    ) and all(each.argval is None for each in code if each.opname == "RETURN_CONST")


def _wrong_parameters(handler: Any) -> str | None:
    mistake = _unbindable(handler, inspect.Signature.bind)
    # A wrapper that takes anything hands it on, perhaps with more: what it wraps must take it.
    while mistake is None and _takes_anything(handler) and (inner := _wrapped(handler)):
        handler = inner
        mistake = _unbindable(handler, inspect.Signature.bind_partial)
    return mistake


def _wrapped(handler: Any) -> Any:
    if not isinstance(handler, functools.partial):
        return getattr(handler, "__wrapped__", None)
    inner = _wrapped(handler.func)
    return inner and functools.partial(inner, *handler.args, **handler.keywords)


def _unbindable(handler: Any, bind: Callable[..., Any]) -> str | None:
    signature = _signature(handler)
    try:
        if signature is not None:
            bind(signature, object())
    except TypeError as error:
        return f"it is called with one argument, and its parameters are {signature}: {error}"
    return None


def _takes_anything(handler: Any) -> bool:
    signature = _signature(handler)
    kinds = {each.kind for each in signature.parameters.values()} if signature else set()
    return bool(kinds) and kinds <= {
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    }


def _signature(handler: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(handler, follow_wrapped=False)
    except (TypeError, ValueError):  # some that are written in C have none
        return None


def _wrong_number(handler: Any, *, takes_batch: bool) -> str | None:
    hint = _hint(handler)
    wants = hint if isinstance(hint, type) else typing.get_origin(hint)
    if wants in MANY and not takes_batch:
        return "it takes a batch, and there is no batch_size=…; give one to get batches"
    if wants is Message and takes_batch:
        return "it takes one message, and batch_size=… gives it batches; leave one of them out"
    return None


def _hint(handler: Any) -> Any:
    """The annotation of what takes the message; None if there is none that can be read."""
    try:
        signature = inspect.signature(handler)
        name = next(iter(signature.bind(object()).arguments))
        return typing.get_type_hints(inspect.unwrap(_function(handler))).get(name)
    except Exception:  # noqa: BLE001 - an annotation may be any expression, and names may be missing
        return None
