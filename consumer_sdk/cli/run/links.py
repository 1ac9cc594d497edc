"""Between a worker and its parent: a pair of sockets, over which the parent asks.

A question is ``{"number": 7, "do": "pause", …}``, its answer ``{"number": 7, "found": …}`` or
``{"number": 7, "error": "…"}``, each behind its length. Answers come in any order. A worker that ends
answers once more, with what it had counted, as number -1; one that begins has said so, as number -2. The
pair has no name that others could open, and nothing of it is left when one of the two is killed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from consumer_sdk.admin.sources import Consumers
from consumer_sdk.errors import ConsumerSdkError
from consumer_sdk.records import Partition
from consumer_sdk.runtime import Consumer

__all__ = ["LINK", "GoneError", "Link", "LinkError", "answering", "inherited"]

log = logging.getLogger(__name__)

LINK = "CONSUMER_SDK_WORKER_LINK"
"""The environment variable that has the number of a worker's socket."""
HEAD = 4
"""Bytes of a length."""
LAST, FIRST = -1, -2
"""The numbers of what nobody has asked for."""
LONGEST = 256 * 2**20
"""Bytes that are read of one answer: snapshots of a hundred thousand partitions have less."""
ENDING = 1.0
"""Seconds that the last words may take on each side."""


class LinkError(ConsumerSdkError):
    """The worker has said why it cannot, or cannot be asked."""


class GoneError(LinkError):
    """The worker has ended."""

    def __init__(self) -> None:
        super().__init__("has gone")


async def _read(reader: asyncio.StreamReader) -> Any:
    size = int.from_bytes(await reader.readexactly(HEAD), "big")
    if size > LONGEST:
        raise LinkError(f"{size} bytes are said to come; {LONGEST} are taken at most")
    return json.loads(await reader.readexactly(size))


def _framed(content: bytes) -> bytes:
    return len(content).to_bytes(HEAD, "big") + content


# -- the parent's end -----------------------------------------------------------------------------


class Link:
    """A worker, to be asked.

    Attributes:
        waiting: the questions that have no answer yet.
        is_odd: it was closed since what came could not be read.
        began: the time from which on the worker can answer; None before.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, who: str
    ) -> None:
        self._writer = writer
        self._who = who
        self._numbers = count()
        self._is_closed = False
        self.is_odd = False
        self.began: float | None = None
        self._last: Sequence[Any] = ()
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self._task = asyncio.create_task(self._read_all(reader), name="worker link")

    @classmethod
    async def over(cls, end: socket.socket, who: str = "a worker") -> Link:
        """Over one of a pair of sockets, which is the link's from now on."""
        return cls(*await asyncio.open_unix_connection(sock=end), who)

    def ask(self, do: str, **given: Any) -> asyncio.Future[Any]:
        """What the worker finds; it may be asked before it runs.

        Raises (the future):
            GoneError: it has ended.
            LinkError: it cannot, or what it answers cannot be read.

        Cancellation: the question stands, and its answer is dropped.
        """
        number, future = next(self._numbers), asyncio.get_running_loop().create_future()
        future.add_done_callback(_seen)
        if self._is_closed:
            future.set_exception(self._why())
            return future
        self.waiting[number] = future
        self._writer.write(_framed(json.dumps({"number": number, "do": do, **given}).encode()))
        return future

    async def last_words(self) -> Sequence[Any]:
        """What a worker that has ended has said as it did; nothing if it was killed."""
        await asyncio.wait(
            {self._task}, timeout=ENDING
        )  # a process that it forked may hold its end
        return self._last

    def close(self) -> None:
        """Nothing is answered any more."""
        self._is_closed = True
        self._task.cancel()
        self._writer.transport.abort()
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(self._why())
        self.waiting.clear()

    def _why(self) -> LinkError:
        odd = "is not asked any more, since what it answers cannot be read"
        return LinkError(odd) if self.is_odd else GoneError()

    async def _read_all(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                self._answered(await _read(reader))
        except (OSError, EOFError):  # it ends, or it has been killed
            self.close()
        except Exception:
            log.exception("what %s answers cannot be read: it is not asked any more", self._who)
            self.is_odd = True
            self.close()

    def _answered(self, answer: dict[str, Any]) -> None:
        if answer["number"] == LAST:
            self._last = answer["found"]
            return
        if answer["number"] == FIRST:
            self.began = asyncio.get_running_loop().time()
            return
        future = self.waiting.pop(answer["number"])
        if future.done():
            return
        if "error" in answer:
            future.set_exception(LinkError(answer["error"]))
        else:
            future.set_result(answer["found"])


def _seen(future: asyncio.Future[Any]) -> None:
    """Nobody has to look at an error."""
    if not future.cancelled():
        future.exception()


# -- the worker's end -----------------------------------------------------------------------------


def inherited() -> socket.socket | None:
    """The socket to this process's parent, once; None if the parent does not ask."""
    number = os.environ.pop(LINK, None)
    if number is None:
        return None
    end = socket.socket(fileno=int(number))
    end.set_inheritable(False)
    return end


@asynccontextmanager
async def answering(
    end: socket.socket | None, consumers: Sequence[Consumer]
) -> AsyncIterator[None]:
    """Answers the parent for as long as the block; the consumers go on in any case."""
    if end is None:
        yield
        return
    reader, writer = await asyncio.open_unix_connection(sock=end)
    answerer = _Answerer(consumers, writer)
    task = asyncio.create_task(answerer.run(reader), name="worker link")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        await answerer.close()


class _Answerer:
    def __init__(self, consumers: Sequence[Consumer], writer: asyncio.StreamWriter) -> None:
        self._consumers = consumers
        self._source = Consumers(consumers)
        self._writer = writer
        self._threads = ThreadPoolExecutor(1, "consumer-sdk-link")
        self._tasks: set[asyncio.Task[None]] = set()
        self._do: Mapping[str, Callable[..., Awaitable[bytes]]] = {
            "look": self._look,
            "pause": self._pause,
            "flush": self._flush,
            "stop": self._stop,
        }

    async def close(self) -> None:
        """A parent that does not listen is not waited for."""
        for task in self._tasks:
            task.cancel()
        try:
            async with asyncio.timeout(ENDING):
                self._say(LAST, b"found", await self._look())
                self._writer.close()
                await self._writer.wait_closed()
        except TimeoutError:
            self._writer.transport.abort()
        except OSError:  # it was killed: the transport is closed
            pass
        except Exception:
            log.exception("what this worker has counted since the last look is not shown")
            self._writer.transport.abort()
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, reader: asyncio.StreamReader) -> None:
        self._say(FIRST, b"found", b"null")
        try:
            while True:
                question = await _read(reader)
                # One after another in their order, as far as they do not wait.
                task = asyncio.create_task(self._answer(question))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except (OSError, EOFError):  # the parent was killed; stdin says so too
            pass
        except Exception:
            log.exception("the parent's questions cannot be read: the page does not show this one")

    async def _answer(self, question: dict[str, Any]) -> None:
        number = question.pop("number")
        try:
            kind, text = b"found", await self._do[question.pop("do")](**question)
        except ConsumerSdkError as error:
            kind, text = b"error", json.dumps(str(error)).encode()
        except Exception as error:
            log.exception("what the parent asks for cannot be done")
            kind, text = b"error", json.dumps(repr(error)).encode()
        self._say(number, kind, text)

    def _say(self, number: int, kind: bytes, text: bytes) -> None:
        self._writer.write(_framed(b'{"number": %d, "%b": %b}' % (number, kind, text)))

    async def _look(self) -> bytes:
        """Its text is made in a thread, as that of the admin server is."""
        snapshots = [await each.snapshot_in_turns() for each in self._consumers]
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, lambda: f"[{', '.join(each.to_json() for each in snapshots)}]".encode()
        )

    async def _pause(self, consumer: int, partition: list[str] | None, reason: str | None) -> bytes:
        at = None if partition is None else Partition(*partition)
        await self._source.set_paused(consumer, at, reason)
        return b"null"

    async def _flush(self, consumer: int) -> bytes:
        await self._source.flush(consumer)
        return b"null"

    async def _stop(self, consumer: int) -> bytes:
        await self._source.stop(consumer)
        return b"null"
