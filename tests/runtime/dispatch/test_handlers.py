"""Handlers that cannot work are refused, with the mistake named; those that can are taken."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import pickle
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from typing import Any, cast

import pytest

from consumer_sdk import Batch, ConfigurationError, HandlerError, Message, Partition, RetryPolicy
from consumer_sdk.records import Assignment
from consumer_sdk.runtime.dispatch.handlers import check_handler, check_result
from tests.runtime.bench import Bench, bench

_MESSAGE: Any = "y"


async def takes_one(message: Message) -> None:
    """Works."""
    del message


async def takes_many(batch: Batch) -> None:
    """Works with a batch size."""
    del batch


async def takes_list(batch: list[Message]) -> None:
    """The same."""
    del batch


async def takes_nothing() -> None:
    """Cannot be given a message."""


async def takes_two(database: str, message: Message) -> None:
    """Works as a partial."""
    del database, message


async def takes_all(*given: object) -> None:
    """Works with anything."""
    del given


async def yields(message: Message) -> AsyncIterator[Message]:
    """Is an async generator."""
    yield message


def blocks(database: str, message: Message) -> None:
    """Is no coroutine function."""
    del database, message


def generates(message: Message) -> Iterator[Message]:
    """Is a generator."""
    yield message


def generates_and_returns(message: Message) -> Generator[Message, None, int]:
    """The same."""
    yield message
    return 1


def traced(handler: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """A decorator as they are written."""

    @functools.wraps(handler)
    def call(*given: Any, **options: Any) -> Awaitable[None]:
        return handler(*given, **options)

    return call


def injected(handler: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """A decorator that adds an argument."""

    @functools.wraps(handler)
    def call(*given: Any) -> Awaitable[None]:
        return handler("database", *given)

    return call


def dropping(handler: Callable[[], Awaitable[None]]) -> Callable[[Message], Awaitable[None]]:
    """A decorator that hands nothing on."""

    @functools.wraps(handler)
    def call(_message: Message) -> Awaitable[None]:
        return handler()

    return call


class Service:
    """A callable object, and a method."""

    async def __call__(self, message: Message) -> None:
        """Works."""
        del message

    async def handle(self, message: Message) -> None:
        """Works."""
        del message


class Job:
    """Awaited for each message; nobody calls an instance."""

    def __init__(self, message: Message) -> None:
        self._message = message

    def __await__(self) -> Generator[Any, None, None]:
        """Works."""
        return takes_one(self._message).__await__()

    def __call__(self) -> None:
        """Has nothing to do with it."""


@types.coroutine
def old_style(message: Message) -> Generator[Any, None, None]:
    """A generator that can be awaited."""
    yield from takes_one(message).__await__()


class Blocking:
    """A callable object that is not async."""

    def __call__(self, message: Message) -> None:
        """Cannot work."""
        del message


@pytest.mark.parametrize(
    "handler, batch_size, mistake",
    [
        (functools.partial(blocks, "database"), None, "to_thread"),
        (functools.partial(functools.partial(blocks), "database"), None, "to_thread"),
        (lambda _: None, None, "to_thread"),
        (Blocking(), None, "to_thread"),
        (generates, None, "to_thread"),
        (generates_and_returns, None, "to_thread"),
        (takes_nothing, None, "called with one argument"),
        (traced(takes_nothing), None, "called with one argument"),
        (functools.partial(traced(takes_nothing)), None, "called with one argument"),
        (takes_two, None, "missing a required argument: 'message'"),
        (functools.partial(takes_two, "x", _MESSAGE), None, "called with one argument"),
        (functools.partial(traced(takes_two), "x", _MESSAGE), None, "called with one argument"),
        (takes_many, None, "no batch_size"),
        (takes_list, None, "no batch_size"),
        (traced(takes_many), None, "no batch_size"),
        (takes_one, 10, "takes one message"),
        (yields, None, "async generator"),
        (functools.partial(yields), None, "async generator"),
        (Service, None, "this is a class"),
        ("handle", None, "must be a function"),
        (None, None, "must be a function"),
    ],
    ids=[
        "partial of a blocking one",
        "partial of a partial",
        "lambda",
        "blocking object",
        "generator",
        "generator that returns",
        "no parameter",
        "no parameter behind a wrapper",
        "partial of a wrapper of no parameter",
        "two parameters",
        "partial with all given",
        "partial of a wrapper with all given",
        "batch",
        "list",
        "batch behind a wrapper",
        "message for a batch",
        "async generator",
        "partial of an async generator",
        "class",
        "name",
        "none",
    ],
)
def test_handler_that_cannot_work_is_refused_before_any_record(
    handler: Any, batch_size: int | None, mistake: str
) -> None:
    """The error names the mistake, and nothing was called, acked or dead-lettered."""

    async def test(b: Bench) -> None:
        b.append("x")
        with pytest.raises(ConfigurationError, match=mistake):
            await b.consumer().run(handler, batch_size=batch_size)
        assert b.committed() == {}
        assert not b.letters.kept

    bench(test)


def test_call_of_the_handler_instead_of_it_is_refused() -> None:
    """``run(handle(message))`` says so, and no warning of a coroutine that was never awaited."""

    async def test(b: Bench) -> None:
        handler: Any = takes_nothing()
        with pytest.raises(ConfigurationError, match="a call of the handler"):
            await b.consumer().run(handler)

    bench(test)


@pytest.mark.parametrize(
    "handler, batch_size",
    [
        (takes_one, None),
        (takes_many, 10),
        (takes_list, 10),
        (traced(takes_one), None),
        (traced(traced(takes_many)), 10),
        (injected(takes_two), None),
        (functools.partial(takes_two, "database"), None),
        (functools.partial(traced(takes_two), "database"), None),
        (functools.partial(takes_all, "database"), None),
        (dropping(takes_nothing), None),
        (lambda message: takes_one(message), None),
        (lambda message: [takes_one(message)][0], None),
        (Job, None),
        (old_style, None),
        (Service(), None),
        (Service().handle, None),
    ],
    ids=[
        "message",
        "batch",
        "list",
        "wrapper",
        "two wrappers",
        "wrapper that adds",
        "partial",
        "partial of a wrapper",
        "partial of one that takes anything",
        "wrapper that drops",
        "lambda",
        "lambda of an item",
        "class of awaitables",
        "generator that can be awaited",
        "callable object",
        "method",
    ],
)
def test_handler_that_can_work_is_called(handler: Any, batch_size: int | None) -> None:
    """Behind wrappers, partials and callable objects too."""

    async def test(b: Bench) -> None:
        b.append("x", "y")
        await b.run(b.consumer(), handler, batch_size=batch_size)
        assert b.committed() == {"0": 2}
        assert not b.letters.kept

    bench(test)


@pytest.mark.parametrize("batch_size", [None, 2])
def test_handler_returns_no_awaitable_consumer_stops_and_settles_nothing(
    batch_size: int | None,
) -> None:
    """What could not be told in advance ends the run at the first call: no ack, no dead letter."""

    async def test(b: Bench) -> None:
        b.append("1", "2", "3")
        calls: list[object] = []

        def handle(given: Any) -> Any:
            calls.append(given)
            return len(calls)

        began = b.simulation.clock.monotonic()
        with pytest.raises(HandlerError, match="returned 1, and nothing can be awaited"):
            await b.run(b.consumer(), handle, batch_size=batch_size, concurrency=1)
        assert b.simulation.clock.monotonic() - began < 1.0  # no drain waits for it
        assert len(calls) == 1
        assert b.committed() in ({}, {"0": 0})
        assert not b.letters.kept

    bench(test)


async def takes_any(given: object) -> None:
    """Works with and without a batch size."""
    del given


async def forgets(given: Any) -> object:
    """Calls another, and does not await it."""
    return takes_any(given)


def forgetful(handler: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
    """Middleware that does not."""

    async def around(given: Any) -> object:
        return handler(given)

    return around


async def leaves_a_task(given: Any) -> object:
    """Goes on in a task that nobody waits for."""
    return asyncio.ensure_future(takes_any(given))


async def leaves_a_generator(given: Any) -> object:
    """Nobody iterates over it."""
    return yields(given)


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize(
    "handler, around",
    [
        (forgets, ()),
        (takes_any, (forgetful,)),
        (lambda given: forgets(given), ()),
        (leaves_a_task, ()),
        (leaves_a_generator, ()),
    ],
    ids=["coroutine", "middleware", "lambda", "task", "generator"],
)
def test_handler_returns_what_nobody_awaits_consumer_stops_and_settles_nothing(
    handler: Any, around: Sequence[Any], batch_size: int | None
) -> None:
    """The record's work was not done, or goes on: an ack would lose it."""

    async def test(b: Bench) -> None:
        b.append("1", "2", "3")
        with pytest.raises(HandlerError, match="which nobody awaits: write 'await'"):
            await b.run(b.consumer(), handler, around=around, batch_size=batch_size)
        assert b.committed() in ({}, {"0": 0})
        assert not b.letters.kept

    bench(test)


@pytest.mark.parametrize("batch_size", [None, 2])
def test_handler_that_makes_a_consumer_stops_the_run_and_settles_nothing(
    batch_size: int | None,
) -> None:
    """It is a factory: the consumer that it returns is never run, and no record was processed."""

    async def test(b: Bench) -> None:
        b.append("1", "2", "3")

        async def make(given: object) -> object:
            del given
            return b.consumer()

        with pytest.raises(HandlerError, match="it makes a consumer, and is no handler"):
            await b.run(b.consumer(), cast("Any", make), batch_size=batch_size)
        assert b.committed() in ({}, {"0": 0})
        assert not b.letters.kept

    bench(test)


@pytest.mark.parametrize(
    "around, mistake",
    [("traced", "give a list"), (traced, "give a list"), (["traced"], "give functions that take")],
    ids=["name", "function", "list of names"],
)
def test_middleware_that_cannot_work_is_refused_before_any_record(
    around: Any, mistake: str
) -> None:
    """The error names what was given."""

    async def test(b: Bench) -> None:
        b.append("x")
        with pytest.raises(ConfigurationError, match=rf"run\(around=.*traced.*{mistake}"):
            await b.consumer().run(takes_one, around=around)
        assert b.committed() == {}

    bench(test)


async def test_coroutine_that_nobody_awaits_is_closed() -> None:
    """Else Python warns of it, at whatever moment it is freed."""
    returned, given = takes_any(1), takes_any(1)
    with pytest.raises(HandlerError, match="which nobody awaits"):
        check_result(takes_any, returned)
    with pytest.raises(ConfigurationError, match="a call of the handler"):
        check_handler(given, takes_batch=False)
    assert [inspect.getcoroutinestate(each) for each in (returned, given)] == ["CORO_CLOSED"] * 2


async def test_function_without_a_readable_signature_is_taken_and_its_first_call_tells() -> None:
    """Some that are written in C have none."""
    with pytest.raises(HandlerError, match="returned 2, and nothing can be awaited"):
        await check_handler(cast("Any", max), takes_batch=False)([1, 2])


def test_handler_returns_a_task_that_has_ended_its_records_are_settled() -> None:
    """It was awaited."""

    async def handle(message: Message) -> Any:
        task = asyncio.ensure_future(takes_one(message))
        await task
        return task

    async def test(b: Bench) -> None:
        b.append("1")
        await b.run(b.consumer(), handle)
        assert b.committed() == {"0": 1}

    bench(test)


def test_handler_that_opened_a_tree_and_returns_no_awaitable_ends_the_consumer() -> None:
    """The message's holder is its trees' then; no drain waits for its record either."""

    async def test(b: Bench) -> None:
        def handle(message: Message) -> int:
            message.tree()
            return 5

        b.append("a")
        with pytest.raises(HandlerError):
            await b.run(b.consumer(), cast("Any", handle), seconds=5)

    bench(test)


def test_error_about_what_is_not_awaitable_is_true_of_a_handler_that_acks() -> None:
    """It has settled the record itself, and that stands."""

    async def test(b: Bench) -> None:
        b.append("1")
        handler: Any = lambda message: message.ack()  # noqa: E731 - the mistake
        with pytest.raises(HandlerError, match="delivered again unless it was settled"):
            await b.run(b.consumer(), handler)
        assert b.committed() == {"0": 1}

    bench(test)


@pytest.mark.parametrize(
    "use",
    [list, len, lambda given: given[0], lambda given: given[:2]],
    ids=["iterated", "counted", "indexed", "sliced"],
)
def test_batch_handler_without_batch_size_consumer_stops_and_settles_nothing(
    use: Callable[[Any], object],
) -> None:
    """Without an annotation its first call tells: no record is dead-lettered for it."""

    async def test(b: Bench) -> None:
        b.append("1", "2", "3")

        async def handle(messages: Any) -> None:
            use(messages)

        with pytest.raises(HandlerError, match=r"run\(handler, batch_size="):
            await b.run(b.consumer(), handle)
        assert b.committed() in ({}, {"0": 0})
        assert not b.letters.kept

    bench(test)


@pytest.mark.parametrize(
    "name", ["value", "body", "key", "headers", "position", "stream", "tree", "attempt"]
)
def test_handler_of_messages_with_batch_size_consumer_stops_and_settles_nothing(name: str) -> None:
    """A batch has no attribute of a message: the first call tells."""

    async def test(b: Bench) -> None:
        b.append("1", "2", "3")

        async def handle(message: Any) -> None:
            getattr(message, name)

        with pytest.raises(HandlerError, match=f"a batch has no attribute {name!r}.*leave batch_"):
            await b.run(b.consumer(), handle, batch_size=3)
        assert b.committed() in ({}, {"0": 0})
        assert not b.letters.kept

    bench(test)


def test_handler_of_batches_with_a_bug_of_its_own_is_a_failed_delivery() -> None:
    """An attribute that no message has either says nothing of the kind of handler."""

    async def test(b: Bench) -> None:
        b.append("1")

        async def handle(batch: Any) -> None:
            batch.no_such_attribute  # noqa: B018 - the bug

        retry = RetryPolicy(max_attempts=1)
        await b.run(b.consumer(retry=retry), handler=handle, batch_size=2, seconds=1)
        assert len(b.letters.kept) == 1

    bench(test)


def test_message_is_true_and_a_batch_can_be_asked_for_attributes() -> None:
    """What looks at them without knowing which of both it has goes on working."""
    message = Message.make(Assignment(Partition("s", "0"), 1), 0, b"")
    assert message
    assert not Batch()
    assert not hasattr(Batch([message]), "value")
    assert getattr(Batch([message]), "key", "none") == "none"
    assert pickle.loads(pickle.dumps(Batch())) == copy.copy(Batch()) == Batch()  # noqa: S301 - ours


def test_message_iterated_by_a_batch_handler_is_a_failed_delivery() -> None:
    """It has its batches: that is an error of its own."""

    async def test(b: Bench) -> None:
        b.append("1")

        async def handle(batch: Any) -> None:
            list(batch[0])

        retry = RetryPolicy(max_attempts=1)
        await b.run(b.consumer(retry=retry), handler=handle, batch_size=2, seconds=1)
        assert len(b.letters.kept) == 1

    bench(test)
