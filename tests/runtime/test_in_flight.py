"""How many records may be in flight: where the broker stops sending at a limit, and where ours is small."""

from __future__ import annotations

from dataclasses import replace

import pytest

from consumer_sdk import ConfigurationError, Consumer
from consumer_sdk.abc import Adapter
from consumer_sdk.runtime.compatibility import check, in_flight_of
from consumer_sdk.runtime.options import Options
from consumer_sdk.testing import MemoryAdapter, MemoryBroker
from tests.runtime.bench import Bench, bench
from tests.runtime.consumer_options import options_of


def adapter_with(max_unacked: int | None) -> Adapter:
    """An adapter of a broker with that limit."""
    made = MemoryAdapter(MemoryBroker(), "s", group="g", subscription="shared")
    made.capabilities = replace(made.capabilities, max_unacked=max_unacked)
    return made


@pytest.mark.parametrize(
    "max_unacked, handled, in_flight",
    [
        (None, 1, 10_000),
        (None, 5_000, 50_000),
        (46_000, 1, 10_000),
        (46_000, 2_000, 20_000),
        (46_000, 5_000, 36_000),
        (46_000, 36_000, 36_000),
    ],
)
def test_default_grows_with_the_handlers_up_to_what_the_broker_sends(
    max_unacked: int | None, handled: int, in_flight: int
) -> None:
    """Beyond, the broker would send no more, and the records that wait would hold it up."""
    assert in_flight_of(adapter_with(max_unacked), options_of(), handled) == in_flight


def test_more_handlers_than_the_broker_sends_records_are_an_error() -> None:
    """Some would never have anything to do."""
    with pytest.raises(ConfigurationError, match="36001 in flight with max_retrying=10000"):
        in_flight_of(adapter_with(46_000), options_of(), 36_001)


def test_limit_that_is_given_is_kept() -> None:
    """Handlers beyond it wait."""
    assert in_flight_of(adapter_with(46_000), options_of(max_in_flight=5), 40_000) == 5


@pytest.mark.parametrize(
    "options", [options_of(max_in_flight=36_001), options_of(max_retrying=36_001)]
)
def test_options_that_wait_for_more_than_the_broker_sends_are_an_error(options: Options) -> None:
    """The default is counted too."""
    with pytest.raises(ConfigurationError, match="about 46000 records are not acked"):
        check(adapter_with(46_000), None, options)


def test_fetch_asks_for_no_more_records_than_there_is_room_for() -> None:
    """Else a queue's broker would give a backlog to the first consumer, whatever it can hold."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(50)))
        queue = MemoryAdapter(b.broker, "s", group="g", subscription="shared")
        async with Consumer(queue, max_in_flight=4, clock=b.simulation.clock) as consumer:
            for _ in range(10):
                message = await anext(consumer)
                assert consumer.stats().in_flight <= 4
                message.ack()

    bench(test)
