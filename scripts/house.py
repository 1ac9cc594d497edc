"""Counts the house: rooms, functions, comments, and the files that a record passes.

python scripts/house.py            # what the sources tell
python scripts/house.py --ways     # also three ways of a record, traced on a real Kafka
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import io
import pickle
import statistics
import sys
import tempfile
import threading
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "consumer_sdk"
FULL = 14
"""Files that a room should have at most."""


def main() -> None:
    """Prints the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--ways", action="store_true", help="trace records on a real Kafka, which this starts"
    )
    options = parser.parse_args()
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    _print_rooms(sources)
    _print_totals(sources)
    if options.ways:
        asyncio.run(_print_ways())


# -- what the sources tell ----------------------------------------------------------------


def _print_rooms(sources: dict[Path, str]) -> None:
    rooms: dict[Path, list[str]] = {}
    for path, text in sources.items():
        rooms.setdefault(path.parent, []).append(text)
    print(f"{'room':44} files   lines")
    for room, texts in rooms.items():
        full = "  more than 14" if len(texts) > FULL else ""
        lines = sum(map(_lines, texts))
        print(f"{room.relative_to(ROOT).as_posix():44} {len(texts):5} {lines:7}{full}")


def _print_totals(sources: dict[Path, str]) -> None:
    for title, chosen in (
        ("all", sources),
        ("without testing", {p: t for p, t in sources.items() if "testing" not in p.parts}),
    ):
        lengths = sorted(_functions(chosen.values()))
        lines = sum(map(_lines, chosen.values()))
        comments = sum(map(_comments, chosen.values()))
        print(f"\n{title}: {lines} lines in {len(chosen)} files")
        print(
            f"functions: median {statistics.median(lengths)} lines, p90 {lengths[len(lengths) * 9 // 10]}"
        )
        print(f"comments: {100 * comments / lines:.1f} for each 100 lines")
    print(f"files that one other file imports: {_lonely(sources)}")


def _lines(text: str) -> int:
    return text.count("\n")


def _functions(texts: Iterable[str]) -> Iterator[int]:
    for text in texts:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                yield node.end_lineno - node.body[0].lineno + 1


def _comments(text: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type == tokenize.COMMENT for token in tokens)


def _lonely(sources: dict[Path, str]) -> int:
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sources}
    users: Counter[str] = Counter()
    for text in sources.values():
        found = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        users.update(found & names.keys())
    return sum(count == 1 for count in users.values())


# -- the ways of a record, traced ---------------------------------------------------------


class Trace:
    """The files of the package whose functions run while it is on, in threads that begin after it."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._is_on = False
        threading.setprofile(self._look)
        sys.setprofile(self._look)

    def _look(self, frame: FrameType, event: str, _argument: object) -> None:
        if self._is_on and event == "call":
            self._files.add(frame.f_code.co_filename)

    @contextmanager
    def way(self, title: str) -> Iterator[None]:
        """Prints those of a way."""
        self._files.clear()
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False
        ours = sorted(name for name in self._files if name.startswith(str(PACKAGE)))
        print(f"\n{title}: {len(ours)} files")
        for name in ours:
            print(f"    {Path(name).relative_to(ROOT).as_posix()}")


async def _print_ways() -> None:
    from consumer_sdk.testing.servers import KafkaServer

    trace = Trace()
    async with KafkaServer() as kafka:
        await kafka.create_topic("orders")
        await _send(kafka.bootstrap_servers)
        with tempfile.TemporaryDirectory() as folder:
            await _handled(trace, kafka.bootstrap_servers, Path(folder))
        await _pulled(trace, kafka.bootstrap_servers)


async def _send(servers: str) -> None:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("orders", b"42", key=b"key")


async def _handled(trace: Trace, servers: str, folder: Path) -> None:
    """A record goes from the socket to the commit; then one from `feed.put` to its segment."""
    from consumer_sdk import Consumer, Message
    from consumer_sdk.adapters import KafkaAdapter
    from consumer_sdk.spark_bridge import SparkFeed

    seen: asyncio.Queue[Message] = asyncio.Queue()
    adapter = KafkaAdapter("orders", bootstrap_servers=servers, group="billing")
    async with (
        SparkFeed(folder / "feed", encode_position=adapter.encode_position) as feed,
        Consumer(adapter, start="earliest") as consumer,
    ):
        running = asyncio.create_task(consumer.run(seen.put, handle_signals=False))
        await feed.put(await seen.get())
        await consumer.flush()
        with trace.way("from Kafka's socket to the commit"):
            await _send(servers)
            message = await seen.get()
            await consumer.flush()
        consumer.stop()
        await running
        await consumer.aclose()  # what it does beside the feed is no part of the feed's way
        with trace.way("from feed.put to the durable segment"):
            await feed.put(message)


async def _pulled(trace: Trace, servers: str) -> None:
    """A micro-batch, as Spark's driver asks for it, and its tasks, as a worker reads them."""
    from pyspark.sql.types import StructType

    from consumer_sdk.spark_bridge.data_source import ConsumerSdkDataSource

    source = ConsumerSdkDataSource(
        {"url": f"kafka://{servers}/orders?group=spark", "startingOffsets": "earliest"}
    )
    columns = StructType().add("value", "binary").add("offset", "long").add("topic", "string")
    reader: Any = source.streamReader(columns)

    def planned(start: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        reader.commit(start)
        end: dict[str, Any] = reader.latestOffset(start)
        return end, pickle.dumps((reader, reader.partitions(start, end)))

    def read(task: bytes) -> None:
        worker, parts = pickle.loads(task)  # noqa: S301 - its own
        for part in parts:
            list(worker.read(part))

    start, task = planned(reader.initialOffset())
    read(task)
    await _send(servers)
    with trace.way("a micro-batch that Spark pulls, in the driver (and the ack of the last)"):
        _, task = planned(start)
    with trace.way("the same, in a worker"):
        read(task)
    reader.stop()


if __name__ == "__main__":
    main()
