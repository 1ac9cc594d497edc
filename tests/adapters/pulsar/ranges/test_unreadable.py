"""Entries of a range that the network has changed on their way: the native client drops them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from consumer_sdk.errors import UnreadableRecordError
from tests.adapters.pulsar.flipping_way import MARK, flipping
from tests.adapters.pulsar.ranges.stage import Stage, producing, read, values

pytestmark = pytest.mark.pulsar

SENT = [b"0", b"1", MARK, b"3", b"4"]
LARGE = b"x" * (6 << 20)
"""More than an entry holds."""


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("admin", [True, False])
async def test_entry_that_the_network_changed_is_read_again(
    stage: Stage, times: int, *, admin: bool
) -> None:
    """The ledger is sound: each record comes once, in order."""
    await stage.produce(SENT)
    async with stage.open() as knowing:
        whole = await stage.whole(knowing)
    async with (
        flipping(stage.server.service_url, times) as url,
        stage.open(admin=admin, service_url=url) as ranges,
    ):
        assert values(await read(ranges, whole)) == SENT


@pytest.mark.parametrize("at", [1, 2])
async def test_last_entry_of_a_ledger_or_a_range_is_read_again(stage: Stage, at: int) -> None:
    """Nothing of its ledger comes behind it that would show a gap."""
    await stage.produce([b"0", b"1"] if at == 2 else [b"0", MARK])
    await stage.server.unload(stage.topic)
    await stage.produce([b"2", MARK] if at == 2 else [b"2", b"3"])
    async with stage.open() as knowing:
        whole = await stage.whole(knowing)
    async with flipping(stage.server.service_url) as url, stage.open(service_url=url) as ranges:
        found = values(await read(ranges, whole))
    assert found == ([b"0", b"1", b"2", MARK] if at == 2 else [b"0", MARK, b"2", b"3"])


@pytest.mark.parametrize("behind", [[b"5"], []], ids=["between", "last"])
@pytest.mark.parametrize("admin", [True, False])
async def test_batch_in_which_a_range_begins_is_read_again(
    stage: Stage, behind: list[bytes], *, admin: bool
) -> None:
    """What lies behind the batch does follow on where the range begins, and hides it."""
    places = await stage.produce(SENT, batch=True)
    if behind:
        await stage.produce(behind)
    async with stage.open() as knowing:
        whole = await stage.whole(knowing)
    async with (
        flipping(stage.server.service_url) as url,
        stage.open(admin=admin, service_url=url) as ranges,
    ):
        found = values(await read(ranges, stage.range(places[1], whole.stop)))
    assert found == SENT[1:] + behind


@pytest.mark.parametrize("value", [MARK + LARGE, LARGE + MARK], ids=["first", "last"])
@pytest.mark.parametrize("behind", [[b"2"], []], ids=["between", "end"])
async def test_chunk_that_the_network_changed_is_read_again(
    stage: Stage, value: bytes, behind: list[bytes]
) -> None:
    """The client drops the whole message; all of its chunks are there, so it has to come."""
    await stage.produce([b"0"])
    options: Any = {"chunking_enabled": True, "batching_enabled": False}
    with producing(stage.server, stage.topic, **options) as producer:
        await asyncio.to_thread(producer.send, value)
    if behind:
        await stage.produce(behind)
    async with stage.open() as knowing:
        whole = await stage.whole(knowing)
    async with flipping(stage.server.service_url) as url, stage.open(service_url=url) as ranges:
        found = values(await read(ranges, whole))
    assert [each == value or each for each in found] == [b"0", True, *behind]


async def test_entry_that_never_comes_is_an_error_and_no_gap(stage: Stage) -> None:
    """It names the topic and the entry, each time; what lies before it comes."""
    await stage.produce(SENT)
    async with stage.open() as knowing:
        whole = await stage.whole(knowing)
    async with (
        flipping(stage.server.service_url, 1 << 30) as url,
        stage.open(service_url=url) as ranges,
    ):
        for _ in range(2):
            found: list[bytes | None] = []
            with pytest.raises(UnreadableRecordError) as caught:
                async for part in ranges.read_range(whole):
                    found += part.values
            assert found == SENT[:2]
            said = str(caught.value)
            assert stage.topic in said
            assert f"ledger {whole.start[0]}, entry 2" in said
