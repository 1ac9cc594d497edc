"""Histograms and counters: what is in which bucket, under which name."""

from __future__ import annotations

import asyncio

import pytest

from consumer_sdk.runtime.observing.timing import ErrorNames, Histogram, HistogramSnapshot, Timing
from consumer_sdk.testing import Simulation, simulate


def test_bounds_are_inclusive() -> None:
    """A duration is in the first bucket that it does not exceed; above the last there is one more."""
    histogram = Histogram()
    for seconds in (0.0, 0.005, 0.0051, 10.0, 10.1, 99.0):
        histogram.add(seconds)
    found = histogram.snapshot()
    assert found.counts == (2, 1, *[0] * 11, 1, 2)
    assert found.sum == pytest.approx(119.1101)
    assert found.total == 6
    names = [
        "0.005",
        "0.01",
        "0.025",
        "0.05",
        "0.075",
        "0.1",
        "0.25",
        "0.5",
        "0.75",
        "1.0",
        "2.5",
        "5.0",
        "7.5",
        "10.0",
        "+Inf",
    ]
    counts = [2, *[3] * 12, 4, 6]
    assert list(found.cumulative()) == list(zip(names, counts, strict=True))


def test_quick_ones_are_added_together() -> None:
    """They are in the first bucket; their time is one sum."""
    histogram = Histogram()
    histogram.add_quick(3, 0.5)
    histogram.add_quick(2, 0.25)
    assert histogram.snapshot() == HistogramSnapshot((5, *[0] * 14), 0.75)


def test_fifty_names_are_kept() -> None:
    """Known ones stay themselves; the others are one."""
    names = ErrorNames()
    assert [names.admit(str(n)) for n in range(50)] == [str(n) for n in range(50)]
    assert [names.admit(name) for name in ("50", "49", "51", "0")] == ["other", "49", "other", "0"]


def test_handlers_are_kept_by_stream_and_error() -> None:
    """The same histogram comes back; an error has one of its own."""
    timing = Timing()
    timing.handler("s").add(0.1)
    timing.handler("s").add(0.1)
    timing.handler("s", "E").add(0.2)
    assert {key: each.total for key, each in timing.handlers().items()} == {
        ("s", None): 2,
        ("s", "E"): 1,
    }
    assert timing.requests() == {}


def test_request_is_measured_to_its_end_or_its_error() -> None:
    """The loop's time; an error is passed on and named; a cancellation is no request."""

    async def fail(timing: Timing) -> None:
        with timing.measured("save"):
            await asyncio.sleep(3)
            raise OSError

    async def main(_simulation: Simulation) -> None:
        timing = Timing()
        await asyncio.sleep(5)
        with timing.measured("save"):
            await asyncio.sleep(2)
        with pytest.raises(OSError):  # noqa: PT011 - it says nothing
            await fail(timing)
        cut = asyncio.create_task(fail(timing))
        await asyncio.sleep(1)
        cut.cancel()
        await asyncio.wait({cut})
        assert {key: (each.total, each.sum) for key, each in timing.requests().items()} == {
            ("save", None): (1, 2.0),
            ("save", "OSError"): (1, 3.0),
        }
        assert timing.handlers() == {}

    simulate(main, seed=0)


def test_flushes_and_dead_letters_are_counted() -> None:
    """By what became of them; the names of errors are the same fifty for all."""
    timing = Timing()
    timing.flushed(["durable", "retry"])
    timing.flushed(["durable"])
    for n in range(50):
        timing.handler("s", str(n))
    timing.dead_lettered("0")
    timing.dead_lettered("other one")
    timing.dead_lettered("0")
    assert timing.flushes == {"durable": 2, "retry": 1}
    assert timing.dead_letters == {"0": 2, "other": 1}
    assert timing.request("save", "51") is timing.request("save", "other")
