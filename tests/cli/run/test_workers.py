"""Workers as one: who is asked, what they are told, and what is shown of one that is silent or gone."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk import Consumer, ConsumerSdkError, Message, Partition
from consumer_sdk.admin.options import AdminOptions
from consumer_sdk.admin.server import serve_source
from consumer_sdk.admin.sources import LateError
from consumer_sdk.cli.run import links
from consumer_sdk.cli.run import workers as module
from consumer_sdk.cli.run.links import LINK, Link, LinkError, answering, inherited
from consumer_sdk.cli.run.workers import Workers, after
from consumer_sdk.runtime.partitions.partition_state import Pauses
from consumer_sdk.testing import MemoryAdapter, MemoryBroker
from tests.admin.asking import POST, ask, watching
from tests.integration.field import until

ZERO = Partition("s", "0")


def made(records: int = 3) -> Consumer:
    """Of a broker of its own."""
    broker = MemoryBroker()
    broker.create_stream("s", 1)
    for _ in range(records):
        broker.append("s", b"v", partition=0)
    return Consumer(MemoryAdapter(broker, "s", group="g"), drain_timeout=0.01)


async def handle(_message: Message) -> None:
    """Settles."""


def own(end: socket.socket) -> socket.socket:
    """A process of its own has it alone."""
    return socket.socket(fileno=end.detach())


@asynccontextmanager
async def living(workers: Workers, number: int, consumer: Consumer) -> AsyncIterator[None]:
    """A worker in this process, as one of its own has it; its end comes as suddenly."""
    async with workers.linked(number) as theirs, answering(own(theirs), [consumer]):
        running = asyncio.create_task(consumer.run(handle, handle_signals=False))
        yield
        consumer.stop()
        await running


async def settled(workers: Workers, count: int) -> None:
    """Waits until all have settled so many, in all their lives."""
    while workers.snapshots()[0].stats.settled < count:
        await workers.refresh()
        await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look asks anew; who does not answer is not waited for."""
    monkeypatch.setattr(module, "FRESH", 0.0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for one that never answers here."""
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    monkeypatch.setattr(module, "ACTING", 0.05)


# -- what is shown --------------------------------------------------------------------------------


async def test_counts_of_a_worker_that_ends_stay_and_the_next_one_adds_its_own() -> None:
    """Before the first answer there is a consumer of which nothing is known."""
    workers = Workers(2)
    (unknown,) = workers.snapshots()
    assert (unknown.state, unknown.broker, unknown.health.ready) == ("opening", "", False)
    async with living(workers, 0, made(3)):
        async with living(workers, 1, made(4)):
            await settled(workers, 7)
            (both,) = workers.snapshots()
            assert (both.health.ready, both.ready_workers, both.state) == (True, 2, "running")
            assert {event.worker for event in both.events} == {0, 1}
        (one,) = workers.snapshots()
        assert (one.stats.settled, one.ready_workers) == (7, 1)
        assert one.health.reasons == ("worker 1 does not run",)
        async with living(workers, 1, made(5)):
            assert workers.snapshots()[0].health.reasons == ("worker 1 is being started",)
            await settled(workers, 12)
        workers.left(1)
        assert workers.healths()[0].ready
    assert workers.snapshots()[0].stats.settled == 12


async def test_worker_that_ends_says_what_it_had_counted() -> None:
    """Though nobody had looked."""
    workers, consumer = Workers(1), made(3)
    async with living(workers, 0, consumer):
        await until(lambda: consumer.stats().settled == 3, "settled")
    (found,) = workers.snapshots()
    assert (found.stats.settled, found.group) == (3, "g")
    assert [event.kind for event in found.events] == ["assigned", "revoked"]


async def test_count_that_a_worker_forgets_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the thousands of partitions that have left it."""
    workers, is_forgotten = Workers(1), False
    look = links._Answerer._look

    async def forgets(self: Any) -> bytes:
        (found,) = json.loads(await look(self))
        return json.dumps([{**found, "partitions": []} if is_forgotten else found]).encode()

    monkeypatch.setattr(links._Answerer, "_look", forgets)
    async with living(workers, 0, made(3)):
        await settled(workers, 3)
        is_forgotten = True
        await workers.refresh()
        (row,) = workers.snapshots()[0].partitions
        assert (row.settled, row.is_held) == (3, False)
    (row,) = workers.snapshots()[0].partitions
    assert row.settled == 3


async def test_worker_whose_parent_does_not_listen_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last words are more than its socket takes."""
    monkeypatch.setattr("consumer_sdk.cli.run.links.ENDING", 0.05)
    ours, theirs = socket.socketpair()
    consumer = made()
    consumer.pause(ZERO, reason="x" * 1_000_000)
    async with asyncio.timeout(60), answering(theirs, [consumer]):
        pass
    ours.close()


async def test_worker_that_does_not_answer_is_waited_for_once(impatient: None) -> None:
    """The others are shown; its question stands, and is not asked again."""
    workers = Workers(2)
    async with living(workers, 0, made(3)), workers.linked(1) as stopped:
        await settled(workers, 3)
        for _ in range(5):
            await workers.refresh()
        (found,) = workers.snapshots()
        assert (found.stats.settled, found.ready_workers) == (3, 1)
        assert found.health.reasons == ("worker 1 is being started",)
        async with answering(own(stopped), [made(4)]):  # it goes on
            while not workers.snapshots()[0].health.reasons[0].endswith("the consumer is new"):
                await workers.refresh()
        assert workers.snapshots()[0].ready_workers == 1


async def test_worker_that_falls_silent_is_named_with_what_it_said_last(
    impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ten seconds it is not live; it may answer yet."""
    monkeypatch.setattr("consumer_sdk.admin.merging.SLOW", 0.0)
    workers = Workers(1)
    async with living(workers, 0, made(3)):
        await settled(workers, 3)
        monkeypatch.setattr(Consumer, "snapshot_in_turns", _fails)
        await workers.refresh()  # the answer is an error, which is none
        (found,) = workers.snapshots()
        assert (found.stats.settled, found.health.live) == (3, True)
        assert found.health.reasons[0].startswith("worker 0 has not answered for")
        monkeypatch.setattr("consumer_sdk.admin.merging.TURN", 0.0)
        assert not workers.healths()[0].live
        monkeypatch.undo()
        while workers.healths()[0].reasons:
            await workers.refresh()


async def _fails(_consumer: object) -> None:
    raise ConsumerSdkError("not now")


async def test_worker_that_is_stuck_before_anybody_has_looked_is_named(
    impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has begun is not taken for one that is being started; nor is it live for long."""
    monkeypatch.setattr(links._Answerer, "_look", _hangs)
    monkeypatch.setattr(links, "ENDING", 0.0)
    workers = Workers(1)
    async with workers.linked(0) as theirs:
        await workers.refresh()
        assert workers.healths()[0].reasons == ("worker 0 is being started",)
        monkeypatch.setattr("consumer_sdk.admin.merging.SLOW", 0.0)
        monkeypatch.setattr("consumer_sdk.admin.merging.TURN", 0.0)
        assert workers.healths()[0].live
        async with answering(own(theirs), [made()]):
            while workers.healths()[0].live:
                await workers.refresh()
                await asyncio.sleep(0.01)
            (reason,) = workers.healths()[0].reasons
            assert reason.startswith("worker 0 has not answered for"), reason


async def _hangs(_answerer: object) -> None:
    await asyncio.Event().wait()


async def test_many_who_look_ask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the first of them goes away."""
    monkeypatch.setattr(module, "FRESH", 3e7)
    asked: list[str] = []
    ask = Link.ask

    def counted(self: Link, do: str, **given: Any) -> asyncio.Future[Any]:
        asked.append(do)
        return ask(self, do, **given)

    monkeypatch.setattr(Link, "ask", counted)
    workers = Workers(1)
    async with workers.linked(0) as theirs, answering(own(theirs), [made()]):
        first = asyncio.create_task(workers.refresh())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(*(workers.refresh() for _ in range(20)))
        await workers.refresh()
        assert asked == ["look"]
        assert workers.snapshots()[0].broker == "memory"


async def test_service_that_has_not_begun_is_live_and_not_ready() -> None:
    """Its page can be opened, it has no metrics yet, and no partition that could be paused."""
    async with serve_source(
        Workers(1), "s", AdminOptions(address="127.0.0.1:0", actions=True)
    ) as server:
        assert (await ask(server.address, "/healthz")).status == 200
        ready = await ask(server.address, "/readyz")
        assert (ready.status, ready.json["reasons"]) == (503, ["worker 0 does not run"])
        (view,) = (await ask(server.address, "/api/view")).json["consumers"]
        assert (view["name"], view["state"], view["partitions"]) == ("no group", "opening", [])
        assert b"consumer_sdk_ready{" not in (await ask(server.address, "/metrics")).body
        assert (await ask(server.address, "/api/partitions/s/0/pause", "POST", POST)).status == 404


async def test_page_answers_while_a_worker_does_not(impatient: None) -> None:
    """Who acts is told which has not heard of it yet."""
    workers = Workers(2)
    async with (
        serve_source(workers, "s", AdminOptions(address="127.0.0.1:0", actions=True)) as server,
        living(workers, 0, made(3)),
        workers.linked(1),
    ):
        await settled(workers, 3)
        late = await ask(server.address, "/api/partitions/s/0/pause", "POST", POST)
        assert (late.status, late.json["error"][:28]) == (504, "worker 1 has not answered wi")
        (view,) = (await ask(server.address, "/api/view")).json["consumers"]
        assert [(row["id"], row["is_by_hand"]) for row in view["partitions"]] == [("0", True)]
        assert b"consumer_sdk_settled_total" in (await ask(server.address, "/metrics")).body


# -- what cannot be read --------------------------------------------------------------------------


ODD = [
    b"null",
    b"[]",
    b'[{"a": 1}]',
    b'[{"time": "now"}]',  # over a snapshot that is right
    b'[{"flushes": {"durable": "x"}}]',
    b'[{"partitions": [3]}]',
]


@pytest.mark.parametrize("odd", ODD)
async def test_worker_that_says_what_cannot_be_read_is_named_and_keeps_nobody_from_work(
    odd: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are shown; it is logged once; and its end, with such last words, ends no service."""
    workers = Workers(2)
    look = links._Answerer._look

    async def says(self: Any) -> bytes:
        right, changes = json.loads(await look(self)), json.loads(odd)
        is_change = changes and "a" not in changes[0]
        return json.dumps([{**right[0], **changes[0]}] if is_change else changes).encode()

    async with living(workers, 0, made(3)):
        await settled(workers, 3)
        monkeypatch.setattr(links._Answerer, "_look", says)
        async with living(workers, 1, made(4)):
            for _ in range(3):
                await workers.refresh()
            (found,) = workers.snapshots()
            assert found.stats.settled == 3
            assert "worker 1 says what cannot be read: see the log" in found.health.reasons
            assert not found.health.ready
        monkeypatch.undo()
        await workers.refresh()
        assert workers.snapshots()[0].stats.settled == 3
    errors = [each for each in caplog.records if each.levelname == "ERROR"]
    assert ["worker 1" in each.getMessage() for each in errors].count(True) == 1, caplog.text


async def test_answer_that_is_too_long_is_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    """Nor kept in memory: its length says so. Whether the worker lives, nobody knows any more."""
    workers = Workers(1)
    async with workers.linked(0) as theirs:
        theirs.send((links.LONGEST + 1).to_bytes(4, "big"))
        while not workers.healths()[0].reasons[0].endswith("see the log"):
            await workers.refresh()
        assert (workers.healths()[0].live, workers.healths()[0].ready) == (True, False)
        assert "what worker 0 answers cannot be read" in caplog.text


# -- what they are told ---------------------------------------------------------------------------


def _reason(consumer: Consumer) -> str | None:
    return next((each.pause_text for each in consumer.snapshot().partitions), None)


async def test_pause_reaches_all_workers_and_those_that_start_later() -> None:
    """A partition stays paused wherever it goes, until it is resumed."""
    workers, consumers = Workers(2), [made(), made(), made()]
    async with living(workers, 0, consumers[0]):
        await settled(workers, 3)
        await workers.set_paused(0, ZERO, "why")
        assert _reason(consumers[0]) == "why"
        async with living(workers, 1, consumers[1]):
            await until(lambda: _reason(consumers[1]) == "why", "told")
            await workers.flush(0)
            await workers.set_paused(0, ZERO, None)
            assert [_reason(each) for each in consumers[:2]] == [None, None]
            await settled(workers, 6)
        async with living(workers, 1, consumers[2]):
            await settled(workers, 9)
            assert _reason(consumers[2]) is None


async def test_second_consumer_is_known_before_anybody_has_looked() -> None:
    """To the first request already; a third one is not there."""
    workers, (one, two) = Workers(1), (made(), made())
    async with (
        serve_source(workers, "g", AdminOptions(address="127.0.0.1:0", actions=True)) as server,
        workers.linked(0) as theirs,
        answering(own(theirs), [one, two]),
    ):
        statuses = [
            (await ask(server.address, f"/api/pause?consumer={number}", "POST", POST)).status
            for number in (1, 2)
        ]
        assert statuses == [200, 404]
        async with one, two:
            await until(lambda: _reason(two) == "by hand", "told")
            assert _reason(one) is None


async def test_stop_reaches_a_worker_that_starts_later() -> None:
    """It was away when the service was told to stop: it ends before it begins."""
    workers, consumer = Workers(1), made()
    await workers.stop(0)
    async with workers.linked(0) as theirs, answering(own(theirs), [consumer]):
        await workers.refresh()
        await asyncio.wait_for(consumer.run(handle, handle_signals=False), 60)
    assert consumer.state == "closed"


async def test_state_is_that_of_those_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of one that has ended before. Where one consumer is stopped, viewers see the others."""
    monkeypatch.setattr("consumer_sdk.admin.frames.INTERVAL", 0.01)
    workers, one, two = Workers(1), made(), made()
    async with living(workers, 0, made()):
        await settled(workers, 3)
    assert workers.states() == ["opening"]
    async with (
        serve_source(workers, "g", AdminOptions(address="127.0.0.1:0")) as server,
        workers.linked(0) as theirs,
        answering(own(theirs), [one, two]),
    ):
        async with one, two:
            await workers.refresh()
            assert workers.states() == ["running", "running"]
            await workers.stop(0)
            await one.aclose()
            await workers.refresh()
            assert workers.states() == ["closed", "running"]
        async with watching(server.address) as frames:
            for _ in range(3):  # another process may begin
                states = [each["state"] for each in (await anext(frames))["consumers"]]
            assert states == ["closed", "closed"]


async def test_worker_that_does_not_answer_keeps_nobody_from_being_told(impatient: None) -> None:
    """Who asked is told that it hears of it later; and then it does."""
    workers, consumers = Workers(2), [made(), made()]
    async with living(workers, 0, consumers[0]), workers.linked(1) as stopped:
        await settled(workers, 3)
        with pytest.raises(LateError, match=r"^worker 1 has not answered within 0.05 s"):
            await workers.set_paused(0, ZERO, "why")
        assert _reason(consumers[0]) == "why"
        async with answering(own(stopped), [consumers[1]]), consumers[1]:
            await until(lambda: _reason(consumers[1]) == "why", "told")


async def test_worker_that_cannot_says_why() -> None:
    """With its number; one that has gone, too."""
    workers, consumer = Workers(1), made()
    async with workers.linked(0) as theirs:
        async with answering(own(theirs), [consumer]):
            with pytest.raises(ConsumerSdkError, match=r"^worker 0: .*not open"):
                await workers.flush(0)
            with pytest.raises(ConsumerSdkError, match=r"^worker 0: IndexError"):
                await workers.stop(1)
        with pytest.raises(ConsumerSdkError, match=r"^worker 0: has gone"):
            await workers.flush(0)


async def test_pause_while_a_worker_dies_is_done() -> None:
    """The one after it is told before it consumes; unlike one that cannot be asked any more."""
    workers, consumers = Workers(1), [made(), made()]
    async with workers.linked(0) as theirs:
        waiting = asyncio.create_task(workers.set_paused(0, ZERO, "why"))
        await asyncio.sleep(0)
        theirs.close()
        await waiting
        await workers.set_paused(0, ZERO, "again")  # before its end is seen by who starts another
    async with living(workers, 0, consumers[0]):
        await until(lambda: _reason(consumers[0]) == "again", "told")
    async with workers.linked(0) as theirs:
        theirs.send(b"\0\0\0\1}")
        with pytest.raises(ConsumerSdkError, match=r"^worker 0: is not asked any more"):
            await workers.set_paused(0, ZERO, None)


ORDERS = st.lists(
    st.tuples(
        st.sampled_from(["pause", "pause", "pause", "stop", "flush"]),
        st.sampled_from([None, ZERO, Partition("s", "1")]),
        st.sampled_from([None, "why", "again"]),
    ),
    max_size=12,
)


@given(ORDERS)
def test_orders_that_are_kept_leave_what_all_of_them_left(
    given_orders: list[tuple[str, Partition | None, str | None]],
) -> None:
    """And they are no more than each partition has, twice, all, and the end."""
    every: list[module.Order] = []
    kept: list[module.Order] = []
    for do, partition, reason in given_orders:
        more = {"partition": partition, "reason": reason} if do == "pause" else {}
        order = {"do": do, "consumer": 0, **more}
        every.append(order)
        kept = after(kept, order)
    assert _left(kept) == _left(every)
    assert len(kept) <= 4


def _left(orders: list[module.Order]) -> list[Any]:
    pauses, is_stopped = Pauses(), False
    for order in orders:
        is_stopped = is_stopped or order["do"] == "stop"
        if order["do"] == "pause" and order["reason"] is None:
            pauses.resume(order["partition"])
        elif order["do"] == "pause":
            pauses.pause(order["partition"], order["reason"])
    partitions = [ZERO, Partition("s", "1"), Partition("s", "2")]
    return [is_stopped, *(pauses.reason(each) for each in partitions)]


# -- the link -------------------------------------------------------------------------------------


async def test_question_to_a_process_that_is_killed_ends() -> None:
    """Those that wait, and those that come later."""
    ours, theirs = socket.socketpair()
    link = await Link.over(ours)
    waiting = link.ask("look")
    theirs.close()
    for future in (waiting, link.ask("look")):
        with pytest.raises(LinkError, match="has gone"):
            await future


async def test_answers_that_cannot_be_read_end_the_link() -> None:
    """And nothing else."""
    ours, theirs = socket.socketpair()
    link = await Link.over(ours)
    waiting = link.ask("look")
    theirs.send(b"\0\0\0\1}")
    with pytest.raises(LinkError, match="is not asked any more"):
        await waiting
    theirs.close()


async def test_answer_of_a_megabyte_comes_whole() -> None:
    """A snapshot of thousands of partitions, say."""
    workers, consumer = Workers(1), made()
    async with workers.linked(0) as theirs, answering(own(theirs), [consumer]):
        text = "x" * 1_000_000
        await workers.set_paused(0, ZERO, text)
        await workers.refresh()
        (found,) = workers.snapshots()
        assert found.events[-1].text.endswith(text)


def test_worker_takes_its_socket_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it starts itself gets neither the socket nor its number."""
    assert inherited() is None
    _ours, theirs = socket.socketpair()
    theirs.set_inheritable(True)
    monkeypatch.setenv(LINK, str(theirs.detach()))
    end = inherited()
    assert end is not None
    assert not end.get_inheritable()
    assert inherited() is None
    end.close()
    _ours.close()
