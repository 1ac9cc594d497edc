"""Looks at a running consumer: where its records are, and its whole state as one value.

The cost of a look grows with the changes. If a partition has no record in flight, and had none at
the last look, the last value is returned again. A limited number of the others is looked at
closely, which walks over their holes; the rest follow at later looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from consumer_sdk.records import Explanation, Message, Partition
from consumer_sdk.runtime.dispatch.workers import Workers
from consumer_sdk.runtime.engine import Engine
from consumer_sdk.runtime.observing.health import Health, assess
from consumer_sdk.runtime.observing.snapshots import (
    PartitionSnapshot,
    PauseReason,
    Pinned,
    Snapshot,
)
from consumer_sdk.runtime.partitions.held_partition import HeldPartition

__all__ = ["STALLED", "explain", "health", "looking", "snapshot"]

STALLED = 300.0
"""Seconds for which a record may pin its partition's position before that is worth a word."""
CLOSELY = 500
"""Partitions, and four times as many unsettled records, that one snapshot looks at closely."""
TOGETHER = 500
"""Partitions that are looked at before the event loop has its turn."""

NOTHING = PartitionSnapshot(Partition("", ""))


class _Place(NamedTuple):
    """Where an unsettled record is; its key where that is known."""

    state: str
    key: bytes | None = None
    running: float | None = None


Running = Mapping[tuple[HeldPartition, int], tuple[float, Message]]


def explain(engine: Engine, partition: Partition | None) -> dict[Partition, Explanation]:
    """What pins the position of one partition, or of each, and what that record is doing."""
    in_handlers = running(engine.workers)
    return {
        a.partition: _explained(engine, holding, in_handlers)
        for a, holding in engine.holdings.items()
        if partition in (None, a.partition)
    }


def _explained(engine: Engine, holding: HeldPartition, in_handlers: Running) -> Explanation:
    found = holding.explain()
    if found.index is None:
        return found
    place = _place(engine, holding, found, in_handlers)
    return replace(found, state=place.state, key=place.key, running=place.running)


def running(workers: Workers | None) -> Running:
    """The records in handlers, by holding and index, each with the time of its delivery."""
    if workers is None:
        return {}
    return {
        (lane.holding, message.index): (since, message)
        for since, lane in workers.running()
        for message in islice(lane.queue, lane.running)
    }


def _place(
    engine: Engine, holding: HeldPartition, found: Explanation, in_handlers: Running
) -> _Place:
    assert found.index is not None  # noqa: S101 - something is unsettled
    index = found.index
    if (delivery := in_handlers.get((holding, index))) is not None:
        since, message = delivery
        return _Place("running", _key(message), max(engine.time() - since, 0.0))
    if found.state == "dead-lettering":
        return _Place("dead-lettering", _key(engine.letter_of(holding, index)))
    if found.state == "retrying":
        known = None if holding.messages is None else holding.messages.get(index)
        return _Place(
            "retrying", _key(known) or engine.context.queue.key_of(holding, found.pinned_by)
        )
    if holding.trees is not None and (owner := holding.trees.find(index)) is not None:
        return _Place("awaiting branches", _key(owner))
    state, waiting = engine.context.queue.find(holding, index)
    return _Place(state, _key(waiting))


def _key(message: Message | None) -> bytes | None:
    return None if message is None else message.ordering_key or message.key


# -- snapshots ------------------------------------------------------------------------------


def snapshot(engine: Engine, *, is_looked: bool = False) -> Snapshot:
    """Makes a snapshot of the whole consumer.

    Args:
        is_looked: somebody has just looked at all partitions.
    """
    adapter, timing = engine.adapter, engine.timing
    found = health(engine, is_looked=is_looked)
    return Snapshot(
        time=engine.wall(),
        broker=adapter.broker,
        group=adapter.group,
        state=engine.state,
        health=found,
        stats=engine.stats(),
        partitions=(*_seen(engine), *_left(engine)),
        handlers=0 if engine.workers is None else engine.workers.busy,
        handlers_limit=0 if engine.workers is None else engine.workers.limit,
        in_flight_limit=engine.in_flight_limit,
        is_full=engine.is_full,
        loop_lag=engine.loop_lag,
        handler_times=timing.handlers(),
        request_times=timing.requests(),
        dead_letters=dict(timing.dead_letters),
        flushes=dict(timing.flushes),
        events=engine.events.all(),
        event_counts=dict(engine.events.counts),
    )


def health(
    engine: Engine,
    stalled_after: float = STALLED,
    *,
    needs_progress: bool = False,
    is_looked: bool = False,
) -> Health:
    """Whether it works; ``is_looked``: by what somebody has just seen of all partitions."""
    if engine.is_at_work:
        engine.lag_watch.wanted_at = engine.time()
        if not is_looked:
            look(engine)
    inputs = engine.health_inputs(stalled(engine, stalled_after))
    return assess(inputs, needs_progress=needs_progress)


def look(engine: Engine) -> None:
    """Brings what was seen of each partition up to date, but for some of very many."""
    for _ in looking(engine):
        pass


def looking(engine: Engine) -> Iterator[None]:
    """The same in parts, so that the event loop may have its turn in between."""
    held = list(engine.holdings.values())
    stale = [h for h in held if not _is_as_seen(h)]
    if not stale:
        return
    in_handlers, budget = running(engine.workers), CLOSELY
    at = engine.looked_up_to % len(stale)
    for number, holding in enumerate(stale[at:] + stale[:at], 1):
        if number % TOGETHER == 0:
            yield
            in_handlers = running(engine.workers)
        if holding.is_closed:  # meanwhile
            continue
        if budget > 0:
            found = holding.tracker.explain(engine.monotonic())
            budget -= 1 + found.unsettled // 4
            engine.looked_up_to += 1
            holding.is_news = False
            holding.seen = _partition(engine, holding, found, in_handlers)
        else:  # the counts are right in any case
            holding.seen = _partition(engine, holding, None, in_handlers)


def _is_as_seen(holding: HeldPartition) -> bool:
    """Nothing is in flight, nothing was, and nothing has come or changed."""
    seen = holding.seen
    return not (
        seen is None or holding.is_news or seen.in_flight or holding in holding.context.changed
    )


def stalled(engine: Engine, seconds: float) -> list[tuple[Partition, float]]:
    """Partitions that one record has pinned for longer, as far as they were looked at."""
    return [
        (seen.partition, seen.pinned.age)
        for holding in list(engine.holdings.values())
        if (seen := holding.seen) is not None
        and seen.pinned is not None
        and seen.pinned.age >= seconds
    ]


def _seen(engine: Engine) -> list[PartitionSnapshot]:
    held = list(engine.holdings.values())
    return [h.seen or _partition(engine, h, None, {}) for h in held]  # some have just been granted


def _left(engine: Engine) -> list[PartitionSnapshot]:
    """Partitions that are not held any more: their counts go on when they come back."""
    totals = engine.partition_totals.all
    held = {assignment.partition for assignment in engine.holdings}
    gone = totals.keys() - held if len(totals) > len(held) else ()
    return [
        PartitionSnapshot(
            partition=partition,
            is_held=False,
            pause_text=engine.context.pauses.own_reason(partition),
            fetched=own.fetched,
            suppressed=own.suppressed,
            settled=own.settled,
            failed=own.failed,
            redelivered=own.redelivered,
            dead_lettered=own.dead_lettered,
            assigned=own.assigned,
            revoked=own.revoked,
            lost=own.taken,
        )
        for partition, own in ((each, totals[each]) for each in gone)
    ]


def _partition(
    engine: Engine, holding: HeldPartition, found: Explanation | None, in_handlers: Running
) -> PartitionSnapshot:
    """What is seen of one; without an explanation, with what pinned it before."""
    tracker, own, before = holding.tracker, holding.own, holding.seen or NOTHING
    unsettled = tracker.unsettled if found is None else found.unsettled
    lag, lag_seconds = _lag(engine, holding)
    position, holes = before.position, before.holes
    pinned = before.pinned if unsettled else None
    if found is not None:
        encode, mark, holes = engine.adapter.encode_position, found.watermark, found.holes
        position = None if mark is None else encode(mark)
        pinned = _pinned(engine, holding, found, in_handlers)
    return PartitionSnapshot(
        partition=holding.assignment.partition,
        is_held=True,
        epoch=holding.assignment.epoch,
        position=position,
        pinned=pinned,
        in_flight=unsettled,
        in_flight_bytes=tracker.unsettled_bytes if found is None else found.unsettled_bytes,
        retrying=tracker.retrying if found is None else found.retrying,
        blocked=holding.blocked,
        holes=holes,
        lanes=len(holding.lanes),
        trees=0 if holding.trees is None else holding.trees.trees.live,
        paused=_paused(holding),
        pause_text=holding.paused_by_hand,
        is_draining=holding.is_draining,
        lag=lag,
        lag_seconds=lag_seconds,
        fetched=own.fetched,
        suppressed=own.suppressed,
        settled=own.settled + holding.fetched - unsettled,
        failed=own.failed,
        redelivered=own.redelivered,
        dead_lettered=own.dead_lettered,
        assigned=own.assigned,
        revoked=own.revoked,
        lost=own.taken,
    )


def _pinned(
    engine: Engine, holding: HeldPartition, found: Explanation, in_handlers: Running
) -> Pinned | None:
    if found.index is None:
        return None
    is_simple = found.state == "open" and not holding.blocked and holding.trees is None
    if is_simple and engine.workers and (holding, found.index) not in in_handlers:
        state, key, since = _Place("queued")  # which key is not worth a walk over all that are
    else:
        state, key, since = _place(engine, holding, found, in_handlers)
    position = engine.adapter.encode_position(found.pinned_by)
    return Pinned(position, state, found.age, found.attempts, key, since)


def _paused(holding: HeldPartition) -> PauseReason | None:
    if holding.is_overtaken:
        return "retention"
    if holding.paused_by_hand is not None:
        return "operator"
    if holding.is_over_lag:
        return "lag"
    if not holding.is_paused:
        return None
    return "holes" if holding.is_over_budget else "full"


def _lag(engine: Engine, holding: HeldPartition) -> tuple[int | None, float | None]:
    """Records and seconds behind the end."""
    lag, latest = holding.lag, holding.latest
    if lag is None:
        return None, None
    if engine.adapter.capabilities.lag_unit == "milliseconds":
        return None, lag / 1000
    if lag and latest is not None:
        return lag, max(engine.wall() - latest / 1000, 0.0)
    return lag, None if lag else 0.0
