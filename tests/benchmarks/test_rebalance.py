"""``python -m benchmarks rebalance``: its arithmetic, and a short run."""

from __future__ import annotations

import pytest

from benchmarks import rebalance
from benchmarks.process import ContestantError
from consumer_sdk.testing.servers import KafkaEndpoint


def _steady(*spans: tuple[float, float]) -> list[tuple[float, float]]:
    """A record each tenth of a second in each of these spans; one was sent in each of all tenths."""
    times = [at / 10 for first, last in spans for at in range(round(first * 10), round(last * 10))]
    return [(at, number / 10) for number, at in enumerate(times)]


def test_rebalance_pauses_what_stays_and_the_figure_is_above_the_gap_without_one() -> None:
    """A second of silence in the rebalance counts."""
    stays, moves = _steady((0, 3), (4, 10)), _steady((0, 3), (5, 10))
    first = dict.fromkeys(range(rebalance.PARTITIONS - 1), stays) | {11: moves[:30]}
    seen = rebalance._seen([first, {11: moves[30:]}], 2.0, 6.0)
    assert seen.stay.keys() == set(range(11))
    assert seen.pause == pytest.approx(1.0)
    assert seen.move == {11: pytest.approx(2.0)}


def test_silence_that_the_rebalance_does_not_end_counts_too() -> None:
    """A partition that comes back only after the end of the rebalance was paused in it."""
    stays = dict.fromkeys(range(rebalance.PARTITIONS), _steady((0, 3), (7, 10)))
    assert rebalance._seen([stays], 2.0, 6.0).stay[0] == pytest.approx(4.0)


def test_silence_of_the_producer_counts_for_nothing() -> None:
    """Where nothing was sent, nothing can be handled."""
    times = [(at, at) for at, _ in _steady((0, 3), (5, 10))]
    stays = dict.fromkeys(range(rebalance.PARTITIONS), times)
    assert rebalance._seen([stays], 2.0, 6.0).pause == pytest.approx(0.0)


def test_rebalance_in_which_all_moves_is_a_failure() -> None:
    """There is nothing to measure: no figure says 0."""
    all_of_it = dict.fromkeys(range(rebalance.PARTITIONS), _steady((0, 3)))
    others = dict.fromkeys(range(rebalance.PARTITIONS), _steady((4, 10)))
    with pytest.raises(ContestantError, match="each partition has moved"):
        rebalance._seen([all_of_it, others], 2.0, 6.0)


@pytest.mark.campaign
@pytest.mark.kafka
async def test_short_run_reaches_every_figure(
    kafka_server: KafkaEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each promised figure is there, and the tables name them all."""
    monkeypatch.setenv("CONSUMER_SDK_KAFKA", kafka_server.bootstrap_servers)
    result = await rebalance.measure(quick=True, say=lambda _: None)
    assert not result["failures"]
    assert all(result[key] is not None for key in rebalance.AIMS)
    page = rebalance.tables(result)
    assert all(key in page for key in rebalance.AIMS)
