"""One member of a group, which notes when each record is with its handler.

It waits for a line on its standard input before it joins. It prints the number of each partition when it
handles the first record of it; when its input ends, it leaves and prints, by partition, when each record was with
its handler and when it was sent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from benchmarks.latency_feed import sent_at
from benchmarks.process import ROOT
from consumer_sdk import Consumer, Message, Ordering
from consumer_sdk.adapters import KafkaAdapter

__all__ = ["MemberJob"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberJob:
    """What a member is told.

    Attributes:
        options: of its adapter.
    """

    servers: str
    topic: str
    group: str
    options: dict[str, Any]

    async def start(self) -> asyncio.subprocess.Process:
        """In a process of its own, which has imported all it needs when it is told to join."""
        found = json.dumps([self.servers, self.topic, self.group, self.options])
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.ours.kafka_member", found),
            stdin=pipe,
            stdout=pipe,
            cwd=ROOT,
            limit=1 << 26,  # the times are one line
        )

    async def live(self) -> None:
        """Joins, handles and leaves."""
        times: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)

        async def handle(message: Message) -> None:
            partition = int(message.partition.id)
            if partition not in times:
                print(partition, flush=True)
            times[partition].append((time.monotonic(), sent_at(message.value)))

        adapter = KafkaAdapter(
            self.topic, bootstrap_servers=self.servers, group=self.group, **self.options
        )
        consumer = Consumer(adapter, start="latest")
        await _line()
        running = asyncio.create_task(
            consumer.run(handle, concurrency=100, ordering=Ordering.KEY, handle_signals=False)
        )
        ending = asyncio.create_task(_line())
        await asyncio.wait({running, ending}, return_when=asyncio.FIRST_COMPLETED)
        consumer.stop()
        await running
        print(json.dumps(times), flush=True)


async def _line() -> None:
    """Waits for a line of the standard input, or its end."""
    await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    servers, topic, group, options = json.loads(sys.argv[1])
    asyncio.run(MemberJob(servers=servers, topic=topic, group=group, options=options).live())
    os._exit(0)
