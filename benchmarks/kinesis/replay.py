"""A Kinesis that hands out ready-made answers, as a program of its own.

It is given its shards as JSON, prints its port, and ends when its standard input does. It writes
bytes to sockets and nothing else, so that no client waits for it; and it notes when each shard was
asked for records, which ``GET /calls`` tells.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import urlopen

from benchmarks.kinesis.records import FIRST_SEQUENCE, body
from benchmarks.process import ROOT

__all__ = ["ReplayShard", "Replaying", "most_in_a_second", "replaying"]

MOST = 10_000
"""Records in one answer."""

LAG = 60_000
CREATED = 1_700_000_000.0
ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/replay"
JSON = "application/x-amz-json-1.1"
THROTTLED = b'{"__type":"ProvisionedThroughputExceededException","message":"Rate exceeded"}'


@dataclass(frozen=True, slots=True)
class ReplayShard:
    """What one shard answers with: pages of records, and empty pages behind those.

    Attributes:
        records: how many there are.
        page: how many come in one answer.
        refused: of so many calls one is throttled; 0 for none.
    """

    records: int
    page: int = MOST
    refused: int = 0


class Shard:
    """One shard's answers, and when it was asked for them."""

    def __init__(self, name: str, spec: ReplayShard) -> None:
        self.name = name
        self.calls: list[float] = []
        self._spec = spec
        firsts = range(0, spec.records, spec.page)
        self._bodies = [
            body(
                first,
                min(spec.page, spec.records - first),
                self._iterator(number + 1),
                LAG if number + 1 < len(firsts) else 0,
            )
            for number, first in enumerate(firsts)
        ]
        self._bodies.append(body(0, 0, self._iterator(len(firsts)), 0))

    def _iterator(self, page: int) -> str:
        return f"{self.name}:{page}"

    def begin(self, asked: Mapping[str, Any]) -> str:
        """The iterator at the page in which the reader is."""
        if "StartingSequenceNumber" not in asked:
            return self._iterator(0)
        number = int(asked["StartingSequenceNumber"]) - FIRST_SEQUENCE
        number += asked["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER"
        return self._iterator(number // self._spec.page)

    def read(self, page: str) -> bytes | None:
        """The answer; None where the call is refused."""
        self.calls.append(time.monotonic())
        refused = self._spec.refused
        if refused and len(self.calls) % refused == 0:
            return None
        return self._bodies[min(int(page), len(self._bodies) - 1)]


class Server(ThreadingHTTPServer):
    """Listens on 127.0.0.1."""

    daemon_threads = True

    def __init__(self, specs: Sequence[ReplayShard]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        names = [f"shardId-{number:012d}" for number in range(len(specs))]
        self.shards = {n: Shard(n, spec) for n, spec in zip(names, specs, strict=True)}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has what it wants goes away in the middle of an answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection, in a thread of its own."""

    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Answers a call of the API."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        operation = self.headers["X-Amz-Target"].rpartition(".")[2]
        if operation == "GetRecords":
            shard, _, page = asked["ShardIterator"].partition(":")
            self._send(self.server.shards[shard].read(page))
        else:
            answer = OPERATIONS[operation](self.server.shards, asked)
            self._send(json.dumps(answer).encode())

    def do_GET(self) -> None:
        """Tells when each shard was asked for records, in seconds of a monotonic clock."""
        calls = {name: shard.calls for name, shard in self.server.shards.items()}
        self._send(json.dumps(calls).encode())

    def _send(self, content: bytes | None) -> None:
        self.send_response(200 if content is not None else 400)
        content = THROTTLED if content is None else content
        self.send_header("Content-Type", JSON)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("x-amzn-RequestId", "replay")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing: standard error would be the bottleneck."""


def _summary(shards: Mapping[str, Shard], _: Mapping[str, Any]) -> Any:
    return {"StreamDescriptionSummary": _description(shards)}


def _describe(shards: Mapping[str, Shard], _: Mapping[str, Any]) -> Any:
    facts = _description(shards) | {"Shards": _listed(shards), "HasMoreShards": False}
    return {"StreamDescription": facts}


def _description(shards: Mapping[str, Shard]) -> dict[str, Any]:
    return {
        "StreamName": "replay",
        "StreamARN": ARN,
        "StreamStatus": "ACTIVE",
        "RetentionPeriodHours": 24,
        "StreamCreationTimestamp": CREATED,
        "EnhancedMonitoring": [],
        "OpenShardCount": len(shards),
    }


def _listed(shards: Mapping[str, Shard]) -> list[Any]:
    return [
        {
            "ShardId": name,
            "HashKeyRange": {"StartingHashKey": str(number), "EndingHashKey": str(number)},
            "SequenceNumberRange": {"StartingSequenceNumber": str(FIRST_SEQUENCE)},
        }
        for number, name in enumerate(shards)
    ]


OPERATIONS: dict[str, Callable[[Mapping[str, Shard], Mapping[str, Any]], Any]] = {
    "DescribeStreamSummary": _summary,
    "DescribeStream": _describe,
    "ListShards": lambda shards, _: {"Shards": _listed(shards)},
    "GetShardIterator": lambda shards, asked: {
        "ShardIterator": shards[asked["ShardId"]].begin(asked)
    },
}


def most_in_a_second(times: Sequence[float]) -> int:
    """The most calls in any window of one second."""
    times = sorted(times)
    return max((bisect_left(times, at + 1.0) - n for n, at in enumerate(times)), default=0)


@dataclass(frozen=True, slots=True)
class Replaying:
    """A replay server that runs.

    Attributes:
        url: where.
    """

    url: str

    async def calls(self) -> dict[str, list[float]]:
        """When each shard was asked for records."""
        return await asyncio.to_thread(self._calls)

    def _calls(self) -> dict[str, list[float]]:
        with urlopen(self.url, timeout=10) as answer:  # noqa: S310 - our own server, by http
            found: dict[str, list[float]] = json.load(answer)
        return found


@asynccontextmanager
async def replaying(shards: Sequence[ReplayShard]) -> AsyncIterator[Replaying]:
    """Runs a server, and ends it."""
    specs = json.dumps([asdict(shard) for shard in shards])
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.kinesis.replay", specs),
        stdin=pipe,
        stdout=pipe,
        cwd=ROOT,
    )
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    assert process.stdout is not None  # noqa: S101 - likewise
    try:
        port = int(await process.stdout.readline())
        yield Replaying(f"http://127.0.0.1:{port}")
    finally:
        process.stdin.close()
        await process.wait()


def main() -> None:
    """Serves until standard input ends, which it does with whoever has started this."""
    server = Server([ReplayShard(**spec) for spec in json.loads(sys.argv[1])])
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
