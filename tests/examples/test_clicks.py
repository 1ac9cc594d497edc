"""The example that reads Kinesis, run as a reader would run it."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from urllib.parse import urlencode

import pytest

from consumer_sdk import Consumer
from consumer_sdk.adapters import open_url
from consumer_sdk.dead_letters import decode_letter
from consumer_sdk.testing.servers import KinesisServer
from tests.examples.running import example, lines

pytestmark = pytest.mark.kinesis


async def test_clicks_go_on_in_the_children_of_a_shard_and_bad_ones_are_dead_lettered(
    kinesis_server: KinesisServer, tmp_path: Path
) -> None:
    """What one run has settled the next one does not see, whatever was split in between."""
    for stream in ("clicks", "clicks-dead"):
        await kinesis_server.create_stream(stream)
    server = {"endpoint_url": kinesis_server.endpoint_url, **kinesis_server.credentials}
    options = {"group": "counting", "lease_duration": "5", "dead_letter_stream": "clicks-dead"}
    query = urlencode(options | server)
    url = f"kinesis://{kinesis_server.region}/clicks?{query}"
    arguments = (url, "--store", str(tmp_path / "clicks.db"))
    await kinesis_server.put("clicks", [_click("/a"), ("k", b"{}"), _click("/b")])
    async with example("clicks.py", *arguments) as process:
        seen = await lines(process, 2)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert [line.split()[:2] for line in seen] == [
        ["/a", "shardId-000000000000"],
        ["/b", "shardId-000000000000"],
    ]
    await kinesis_server.split("clicks", "shardId-000000000000")
    await kinesis_server.put("clicks", [_click("/c")])
    async with example("clicks.py", *arguments) as process:
        ((page, shard, _position),) = [line.split() for line in await lines(process, 1)]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert page == "/c"
    assert shard in {"shardId-000000000001", "shardId-000000000002"}
    url = f"kinesis://{kinesis_server.region}/clicks-dead?{urlencode(server)}"
    async with Consumer(open_url(url)) as consumer:
        letter = decode_letter((await anext(aiter(consumer))).value or b"")
    assert (letter.partition.stream, letter.value) == ("clicks", b"{}")
    assert letter.error == "a click without a page"


def _click(page: str) -> tuple[str, bytes]:
    return "ann", json.dumps({"page": page}).encode()
