"""The fan-out consumers of a stream: listed, and removed when nobody reads by them any more."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from consumer_sdk.adapters.kinesis import KinesisAdapter
from consumer_sdk.cli import main

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KinesisServer

pytestmark = pytest.mark.kinesis


@pytest.fixture
async def url(kinesis_server: KinesisServer) -> str:
    """That of a stream of this test's own."""
    stream = f"orders-{uuid.uuid4().hex[:8]}"
    await kinesis_server.create_stream(stream, 1)
    options = {"endpoint_url": kinesis_server.endpoint_url, **kinesis_server.credentials}
    return f"kinesis://{kinesis_server.region}/{stream}?{urlencode(options)}"


async def registered(url: str, *names: str) -> None:
    """Registers consumers, as one that is opened with ``fan_out=`` does."""
    service = KinesisAdapter.from_url(url).client_service()
    await service.open()
    for name in names:
        await service.consumer(name)
    await service.aclose()


async def test_consumers_stay_until_they_are_removed(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line for each; the one that is removed is listed no more, and has to be there."""
    await registered(url, "old", "new")
    assert await run("list", url) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [(name, status) for name, status, _ in lines] == [("new", "ACTIVE"), ("old", "ACTIVE")]
    assert all(since.startswith("registered 20") for _, _, since in lines)
    assert await run("remove", url, "old") == 0
    assert capsys.readouterr() == ("", "removed old\n")
    async with asyncio.timeout(60):
        while "old\t" in await listed(url, capsys):
            await asyncio.sleep(0.1)
    assert await run("remove", url, "older") == 2
    assert "no fan-out consumer 'older', only ['new']" in capsys.readouterr().err
    assert await run("remove", url, "new", "--json") == 0
    assert capsys.readouterr() == ('{"removed": "new"}\n', "")


async def test_stream_that_is_not_there_is_named(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And so is a URL that is none of Kinesis."""
    assert await run("list", url.replace("orders-", "others-")) == 2
    assert "there is no stream 'others-" in capsys.readouterr().err
    assert await run("list", "kafka://here/orders") == 2
    assert "kinesis://region/stream" in capsys.readouterr().err


async def listed(url: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What ``list`` writes."""
    assert await run("list", url) == 0
    return capsys.readouterr().out


async def run(*arguments: str) -> int:
    """The command's exit status; it has an event loop of its own."""
    return await asyncio.to_thread(main, ["fan-out", *arguments])
