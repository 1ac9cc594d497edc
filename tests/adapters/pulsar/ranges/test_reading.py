"""What a range holds, on a real Pulsar: every record once and in order, from start to stop."""

from __future__ import annotations

from random import Random

import pytest

from consumer_sdk.checkpoints.positions import LAST_BATCH_INDEX
from consumer_sdk.records import Position
from tests.adapters.pulsar.ranges.stage import Stage, columns_of, read, values

pytestmark = pytest.mark.pulsar

SENT = [b"%03d" % number for number in range(30)]


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("admin", [False, True])
async def test_whole_topic_is_read_once_and_in_order(
    stage: Stage, *, batch: bool, admin: bool
) -> None:
    """From earliest to latest, batched or not, with and without the REST API."""
    places = await stage.produce(SENT, batch=batch)
    async with stage.open(admin=admin) as ranges:
        wanted = await stage.whole(ranges)
        parts = await read(ranges, wanted)
    assert values(parts) == SENT
    assert [place for part in parts for place in part.positions] == sorted(places)


@pytest.mark.parametrize("batch", [False, True])
async def test_any_start_and_stop_is_half_open(stage: Stage, *, batch: bool) -> None:
    """The record at the start is read and the one at the stop is not, in a batch and out of it."""
    places = await stage.produce(SENT[:6], batch=batch)
    async with stage.open() as ranges:
        for low in range(6):
            for high in range(low, 6):
                wanted = stage.range(places[low], places[high])
                assert values(await read(ranges, wanted)) == SENT[low:high]


async def test_an_unbatched_record_has_the_last_index(stage: Stage) -> None:
    """Positions are the adapter's; the stop after the last one is the next entry's begin."""
    await stage.produce([b"a"])
    async with stage.open() as ranges:
        wanted = await stage.whole(ranges)
        [part] = await read(ranges, wanted)
    ledger = wanted.stop[0]
    assert part.positions == [(ledger, 0, LAST_BATCH_INDEX)]
    assert wanted.stop == (ledger, 1, 0)


@pytest.mark.parametrize("seed", range(3))
async def test_any_range_of_any_log_is_what_a_list_would_give(stage: Stage, seed: int) -> None:
    """Batches of all sizes, single records and ledgers, mixed; starts and stops anywhere, also between."""
    random = Random(seed)
    log: dict[Position, bytes] = {}
    for _ in range(8):
        sent = [random.randbytes(4) for _ in range(random.choice([1, 2, 5, 64, 65]))]
        places = await stage.produce(sent, batch=random.random() < 0.6)
        log |= dict(zip(places, sent, strict=True))
        if random.random() < 0.4:
            await stage.server.unload(stage.topic)
    ends = [*log, *((ledger, entry + 1, 0) for ledger, entry, _ in log), (0, 0, 0)]
    async with stage.open(admin=bool(seed % 2)) as ranges:
        for _ in range(25):
            start, stop = sorted(random.choices(ends, k=2))
            parts = await read(
                ranges, stage.range(start, stop), max_bytes=random.choice([50, 9999])
            )
            got = {place: value for part in parts for place, value in columns_of(part)}
            assert got == {place: log[place] for place in sorted(log) if start <= place < stop}
            assert list(got) == sorted(got)
