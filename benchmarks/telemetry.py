"""``python -m benchmarks telemetry``: what metrics, spans and snapshots cost.

A consumer of the in-memory broker runs a handler that does nothing, alone and with Prometheus'
collector scraped each second from another thread; they take turns in one process, and the figure is
the ratio of the medians of their CPU time; so it is of the page, which another process looks at. A span that is not sampled is measured as the handler
with `traced` around it less the handler alone. A snapshot is of a consumer with 100 and with 10 000
partitions, the best of many: the rest is the noise of the machine. A scrape is of 10 000 partitions of
which each has had a record since the last one: how long the event loop had no turn meanwhile, whether
it computed or another thread did not let it.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from prometheus_client import CollectorRegistry, generate_latest

from benchmarks.harness import Say
from benchmarks.markdown import figure, table
from benchmarks.ours.memory_partitions import RECORD, STREAM
from consumer_sdk import Consumer, Message, admin, telemetry
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker
from consumer_sdk.testing.memory.log import StoredRecord

__all__ = ["AIMS", "measure", "tables"]

AIMS = {
    "metrics_cost": "≤ 1.02",
    "page_viewers_20_cost": "≤ 1.05",
    "traced_sampled_off_us": "≤ 10",
    "traced_sampled_off_with_parent_us": "-",
    "snapshot_100_ms": "≤ 1",
    "snapshot_100_busy_ms": "-",
    "snapshot_10000_ms": "≤ 20",
    "scrape_10000_hold_ms": "≤ 20",
    "scrape_10000_s": "-",
}
PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
SCRAPED_EACH = 1.0
LOOKS = 50
SCRAPES = 5
Handler = Callable[[Message], Awaitable[None]]


async def measure(*, quick: bool, say: Say) -> dict[str, Any]:
    """The figures of `AIMS`."""
    records, rounds = (20_000, 1) if quick else (300_000, 7)
    result: dict[str, Any] = {"aims": AIMS, "rounds": rounds, "records": records}
    result["metrics_cost"] = round(await _metrics_cost(records, rounds), 3)
    say(f"metrics_cost: {result['metrics_cost']}")
    result["page_viewers_20_cost"] = round(await _viewers_cost(records, rounds), 3)
    say(f"page_viewers_20_cost: {result['page_viewers_20_cost']}")
    result |= await _traced(records // 10, rounds)
    say(f"traced_sampled_off_us: {result['traced_sampled_off_us']}")
    for name, partitions, is_busy in (
        ("snapshot_100_ms", 100, False),
        ("snapshot_100_busy_ms", 100, True),
        ("snapshot_10000_ms", 1_000 if quick else 10_000, False),
    ):
        result[name] = round(await _snapshot_ms(partitions, is_busy=is_busy), 2)
        say(f"{name}: {result[name]}")
    result |= await _scraped(1_000 if quick else 10_000)
    say(f"scrape_10000_hold_ms: {result['scrape_10000_hold_ms']}")
    return result


async def _nothing(_message: Message) -> None:
    """A handler that does nothing."""


# -- runs -----------------------------------------------------------------------------------


async def _metrics_cost(records: int, rounds: int) -> float:
    """The CPU time of runs that are scraped, over that of those that are not."""
    plain, scraped = [], []
    for _ in range(rounds):
        plain.append(await _cpu(records, _nothing, is_scraped=False))
        scraped.append(await _cpu(records, _nothing, is_scraped=True))
    return statistics.median(scraped) / statistics.median(plain)


async def _viewers_cost(records: int, rounds: int) -> float:
    """The CPU time of runs that 20 viewers of the page look at, over that of those without.

    The runs are longer: viewers get a frame each second.
    """
    records *= 5
    plain, viewed = [], []
    for _ in range(rounds):
        plain.append(await _cpu(records, _nothing, is_scraped=False))
        viewed.append(await _cpu(records, _nothing, viewers=20))
    return statistics.median(viewed) / statistics.median(plain)


async def _traced(records: int, rounds: int) -> dict[str, float]:
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF))
    around = telemetry.traced(provider=provider)(_nothing)
    carrying = StoredRecord(None, RECORD.value, (("traceparent", PARENT),), 0)
    found: dict[str, float] = {}
    for name, record in (("", RECORD), ("_with_parent", carrying)):
        alone = [await _cpu(records, _nothing, record=record) for _ in range(rounds)]
        traced = [await _cpu(records, around, record=record) for _ in range(rounds)]
        spent = statistics.median(traced) - statistics.median(alone)
        found[f"traced_sampled_off{name}_us"] = round(spent / records * 1e6, 2)
    return found


async def _cpu(
    records: int,
    handler: Any,
    *,
    record: StoredRecord = RECORD,
    is_scraped: bool = False,
    viewers: int = 0,
) -> float:
    """Seconds of CPU time until all records are settled."""
    broker = _broker(10, records, record)
    consumer = Consumer(MemoryAdapter(broker, STREAM, group="benchmark"))
    registry = CollectorRegistry()
    registry.register(telemetry.collector(consumer))
    async with _viewed(consumer, viewers):
        began = time.process_time()
        running = asyncio.create_task(consumer.run(handler))
        scraping = asyncio.create_task(_scrape(registry)) if is_scraped else None
        while consumer.stats().settled < records:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        spent = time.process_time() - began
        if scraping is not None:
            scraping.cancel()
        consumer.stop()
        await running
    return spent


VIEWERS = """
import socket, sys, threading
def look():
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as viewer:
        viewer.sendall(b"GET /api/events HTTP/1.1\\r\\nhost: localhost\\r\\n\\r\\n")
        viewer.recv(65536)
        print(flush=True)
        while viewer.recv(65536): pass
for _ in range(int(sys.argv[2])): threading.Thread(target=look, daemon=True).start()
sys.stdin.read()
"""
"""Another process, whose time is not the consumer's."""


@asynccontextmanager
async def _viewed(consumer: Consumer, viewers: int) -> AsyncIterator[None]:
    """So many look at its page."""
    if not viewers:
        yield
        return
    async with admin.serve(consumer, address="127.0.0.1:0") as server:
        port = server.address.rpartition(":")[2].rstrip("/")
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", VIEWERS, port, str(viewers)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert program.stdout is not None  # noqa: S101 - asked for above; for mypy
        for _ in range(viewers):
            await program.stdout.readline()
        yield
        program.kill()
        await program.wait()


async def _scrape(registry: CollectorRegistry) -> None:
    while True:
        await asyncio.to_thread(generate_latest, registry)
        await asyncio.sleep(SCRAPED_EACH)


def _broker(partitions: int, records: int, record: StoredRecord) -> MemoryBroker:
    broker = MemoryBroker()
    broker.create_stream(STREAM, partitions)
    for log in broker.stream(STREAM).logs:
        log.append([record] * (records // partitions))
    gc.collect()
    return broker


# -- snapshots ------------------------------------------------------------------------------


async def _snapshot_ms(partitions: int, *, is_busy: bool) -> float:
    """Milliseconds of CPU time for a snapshot of partitions that were read and are idle, or busy.

    Busy: 100 handlers run, and the other records of 20 for each partition are queued.
    """
    never = asyncio.Event()

    async def wait(_message: Message) -> None:
        await never.wait()

    records = partitions * (20 if is_busy else 2)
    broker = _broker(partitions, records, RECORD)
    consumer = Consumer(MemoryAdapter(broker, STREAM, group="benchmark"), drain_timeout=0.1)
    running = asyncio.create_task(consumer.run(wait if is_busy else _nothing))
    while consumer.stats().fetched < records:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.0)
    spent = []
    for _ in range(LOOKS):
        began = time.process_time()
        consumer.snapshot()
        spent.append(time.process_time() - began)
        await asyncio.sleep(0.01)
    never.set()
    consumer.stop()
    await running
    return min(spent) * 1000


async def _scraped(partitions: int) -> dict[str, float]:
    """Of scrapes: the longest time without a turn of the loop, and how long it takes; the least."""
    broker = _broker(partitions, partitions, RECORD)
    consumer = Consumer(MemoryAdapter(broker, STREAM, group="benchmark"))
    registry = CollectorRegistry()
    registry.register(telemetry.collector(consumer))
    running = asyncio.create_task(consumer.run(_nothing))
    holds, spent = [], []
    for scrape in range(1, SCRAPES + 1):
        while consumer.stats().settled < scrape * partitions:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)  # the last flush, and a snapshot that is no longer fresh
        began = time.perf_counter()
        scraping = asyncio.create_task(asyncio.to_thread(generate_latest, registry))
        holds.append(await _longest_hold(scraping))
        spent.append(time.perf_counter() - began)
        for log in broker.stream(STREAM).logs:
            log.append([RECORD])
    consumer.stop()
    await running
    return {
        "scrape_10000_hold_ms": round(min(holds) * 1000, 2),
        "scrape_10000_s": round(min(spent), 2),
    }


async def _longest_hold(work: asyncio.Task[Any]) -> float:
    """Seconds between two turns of the event loop, at most, until ``work`` is done."""
    longest, before = 0.0, time.perf_counter()
    while not work.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    return longest


def tables(result: Mapping[str, Any]) -> str:
    """The results in Markdown."""
    rows = [(f"`{key}`", figure(result[key], 2), aim) for key, aim in AIMS.items()]
    return table(("figure", "measured", "aim"), rows)
