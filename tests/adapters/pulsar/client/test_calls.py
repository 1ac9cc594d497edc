"""Calls of the client that are awaited: a result is somebody's, whatever is cancelled. No broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import _pulsar
import pytest

from consumer_sdk.adapters.pulsar.client.calls import call, close
from consumer_sdk.errors import TransientAdapterError

Callback = Callable[..., None]


class Call:
    """A call that ends when the test says so."""

    def __init__(self) -> None:
        self.done: Callback
        self.late: list[object] = []

    def start(self) -> asyncio.Task[object]:
        """Awaits it in a task."""
        return asyncio.create_task(call(self._start, "asking t", late=self.late.append))

    def _start(self, done: Callback) -> None:
        self.done = done


async def test_result_is_returned() -> None:
    """And nobody else gets it."""
    made = Call()
    task = made.start()
    await asyncio.sleep(0)
    made.done(_pulsar.Result.Ok, 1)
    assert await task == 1
    assert made.late == []


async def test_result_that_is_an_error_is_raised() -> None:
    """As the SDK's."""
    made = Call()
    task = made.start()
    await asyncio.sleep(0)
    made.done(_pulsar.Result.Timeout)
    with pytest.raises(TransientAdapterError, match="asking t: Timeout"):
        await task


async def test_result_after_a_cancellation_is_late() -> None:
    """A consumer that nobody closes would hold the subscription."""
    made = Call()
    task = made.start()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    made.done(_pulsar.Result.Ok, 1)
    await asyncio.sleep(0)
    assert made.late == [1]


async def test_result_that_was_set_before_a_cancellation_is_late() -> None:
    """(1) The result is there; (2) the waiter is cancelled; (3) it runs for the first time since."""
    made = Call()
    task = made.start()
    await asyncio.sleep(0)
    made.done(_pulsar.Result.Ok, 1)
    asyncio.get_running_loop().call_soon(task.cancel)  # behind the result, before the waiter
    await asyncio.wait({task})
    assert task.cancelled()
    assert made.late == [1]


async def test_error_that_was_set_before_a_cancellation_is_dropped() -> None:
    """Nobody waits for it."""
    made = Call()
    task = made.start()
    await asyncio.sleep(0)
    made.done(_pulsar.Result.Timeout)
    asyncio.get_running_loop().call_soon(task.cancel)
    await asyncio.wait({task})
    assert task.cancelled()
    assert made.late == []


class Closing:
    """A native client, consumer or producer whose close ends so, or never."""

    def __init__(self, result: object = None) -> None:
        self._result = result

    def close_async(self, done: Callback) -> None:
        """Answers at once, if it answers."""
        if self._result is not None:
            done(self._result)


@pytest.mark.parametrize(
    "result,said",
    [
        (_pulsar.Result.NotConnected, "closing the client: NotConnected"),
        (_pulsar.Result.InvalidConfiguration, "closing the client: InvalidConfiguration"),
        (None, "closing the client: no answer"),
    ],
)
async def test_close_that_fails_is_logged_and_not_raised(
    caplog: pytest.LogCaptureFixture, result: object, said: str
) -> None:
    """Nobody needs what is closed any more, and what else is closed with it has to be closed too."""
    await close(Closing(result), "the client", patience=0.01)
    assert said in caplog.text


async def test_close_that_works_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """As it mostly does."""
    await close(Closing(_pulsar.Result.Ok), "the client")
    assert not caplog.records
