"""An application of the KCL moves: its lease table is imported, and a consumer goes on from it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk.testing.servers import KinesisServer
from tests.adapters.kinesis.stage import aggregated
from tests.cli.groups.test_checkpoints import run
from tests.integration.field import until
from tests.integration.kinesis_field import GROUP, KinesisField, Seen
from tests.stores.exchange.test_kcl import lease, scan

pytestmark = pytest.mark.kinesis


@pytest.fixture
def field(kinesis_server: KinesisServer, tmp_path: Path) -> KinesisField:
    """A stream of the test's own."""
    return KinesisField(kinesis_server, tmp_path)


async def put(field: KinesisField, shard: str, *values: int | range) -> list[str]:
    """Puts numbers, a range as one aggregate; returns the sequence number of each record."""
    rows = [
        aggregated(*((b"k", b"%d" % n) for n in value))
        if isinstance(value, range)
        else b"%d" % value
        for value in values
    ]
    return [
        s for _, s in await field.server.put(field.stream, [("k", r) for r in rows], shard=shard)
    ]


async def imported(field: KinesisField, folder: Path, *leases: dict[str, Any]) -> str:
    """Imports leases as an operator does; returns what was said on stderr."""
    table, shards = folder / "leases.json", folder / "shards.json"
    table.write_text(scan(*leases))
    shards.write_text(json.dumps({"Shards": await field.server.shards(field.stream)}))
    store = f"sqlite://{field.store_file}"
    command = ["import-kcl", table, field.stream, store, GROUP, "--shards", shards]
    done = await asyncio.to_thread(run, *command)
    assert done.returncode == 0, done.stderr
    return done.stderr


async def test_consumer_goes_on_exactly_where_the_kcl_has_stopped(
    field: KinesisField, tmp_path: Path
) -> None:
    """Shard by shard, inside of an aggregate, and below parents with and without leases.

    What the library has not begun is read from its first record, whatever ``start=`` is.
    """
    first, second = await field.create(2)
    at = await put(field, second, 0, range(1, 5), 5, 6)
    await put(field, first, 10, 11)
    low, high = await field.server.split(field.stream, first)
    await put(field, low, 20)
    await put(field, high, 30)
    low_low, low_high = await field.server.split(field.stream, low)
    unleased = await field.server.split(field.stream, high)
    (settled, _) = await put(field, low_low, 40, 41)
    await put(field, low_high, 50)
    for number, shard in enumerate(unleased):
        await put(field, shard, 60 + number)
    parent: dict[str, Any] = {"parentShardId": {"SS": [low]}}

    said = await imported(
        field,
        tmp_path,
        lease(second, at[1], 1),  # the second of the aggregate's four
        lease(low_low, settled, **parent),  # leases of both ancestors were deleted
        lease(low_high, "TRIM_HORIZON", **parent),
        lease(high, "SHARD_END", parentShardId={"SS": [first]}),  # no lease of a child yet
    )
    assert "taken as ended" in said
    assert "no lease yet" in said
    seen, adapter = Seen(), field.adapter()
    left = {3, 4, 5, 6, 41, 50, 60, 61}
    async with field.running(field.consumer(adapter, start="latest"), seen.handle) as task:
        await until(lambda: len(seen.numbers) >= len(left), "what was left", task)
        await field.until_leases(lambda leases: all(leases[s].ended for s in (first, low, high)))
    assert sorted(seen.numbers) == sorted(left)
    assert set(adapter.asked).isdisjoint({first, low, high})
