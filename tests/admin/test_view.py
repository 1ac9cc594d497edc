"""What viewers are shown, from snapshots alone; and the frames that show it, on virtual time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from consumer_sdk import Consumer, Message
from consumer_sdk.admin.application import Rendering
from consumer_sdk.admin.frames import LINGER, Frames, Viewer
from consumer_sdk.admin.sources import Consumers
from consumer_sdk.admin.view import KEPT, ROWS, Trends, frame, quantile
from consumer_sdk.records import Partition
from consumer_sdk.runtime import HistogramSnapshot, PartitionSnapshot, Pinned, Snapshot
from consumer_sdk.runtime.observing.timing import BOUNDS, Histogram
from consumer_sdk.testing import MemoryAdapter, MemoryBroker
from tests.runtime.bench import Bench, bench


def _snapshot(**changes: Any) -> Snapshot:
    """Of a new consumer, but for the changes; those of its stats as ``stats={…}``."""
    consumer = Consumer(MemoryAdapter(MemoryBroker(), "s", group="g"))
    found = consumer.snapshot()
    stats = replace(found.stats, **changes.pop("stats", {}))
    return replace(found, **{"time": 1000.0, "stats": stats, **changes})


def _times(*seconds: float) -> HistogramSnapshot:
    histogram = Histogram()
    for each in seconds:
        histogram.add(each)
    return histogram.snapshot()


# -- rates ----------------------------------------------------------------------------------


def test_rates_are_between_two_snapshots() -> None:
    """A second, whatever time has passed; what handlers took since the one before."""
    trends = Trends()
    trends.add(_snapshot(stats={"settled": 100}, handler_times={("s", None): _times(9.0)}))
    times = {("s", None): _times(9.0, 0.02), ("s", "KeyError"): _times(0.02)}
    stats = {"settled": 300, "failed": 4, "dead_lettered": 2, "in_flight": 7}
    held = PartitionSnapshot(Partition("s", "0"), lag=12)
    trends.add(_snapshot(time=1002.0, stats=stats, handler_times=times, partitions=(held,)))
    (point,) = trends.points
    assert (point.settled, point.failed, point.dead_lettered) == (100.0, 2.0, 1.0)
    assert (point.lag, point.in_flight) == (12, 7)
    assert point.p50 == pytest.approx(0.0175)  # the middle of 0.01 to 0.025


def test_pause_of_looking_is_no_line() -> None:
    """Nor is a clock that was set back; the points are bounded."""
    trends = Trends()
    for time in (1000.0, 1011.0, 1000.0):
        trends.add(_snapshot(time=time))
    assert not trends.points
    base = _snapshot()
    for second in range(2 * KEPT):
        trends.add(replace(base, time=1000.0 + second + 1))
    assert len(trends.points) == KEPT


def test_quantile_lies_between_its_bounds() -> None:
    """Nothing measured has none; above the last bound there is that bound."""
    assert quantile(0.5, ()) is None
    assert quantile(0.5, _times().counts) is None
    assert quantile(0.5, _times(100.0).counts) == BOUNDS[-1]
    assert quantile(1.0, _times(0.006, 0.006).counts) == 0.01
    found = quantile(0.95, _times(*[0.001] * 90, *[0.3] * 10).counts)
    assert found is not None
    assert 0.25 < found <= 0.5


def test_two_snapshots_at_once_make_no_rate() -> None:
    """A record between them would be hundreds a second; it counts with the next ones."""
    trends = Trends()
    for time, settled in ((1000.0, 0), (1000.001, 1), (1002.0, 4)):
        trends.add(_snapshot(time=time, stats={"settled": settled}))
    (point,) = trends.points
    assert (point.time, point.settled) == (1002.0, 2.0)


# -- frames ---------------------------------------------------------------------------------


def test_frame_is_bounded_and_shows_the_worst() -> None:
    """Of ten thousand partitions: those paused by hand, then those that are pinned longest."""
    pinned = Pinned("5", "running", 1.0, 0, b"\xffkey" * 50, 1.0)
    parts = [
        PartitionSnapshot(Partition("s", str(n)), pinned=pinned._replace(age=float(n)), lag=1)
        for n in range(10_000)
    ]
    parts[3] = parts[3]._replace(paused="operator", pause_text="why")
    shown = frame(_snapshot(partitions=tuple(parts)), Trends())
    assert (len(shown["partitions"]), shown["held"]) == (ROWS, 10_000)
    first, second = shown["partitions"][:2]
    assert (first["id"], first["state"], first["pause_text"]) == ("3", "paused: operator", "why")
    assert second["id"] == str(10_000 - ROWS + 1)
    assert second["pinned"]["key"].startswith("\\xffkey")
    assert second["pinned"]["key"].endswith("…")
    assert shown["totals"]["lag"] == 10_000
    json.dumps(shown, allow_nan=False)


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    """10 after 9; those that are held no more are left out, but for paused ones."""
    ids = ["10", "9", "shardId-000000000002"]
    parts = [PartitionSnapshot(Partition("s", each), is_draining=True) for each in ids]
    gone = PartitionSnapshot(Partition("s", "1"), is_held=False)
    kept = PartitionSnapshot(Partition("s", "8"), is_held=False, pause_text="why")
    shown = frame(_snapshot(partitions=(*parts, gone, kept)), Trends())
    states = [(row["id"], row["state"]) for row in shown["partitions"]]
    assert states == [
        (ids[2], "draining"),
        ("8", "elsewhere"),
        ("9", "draining"),
        ("10", "draining"),
    ]
    assert shown["held"] == 3


def test_what_is_held_is_shown_before_what_has_left() -> None:
    """However many that have left were paused."""
    held = [PartitionSnapshot(Partition("s", str(n))) for n in range(10)]
    left = [
        PartitionSnapshot(Partition("s", str(1000 + n)), is_held=False, pause_text="x")
        for n in range(900)
    ]
    shown = frame(_snapshot(partitions=(*left, *held)), Trends())["partitions"]
    assert len(shown) == ROWS
    assert sum(row["state"] == "reading" for row in shown) == 10


# -- the frames -------------------------------------------------------------------------------


async def _hang(_message: Message) -> None:
    await asyncio.Event().wait()


def test_feed_samples_once_a_second_for_all() -> None:
    """Whoever looks, and however often; a slow viewer skips frames, and none waits in a queue."""

    async def test(b: Bench) -> None:
        consumer = b.consumer(drain_timeout=0.1)
        running = asyncio.create_task(consumer.run(_hang))
        await asyncio.sleep(1)
        frames = Frames(Consumers([consumer]), most=3, actions=False)
        viewers = [frames.join() for _ in range(3)]
        assert frames.join() is None
        slow, quick, gone = (each for each in viewers if each is not None)
        frames.leave(gone)
        times = []
        for _ in range(10):
            found = json.loads(await quick.next() or b"")
            frames.look()
            times.append(found["consumers"][0]["time"])
        steps = [round(after - before, 3) for before, after in pairwise(times)]
        assert steps == [1.0] * 9
        late = json.loads(await slow.next() or b"")["consumers"][0]
        assert late["time"] == times[-1]
        assert len(late["points"]) == 9  # though it has missed eight frames
        frames.close()
        consumer.stop()
        await running

    bench(test)


def test_feed_sleeps_when_nobody_has_looked_for_a_while() -> None:
    """And wakes for the next one, whose past has a gap."""

    async def test(b: Bench) -> None:
        async with b.consumer() as consumer:
            frames = Frames(Consumers([consumer]), most=3, actions=False)
            viewer = frames.join()
            assert viewer is not None
            await asyncio.sleep(5)
            frames.leave(viewer)
            await asyncio.sleep(LINGER / 2)
            before = len(json.loads(frames.look())["consumers"][0]["points"])
            assert before > LINGER / 2
            await asyncio.sleep(LINGER * 3)
            assert frames._task is not None
            assert frames._task.done()
            again = frames.join()
            assert again is not None
            await again.next()
            await again.next()
            frames.close()
            assert await again.next() is None

    bench(test)


def test_feed_asks_a_consumer_once_for_a_hundred_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each frame one snapshot, as for one viewer."""
    taken, snapshot = [], Consumer.snapshot

    def counted(self: Consumer) -> Snapshot:
        taken.append(1)
        return snapshot(self)

    async def test(b: Bench) -> None:
        async with b.consumer() as consumer:
            monkeypatch.setattr(Consumer, "snapshot", counted)
            frames = Frames(Consumers([consumer]), most=100, actions=False)
            viewers = [viewer for _ in range(100) if (viewer := frames.join()) is not None]
            assert (len(viewers), frames.join()) == (100, None)
            for number in range(1, 6):
                shown = await asyncio.gather(*(viewer.next() for viewer in viewers))
                assert None not in shown
                assert len(taken) == number
            frames.close()

    bench(test)


def test_feed_ends_with_its_consumers() -> None:
    """Viewers see the end; who comes later sees it too."""

    async def test(b: Bench) -> None:
        consumer = b.consumer()
        frames = Frames(Consumers([consumer]), most=3, actions=False)
        async with consumer:
            viewer = frames.join()
            assert viewer is not None
        states = []
        while (shown := await viewer.next()) is not None:
            states.append(json.loads(shown)["consumers"][0]["state"])
        assert states == ["running", "closed"]
        late = frames.join()
        assert late is not None
        assert (await late.next(), await late.next()) == (frames.now(is_first=True), None)

    bench(test)


def test_feed_of_a_consumer_that_cannot_be_looked_at_sends_viewers_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rather than letting them wait; the next one tries again."""

    async def test(b: Bench) -> None:
        async with b.consumer() as consumer:
            frames = Frames(Consumers([consumer]), most=3, actions=False)
            viewer = frames.join()
            assert viewer is not None
            await viewer.next()
            with monkeypatch.context() as patch:
                patch.setattr(Consumer, "snapshot", lambda _self: 1 / 0)
                assert await viewer.next() is None
            again = frames.join()
            assert again is not None
            await again.next()
            frames.close()

    bench(test)


async def test_viewer_who_is_cancelled_loses_nothing() -> None:
    """The next call gets the frame."""
    viewer = Viewer(b"1")
    await viewer.next()
    waiting = asyncio.create_task(viewer.next())
    await asyncio.sleep(0)
    viewer.show(b"2")
    waiting.cancel()
    await asyncio.wait({waiting})
    viewer.show(b"3")
    assert await viewer.next() == b"3"


async def test_rendering_is_shared_and_tried_again() -> None:
    """One text for all that wait; an error is theirs alone, and so is a cancellation."""
    from concurrent.futures import ThreadPoolExecutor

    made: list[bytes] = []

    def make() -> bytes:
        made.append(b"x")
        if len(made) == 1:
            raise OSError("once")
        return b"text"

    with ThreadPoolExecutor(1) as threads:
        rendering = Rendering(make, threads)
        with pytest.raises(OSError, match="once"):
            await rendering.get()
        first, second = asyncio.create_task(rendering.get()), asyncio.create_task(rendering.get())
        await asyncio.sleep(0)
        first.cancel()
        assert await second == b"text"
        assert first.cancelled() or first.cancelling()
        assert len(made) == 2
