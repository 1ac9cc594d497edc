"""``python -m benchmarks kinesis --quick``, and what it is made of."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks.__main__ import main
from benchmarks.kinesis import drains, suite
from benchmarks.kinesis.aims import AIMS, RATIOS
from benchmarks.kinesis.records import MissingRecordsError, check, value
from benchmarks.kinesis.replay import MOST, ReplayShard, most_in_a_second, replaying
from benchmarks.kinesis.tables import tables
from consumer_sdk import Consumer
from consumer_sdk.adapters.kinesis import KinesisAdapter, Limits
from consumer_sdk.testing.servers import KinesisEndpoint

TINY = replace(suite.QUICK, replayed=1_000, stored=1_000, busy=5, seconds=1.5)


@pytest.mark.campaign
@pytest.mark.kinesis
def test_quick_run_reaches_every_figure(
    kinesalite_server: KinesisEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each promised figure is in the last line; no contestant failed; no shard was overrun."""
    monkeypatch.setenv("CONSUMER_SDK_KINESIS", kinesalite_server.endpoint_url)
    monkeypatch.setattr(drains, "WARMUP", 1_000)
    monkeypatch.setattr(suite, "QUICK", TINY)
    lines: list[str] = []
    monkeypatch.setattr("builtins.print", lambda *texts, **_: lines.append(" ".join(texts)))
    assert main(["kinesis", "--quick", "--json"]) == 0
    result = json.loads(lines[-1])
    assert all(isinstance(result[key], int | float) for key in [*AIMS, *RATIOS])
    assert result["failures"] == {}
    assert 0 < min(result["read_calls"].values()) <= result["read_calls_per_shard_per_s"] <= 5
    page = tables(result)
    assert all(f"`{name}`" in page for name in [*AIMS, *RATIOS, *result["rates"]])


async def test_replayed_records_arrive_once_in_order_and_calls_are_noted() -> None:
    """The records are those of their numbers, over several answers; the server counts its calls."""
    records = 2 * MOST + 7
    async with replaying([ReplayShard(records)]) as server:
        adapter = KinesisAdapter(
            "replay",
            region_name="us-east-1",
            endpoint_url=server.url,
            aws_access_key_id="any",
            aws_secret_access_key="any",  # noqa: S106 - the server takes what it gets
            limits=Limits(calls=1_000, bytes=float("inf")),
        )
        values: list[bytes] = []
        async with Consumer(adapter, start="earliest") as consumer:
            async for batch in consumer.batches():
                values += [message.value or b"" for message in batch]
                batch.ack()
                if len(values) >= records:
                    break
        calls = await server.calls()
    check(values, records)
    assert len(values) == records
    assert [len(times) for times in calls.values()] >= [3]


@pytest.mark.parametrize(
    "numbers", [[0, 1], [0, 2, 1], [0, 1, 1], [1, 2, 3]], ids=["few", "order", "twice", "first"]
)
def test_records_that_are_lost_or_disordered_are_noticed(numbers: list[int]) -> None:
    """A contestant that skips, repeats or swaps records fails."""
    with pytest.raises(MissingRecordsError):
        check([value(number) for number in numbers], 3)


def test_calls_are_counted_in_the_fullest_second() -> None:
    """The window may begin at any call; one a full second later is outside of it."""
    assert most_in_a_second([]) == 0
    assert most_in_a_second([5.0, 0.0, 0.9, 1.0, 1.8, 1.89]) == 4
