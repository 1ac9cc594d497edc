"""The bridge to kazoo: how much it is asked, and what its silence and its errors become."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kazoo import exceptions as kazoo
from kazoo.protocol.states import KazooState, KeeperState

from consumer_sdk.errors import StoreError, TransientStoreError
from consumer_sdk.stores.zookeeper import bridge as bridge_module
from consumer_sdk.stores.zookeeper.bridge import (
    CLIENT_LOGS,
    SLOTS,
    WINDOW,
    Bridge,
    UnknownResultError,
)
from tests.stores.fake_kazoo import HOST, PATIENCE, Client, Handle, Scene, failed, now, play, turns

# -- requests and answers --------------------------------------------------------------------


def test_answers_and_errors_come_back_in_the_order_of_the_requests() -> None:
    """Whatever the order in which they arrive; nobody is told before the last one is there."""

    async def scenario(scene: Scene) -> None:
        await scene.connected()
        call = await scene.ask(["a", "b", "c"])
        refused = kazoo.NoNodeError()
        scene.client.answer(2)
        await turns()
        scene.client.handles[1].answer(refused)
        await turns()
        assert not call.done()
        scene.client.answer(0)
        assert await call == ["<a>", refused, "<c>"]
        assert await scene.bridge.ask(Client.ask, []) == []

    play(scenario)


def test_answers_that_are_there_at_once_are_not_waited_for() -> None:
    """As kazoo's, of a request that it refuses to send."""

    async def scenario(scene: Scene) -> None:
        await scene.connected()

        def call(client: Client, subject: object) -> Handle:
            handle = client.ask(subject)
            handle.answer()
            return handle

        assert await scene.bridge.ask(call, ["a", "b"]) == ["<a>", "<b>"]
        assert now() == 0

    play(scenario)


def test_client_has_a_bounded_number_of_requests_at_a_time() -> None:
    """Two windows: the third is sent when the first is answered; another call waits for its turn."""

    async def scenario(scene: Scene) -> None:
        await scene.connected()
        subjects = list(range(2 * WINDOW + 50))
        call = await scene.ask(subjects)
        other = await scene.ask(["other"])
        assert len(scene.client.handles) == SLOTS * WINDOW
        scene.client.answer(*range(WINDOW))
        await turns()
        assert len(scene.client.handles) == SLOTS * WINDOW + 1
        scene.client.answer()
        await turns()
        scene.client.answer()
        assert await call == [f"<{subject}>" for subject in subjects]
        assert await other == ["<other>"]

    play(scenario)


def test_request_whose_caller_was_cancelled_counts_until_it_is_answered() -> None:
    """The client has it nevertheless."""

    async def scenario(scene: Scene) -> None:
        await scene.connected()
        calls = [await scene.ask([n]) for n in range(SLOTS)]
        for each in calls:
            each.cancel()
        waiting = await scene.ask(["late"])
        assert len(scene.client.handles) == SLOTS
        scene.client.answer()
        await turns()
        assert len(scene.client.handles) == SLOTS + 1
        scene.client.answer()
        assert await waiting == ["<late>"]

    play(scenario)


def test_silence_after_the_request_leaves_open_whether_it_was_done() -> None:
    """After the time that was given; whoever could not even ask is told that it was not."""

    async def scenario(scene: Scene) -> None:
        await scene.connected()
        calls = [await scene.ask([n]) for n in range(SLOTS + 1)]
        words = rf"no answer for {PATIENCE} s"
        assert await failed(calls[0], UnknownResultError, words) == PATIENCE
        with pytest.raises(UnknownResultError):
            await calls[1]
        words = rf"no connection to ZooKeeper at zk1:2181, or no answer, for {PATIENCE} s: see that"
        await failed(calls[2], TransientStoreError, words)
        assert now() == PATIENCE
        assert len(scene.client.handles) == SLOTS
        scene.client.answer()
        late = await scene.ask(["late"])
        scene.client.answer()
        assert await late == ["<late>"]

    play(scenario)


# -- no connection ---------------------------------------------------------------------------


def test_nothing_is_handed_over_without_a_connection() -> None:
    """The client would keep it, and send it later; the error says where and why, as far as that is known."""

    async def scenario(scene: Scene) -> None:
        call = await scene.ask(["a"])
        words = f"at zk1:2181, or no answer, for {PATIENCE} s: see that its servers run"
        assert await failed(call, TransientStoreError, words) == PATIENCE
        assert scene.client.handles == []
        assert scene.maker.asked == [[HOST]]

    play(scenario)


def test_connection_that_comes_in_time_is_used() -> None:
    """The servers are asked what is wrong after a second, and no earlier."""

    async def scenario(scene: Scene) -> None:
        call = await scene.ask(["a"])
        await asyncio.sleep(0.9)
        assert scene.maker.asked == []
        await asyncio.sleep(0.2)
        assert scene.maker.asked == [[HOST]]
        await asyncio.sleep(PATIENCE - 1.5)
        await scene.connected()
        scene.client.answer()
        assert await call == ["<a>"]

    play(scenario)


def test_hosts_are_named_as_they_were_given() -> None:
    """All of them."""

    async def scenario(scene: Scene) -> None:
        scene.client.hosts.append(("zk2", 2182))
        await failed(
            scene.bridge.ask(Client.ask, ["a"]), TransientStoreError, "at zk1:2181,zk2:2182,"
        )

    play(scenario)


def test_tls_that_never_worked_is_an_error_at_once() -> None:
    """Waiting would not mend it."""

    async def scenario(scene: Scene) -> None:
        scene.maker.trouble = "no TLS there"
        call = scene.bridge.ask(Client.ask, ["a"])
        assert await failed(call, StoreError, r"ZooKeeper at zk1:2181: no TLS there") == 1.0

    play(scenario)


def test_trouble_of_servers_that_have_worked_may_pass() -> None:
    """It is named after the whole wait, and forgotten with the next connection."""

    async def scenario(scene: Scene) -> None:
        await scene.worked()
        scene.client.become(KeeperState.CONNECTING, KazooState.SUSPENDED)
        scene.maker.trouble = "no TLS there"
        call = await scene.ask(["a"])
        assert (
            await failed(call, TransientStoreError, f"for {PATIENCE} s: no TLS there") == PATIENCE
        )
        await scene.connected()
        call = await scene.ask(["b"])
        scene.client.answer()
        assert await call == ["<b>"]
        # What has only been slow since then is not the fault of what was wrong before.
        calls = [await scene.ask([n]) for n in range(SLOTS + 1)]
        await failed(calls[-1], TransientStoreError, "see that its servers run")
        await asyncio.gather(*calls, return_exceptions=True)

    play(scenario)


def test_lost_connection_is_waited_for() -> None:
    """What was handed over before is kazoo's; what comes after waits until there is one again."""

    async def scenario(scene: Scene) -> None:
        await scene.connected()
        scene.client.become(KeeperState.CONNECTING, KazooState.SUSPENDED)
        await turns()
        call = await scene.ask(["a"])
        assert scene.client.handles == []
        await scene.connected()
        scene.client.answer()
        assert await call == ["<a>"]

    play(scenario)


# -- clients that have given up --------------------------------------------------------------


def test_client_that_has_given_up_is_replaced() -> None:
    """What was asked may have been done; the next call goes to a new session, and the old one has no say."""

    async def scenario(scene: Scene) -> None:
        await scene.worked()
        old = scene.client
        call = await scene.ask(["a"])
        old.become(KeeperState.CLOSED, KazooState.LOST)
        old.handles[-1].answer(kazoo.ConnectionClosedError())
        await failed(call, UnknownResultError, "zk1:2181: kazoo has given up")
        new = scene.client
        assert new is not old
        assert new.did == ["start"]
        assert await asyncio.to_thread(old.stopped.wait, 300)
        waiting = await scene.ask(["b"])
        old.connect()
        await turns()
        assert new.handles == old.handles[2:] == []
        new.connect()
        await turns()
        old.become(KeeperState.CLOSED, KazooState.LOST)
        await turns()
        another = await scene.ask(["c"])
        new.answer()
        assert await waiting + await another == ["<b>", "<c>"]

    play(scenario)


def test_client_that_gives_up_while_somebody_waits_is_replaced() -> None:
    """After the wait: until then kazoo may connect by itself."""

    async def scenario(scene: Scene) -> None:
        await scene.worked()
        scene.client.become(KeeperState.CLOSED, KazooState.LOST)
        await turns()
        call = await scene.ask(["a"])
        assert await failed(call, UnknownResultError, "kazoo has given up") == PATIENCE
        assert len(scene.maker.clients) == 2

    play(scenario)


def test_session_that_ended_before_its_first_answer_may_come_again() -> None:
    """Nothing says that the credentials were refused."""

    async def scenario(scene: Scene) -> None:
        await scene.connected()
        call = await scene.ask(["a"])
        scene.client.become(KeeperState.CLOSED, KazooState.LOST)
        scene.client.handles[-1].answer(kazoo.ConnectionLoss())
        await failed(call, UnknownResultError, "kazoo has given up")

    play(scenario)


def test_client_that_could_not_look_up_its_hosts_goes_on() -> None:
    """The client says closed, and tries by itself again and again."""

    async def scenario(scene: Scene) -> None:
        scene.client.become(KeeperState.CLOSED, KazooState.LOST)
        await turns()
        await failed(scene.bridge.ask(Client.ask, ["a"]), TransientStoreError, "no connection")
        assert len(scene.maker.clients) == 1

    play(scenario)


@pytest.mark.parametrize(
    "has_worked, kind, words",
    [
        (False, StoreError, "the servers refused our credentials"),
        (True, UnknownResultError, "kazoo has given up"),
    ],
)
def test_refused_login_may_pass_where_it_has_worked(
    *, has_worked: bool, kind: type[Exception], words: str
) -> None:
    """A server that goes down in the middle of a login looks like one that refuses it."""

    async def scenario(scene: Scene) -> None:
        if has_worked:
            await scene.worked()
        call = await scene.ask(["a"])
        client = scene.client
        client.become(KeeperState.AUTH_FAILED, KazooState.LOST)
        client.client_state = KeeperState.CLOSED
        await turns()
        client.become(KeeperState.CLOSED, KazooState.LOST)
        if has_worked:
            client.handles[-1].answer(kazoo.ConnectionLoss())
        await failed(call, kind, words)
        assert len(scene.maker.clients) == 2
        await scene.connected()
        call = await scene.ask(["b"])
        scene.client.answer()
        assert await call == ["<b>"]

    play(scenario)


def test_answers_that_are_all_errors_show_no_working_connection() -> None:
    """As where each of them says that the login failed."""

    async def scenario(scene: Scene) -> None:
        await scene.connected()
        call = await scene.ask(["a"])
        scene.client.handles[0].answer(kazoo.NoAuthError())
        assert isinstance((await call)[0], kazoo.NoAuthError)
        scene.client.become(KeeperState.AUTH_FAILED, KazooState.LOST)
        await turns()
        await failed(scene.bridge.ask(Client.ask, ["b"]), StoreError, "refused our credentials")

    play(scenario)


# -- closing ---------------------------------------------------------------------------------


async def test_closing_tells_whoever_waits_and_ends_the_session() -> None:
    """Nothing more is handed over."""
    scene = Scene()
    client, bridge = scene.client, scene.bridge
    calls = [await scene.ask([n]) for n in range(SLOTS + 2)]
    await bridge.aclose()
    for call in calls:
        with pytest.raises(TransientStoreError, match="closed before this was done"):
            await call
    assert client.did == ["start", "stop", "close"]
    client.connect()
    await turns()
    assert client.handles == []
    with pytest.raises(TransientStoreError, match="closed before"):
        await bridge.ask(Client.ask, ["late"])


async def test_answers_that_come_while_it_closes_are_given() -> None:
    """What was handed over before is done; an end that kazoo meets on the way is none of ours."""
    scene = Scene()
    await scene.connected()
    call = await scene.ask(["a"])
    client = scene.client
    client.may_stop.clear()
    closing = asyncio.ensure_future(scene.bridge.aclose())
    await turns()
    client.become(KeeperState.CLOSED, KazooState.LOST)
    client.answer()
    assert await call == ["<a>"]
    with pytest.raises(TransientStoreError, match="closed before"):
        await scene.bridge.ask(Client.ask, ["late"])
    client.may_stop.set()
    await closing
    assert len(scene.maker.clients) == 1


def test_closing_does_not_wait_long_for_a_client_that_hangs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Five seconds: the session then expires by itself, which a log line says."""

    async def scenario(scene: Scene) -> None:
        scene.client.may_stop.clear()
        await scene.bridge.aclose()
        assert now() == 5.0
        assert "did not end the session within 5.0 s" in caplog.text

    play(scenario)


async def test_client_that_does_not_stop_cleanly_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it is, the session expires."""
    scene = Scene()

    def fail() -> None:
        raise ValueError("kazoo's own")

    monkeypatch.setattr(scene.client, "stop", fail)
    caplog.set_level(logging.WARNING, bridge_module.__name__)
    await scene.bridge.aclose()
    assert not caplog.records


def test_another_event_loop_may_close_it() -> None:
    """The one that it belongs to may be gone; what kazoo still says then is dropped."""

    async def make() -> Scene:
        scene = Scene()
        await scene.worked()
        return scene

    scene = asyncio.run(make())
    scene.client.become(KeeperState.CONNECTING, KazooState.SUSPENDED)
    asyncio.run(scene.bridge.aclose())
    assert scene.client.did == ["start", "stop", "close"]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> set[object]:
    """The bridges that hold the limits of kazoo's log."""
    holders: set[object] = set()
    monkeypatch.setattr(CLIENT_LOGS, "hold", holders.add)
    monkeypatch.setattr(CLIENT_LOGS, "release", holders.discard)
    return holders


@pytest.mark.parametrize("end", [Bridge.aclose, Bridge.abandon])
async def test_log_is_limited_until_the_bridge_is_closed(
    held: set[object], end: Callable[[Bridge], Coroutine[Any, Any, None] | None]
) -> None:
    """By whichever way."""
    scene = Scene()
    assert held == {scene.bridge}
    if (closing := end(scene.bridge)) is not None:
        await closing
    assert held == set()
    assert await asyncio.to_thread(scene.client.stopped.wait, 300)


async def test_watch_is_called_in_the_event_loop() -> None:
    """The client calls it on a thread of its own."""
    scene = Scene()
    seen: list[threading.Thread] = []
    watch = scene.bridge.watcher(lambda: seen.append(threading.current_thread()))
    await asyncio.to_thread(watch, "event")
    await turns()
    assert seen == [threading.current_thread()]
    await scene.bridge.aclose()
