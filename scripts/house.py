"""Counts the house: rooms, functions, comments, and the files that a record passes.

python scripts/house.py            # what the sources tell
python scripts/house.py --at v0.1  # what those of a commit tell
python scripts/house.py --ways     # also the ways of a record, traced on a real Kafka, beside those that
                                   # docs/architecture.md lists; 1 if none takes a file of the list
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import io
import pickle
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "consumer_sdk"
FULL = 14
"""Files that a room should have at most."""


PAGE = ROOT / "docs" / "architecture.md"
_WAY = re.compile(r"^### (?P<title>From .+)\n(?P<text>(?:(?!^#).*\n)*)", re.MULTILINE)
_ROW = re.compile(r"^\| (?P<name>[^|]+) \| (?P<files>[^|]+) \| (?P<task>[^|]+) \|$", re.MULTILINE)
_FILE = re.compile(r"`([\w/]+\.py)`")


def main() -> int:
    """Prints the counts; 1 if a way differs from the page's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--ways", action="store_true", help="trace records on a real Kafka, which this starts"
    )
    parser.add_argument("--at", metavar="COMMIT", help="count the sources of this commit")
    options = parser.parse_args()
    sources = _committed(options.at) if options.at else _present()
    _print_rooms(sources)
    _print_totals(sources)
    return asyncio.run(_print_ways()) if options.ways else 0


# -- what the sources tell ----------------------------------------------------------------


def _present() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


def _committed(commit: str) -> dict[Path, str]:
    command = ["git", "-C", str(ROOT), "archive", commit, PACKAGE.name]
    archive = subprocess.run(command, check=True, capture_output=True).stdout  # noqa: S603 - our own
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        texts = {
            ROOT / member.name: file.read().decode()
            for member in tar
            if member.name.endswith(".py") and (file := tar.extractfile(member))
        }
    return dict(sorted(texts.items()))


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


# -- the ways of a record, as the page lists them -----------------------------------------


class Step(NamedTuple):
    """A row of a way's table: the name of its step, its files below the package, what they do."""

    name: str
    files: tuple[str, ...]
    task: str


def ways_of_page() -> dict[str, list[Step]]:
    """Returns the steps of each way, by the heading of its section, as docs/architecture.md has them."""
    found = _WAY.finditer(PAGE.read_text(encoding="utf-8"))
    return {match["title"]: list(_steps(match["text"])) for match in found}


def _steps(text: str) -> Iterator[Step]:
    for row in _ROW.finditer(text):
        if files := _FILE.findall(row["files"]):
            yield Step(row["name"], tuple(files), row["task"])


# -- the ways of a record, traced ---------------------------------------------------------


class Trace:
    """The files of the package whose functions run while it is on, in threads that begin after it.

    They stand in the order of their first calls, each with its functions in that order.
    """

    def __init__(self) -> None:
        self._calls: dict[str, dict[str, None]] = {}
        self._is_on = False
        self.missed: list[str] = []
        """What the page lists and the record did not pass."""
        threading.setprofile(self._look)
        sys.setprofile(self._look)

    def _look(self, frame: FrameType, event: str, _argument: object) -> None:
        if self._is_on and event == "call":
            code = frame.f_code
            self._calls.setdefault(code.co_filename, {})[code.co_qualname] = None

    @contextmanager
    def way(self, title: str) -> Iterator[None]:
        """Prints those of a way."""
        self._calls.clear()
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False
        self._print(title)

    def _print(self, title: str) -> None:
        ours = {
            Path(name).relative_to(PACKAGE).as_posix(): functions
            for name, functions in self._calls.items()
            if name.startswith(str(PACKAGE))
        }
        listed = [file for step in ways_of_page().get(title, ()) for file in step.files]
        self.missed += [f"{title}: {file}" for file in listed if file not in ours]
        print(f"\n{title}: {len(ours)} files, of which the page lists {len(listed)}")
        for name, functions in ours.items():
            beside = "" if name in listed else " (beside)"
            print(f"    {name}{beside}: {', '.join(functions)}")


async def _print_ways() -> int:
    from consumer_sdk.testing.servers import KafkaServer

    trace = Trace()
    async with KafkaServer() as kafka:
        await kafka.create_topic("orders")
        await _send(kafka.bootstrap_servers)
        with tempfile.TemporaryDirectory() as folder:
            await _handled(trace, kafka.bootstrap_servers, Path(folder))
        await _pulled(trace, kafka.bootstrap_servers)
    for missed in trace.missed:
        print(f"not passed, but listed by {PAGE.name}: {missed}")
    return 1 if trace.missed else 0


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
        with trace.way("From Kafka's socket to the commit"):
            await _send(servers)
            message = await seen.get()
            await consumer.flush()
        consumer.stop()
        await running
        await consumer.aclose()  # what it does beside the feed is no part of the feed's way
        with trace.way("From `feed.put` to the durable segment"):
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
    with trace.way("From Spark's question to planned tasks, in the driver"):
        _, task = planned(start)
    reader.stop()  # which waits for the acks, so that they are no part of the worker's way
    read(task)  # which connects again
    with trace.way("From a task to Arrow batches, in a worker"):
        read(task)


if __name__ == "__main__":
    sys.exit(main())
