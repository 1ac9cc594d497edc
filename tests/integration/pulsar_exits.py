"""A process that ends, forks or collects garbage around an open Pulsar consumer.

``python -m tests.integration.pulsar_exits HOW SERVICE_URL TOPIC``; says "good" when all went as it should.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import warnings

from consumer_sdk import Consumer
from consumer_sdk.adapters import PulsarAdapter
from consumer_sdk.errors import ConsumerClosedError
from tests.integration.pulsar_field import GROUP

__all__ = ["HOWS"]


def _consumer(service_url: str, topic: str) -> Consumer:
    adapter = PulsarAdapter(topic, service_url=service_url, subscription=GROUP, type="shared")
    return Consumer(adapter, flush_interval=0)


async def _at_work(consumer: Consumer) -> None:
    """Some records are acked, and the flush of that is under way."""
    await consumer._open()
    messages = aiter(consumer)
    for _ in range(10):
        (await anext(messages)).ack()
    await asyncio.sleep(0.01)


def _say(what: str) -> None:
    sys.stdout.write(what)
    sys.stdout.flush()


def leave(consumer: Consumer) -> None:
    """Ends the process with everything open."""
    asyncio.new_event_loop().run_until_complete(_at_work(consumer))
    _say("good")
    sys.exit(0)


def close_loop(consumer: Consumer) -> None:
    """The loop goes while the client has callbacks to make."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_at_work(consumer))
    loop.close()
    threading.Event().wait(0.5)  # they are made now
    _say("good")


def collect(consumer: Consumer) -> None:
    """The consumer is collected in another thread, and so is the native client."""
    holder = [consumer]
    del consumer
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_at_work(holder[0]))
    loop.close()
    holder.clear()
    thread = threading.Thread(target=gc.collect)
    thread.start()
    thread.join()
    threading.Event().wait(0.5)
    _say("good")


def fork(consumer: Consumer) -> None:
    """The child may not use it, and ends; the parent goes on."""
    asyncio.run(_forked(consumer))


async def _forked(consumer: Consumer) -> None:
    await _at_work(consumer)
    child = os.fork()
    if child == 0:
        os._exit(0 if _is_refused(consumer) else 1)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    messages = aiter(consumer)
    for _ in range(10):
        (await anext(messages)).ack()
    await consumer.flush()
    await consumer.aclose()
    _say("good" if status == 0 else f"the child: {status}")


def _is_refused(consumer: Consumer) -> bool:
    try:
        aiter(consumer)
    except ConsumerClosedError as error:
        return "parent process" in str(error)
    return False


HOWS = {each.__name__: each for each in (leave, close_loop, collect, fork)}

if __name__ == "__main__":
    warnings.simplefilter("ignore")  # nothing is closed, on purpose
    HOWS[sys.argv[1]](_consumer(*sys.argv[2:]))
