"""An admin server as programs, browsers and attackers meet it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from consumer_sdk import ConfigurationError, Consumer, Message, MissingExtraError, admin
from consumer_sdk.admin.addresses import default_directory, living_sockets
from consumer_sdk.admin.server import AdminServer
from consumer_sdk.testing import MemoryAdapter, MemoryBroker
from tests.admin.asking import POST, ask, connect, request, watching

TOKEN = "a-token-of-enough-characters"  # noqa: S105 - of these tests


async def _hang(_message: Message) -> None:
    await asyncio.Event().wait()


def _consumer(partitions: int = 2) -> Consumer:
    broker = MemoryBroker()
    broker.create_stream("s", partitions)
    broker.append("s", b"v", key=b"<k>", partition=0)
    broker.append("s", b"v", partition=0)
    return Consumer(MemoryAdapter(broker, "s", group="g"), drain_timeout=0.01)


@asynccontextmanager
async def _running(**options: Any) -> AsyncIterator[tuple[Consumer, AdminServer]]:
    """A consumer whose handlers hang, and its server on a free port."""
    consumer = _consumer()
    options = {"address": "127.0.0.1:0", "actions": True, **options}
    async with admin.serve(consumer, **options) as server:
        task = asyncio.create_task(consumer.run(_hang, handle_signals=False))
        while not consumer.snapshot().partitions or not consumer.snapshot().stats.fetched:
            await asyncio.sleep(0.01)
        yield consumer, server
        consumer.stop()
        await task


# -- probes and metrics ---------------------------------------------------------------------


async def test_probes_follow_the_consumers_life() -> None:
    """Not ready before it is open and after its end; not live after its end."""
    consumer = _consumer()
    async with admin.serve(consumer, address="127.0.0.1:0") as server:
        assert (await ask(server.address, "/readyz")).status == 503
        assert (await ask(server.address, "/healthz")).status == 200
        async with consumer:
            ready = await ask(server.address, "/readyz")
            assert (ready.status, ready.json) == (200, {"ready": True, "reasons": []})
        live = await ask(server.address, "/healthz")
        assert (live.status, live.json["reasons"]) == (503, ["the consumer is closed"])


class _Unreachable(MemoryAdapter):
    async def fetch(self, *_args: object, **_options: object) -> Any:
        raise OSError("login as user:hunter2 failed")


async def test_probes_tell_an_errors_type_alone() -> None:
    """They need no token, and its text may name anything."""
    broker = MemoryBroker()
    broker.create_stream("s", 1)
    consumer = Consumer(_Unreachable(broker, "s", group="g"))
    async with admin.serve(consumer, address="127.0.0.1:0", token=TOKEN) as server:
        with pytest.raises(OSError, match="hunter2"):
            await consumer.run(_hang, handle_signals=False)
        probe = await ask(server.address, "/healthz")
        assert (probe.status, probe.json["reasons"][-1]) == (503, "it failed: OSError")
        key = {"authorization": f"Bearer {TOKEN}"}
        (view,) = (await ask(server.address, "/api/view", headers=key)).json["consumers"]
        assert "hunter2" in view["reasons"][-1]


async def test_metrics_are_those_of_the_collector() -> None:
    """Also when many scrape at once."""
    async with _running() as (_, server):
        answers = await asyncio.gather(*(ask(server.address, "/metrics") for _ in range(20)))
        assert {answer.status for answer in answers} == {200}
        assert b'consumer_sdk_in_flight{group="g",partition="0"' in answers[0].body
        assert answers[0].headers["content-type"].startswith("text/plain")


# -- looking --------------------------------------------------------------------------------


async def test_snapshot_and_view_name_what_pins() -> None:
    """The whole snapshot, and what viewers are shown of it."""
    async with _running() as (_, server):
        (whole,) = (await ask(server.address, "/api/snapshot")).json["consumers"]
        assert whole["partitions"][0]["pinned"]["state"] == "running"
        (view,) = (await ask(server.address, "/api/view")).json["consumers"]
        row = view["partitions"][0]
        assert (row["stream"], row["id"], row["state"]) == ("s", "0", "reading")
        assert (row["pinned"]["position"], row["pinned"]["key"]) == ("0", "<k>")


async def test_viewers_get_frames_until_the_consumer_ends() -> None:
    """The first at once, others as time goes; then the stream ends by itself."""
    async with _running() as (consumer, server), watching(server.address) as frames:
        assert (await anext(frames))["consumers"][0]["state"] == "running"
        consumer.stop()
        states = [frame["consumers"][0]["state"] async for frame in frames]
        assert states[-1] == "closed"


async def test_server_closes_with_viewers_connected() -> None:
    """Those who read, those who read nothing, and those who have not asked yet."""
    consumer = _consumer()
    async with AsyncExitStack() as stack:
        async with admin.serve(consumer, address="127.0.0.1:0") as server:
            frames = await stack.enter_async_context(watching(server.address))
            await anext(frames)
            _, silent = await connect(server.address)
            silent.write(request("/api/events", "GET", {}))
            _, idle = await connect(server.address)
            await ask(server.address, "/healthz")
        async for _ in frames:  # on a busy machine one more was made before
            pass
        silent.close()
        idle.close()
        with pytest.raises(OSError, match=r"(?i)connect|refused"):
            await connect(server.address)


async def test_a_viewer_too_many_is_told_to_come_later() -> None:
    """And comes in when another has gone."""
    async with _running(max_viewers=2) as (_, server), watching(server.address):
        async with watching(server.address) as second:
            await anext(second)
            refused = await ask(server.address, "/api/events")
            assert (refused.status, refused.headers["retry-after"]) == (503, "5")
            assert "2 viewers are here already" in refused.json["error"]
            assert (await ask(server.address, "/api/view")).status == 200
        while (await ask(server.address, "/api/view")).json["viewers"] == 2:
            await asyncio.sleep(0.01)
        async with watching(server.address) as third:
            await anext(third)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of consumers, in order."""
    found: list[str] = []
    for name in ("snapshot", "health"):
        monkeypatch.setattr(Consumer, name, _counted(name, getattr(Consumer, name), found))
    return found


def _counted(name: str, method: Callable[..., Any], found: list[str]) -> Callable[..., Any]:
    def counted(self: Consumer) -> Any:
        found.append(name)
        return method(self)

    return counted


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/api/snapshot", "/api/view"])
async def test_who_asks_often_does_not_reach_the_consumer(
    path: str, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found is told again for a second, which is a year here."""
    monkeypatch.setattr("consumer_sdk.admin.application.FRESH", 3e7)
    monkeypatch.setattr("consumer_sdk.admin.frames.INTERVAL", 3e7)
    async with _running() as (_, server):
        taken.clear()
        for _ in range(10):
            assert (await ask(server.address, path)).status == 200
        assert len(taken) == 1


async def test_what_was_done_is_seen_at_once() -> None:
    """Though a frame was made just before."""
    async with _running() as (_, server):
        for reason in ("one", "two"):
            body = json.dumps({"reason": reason}).encode()
            await ask(server.address, "/api/pause", "POST", POST, body)
            (view,) = (await ask(server.address, "/api/view")).json["consumers"]
            assert {row["pause_text"] for row in view["partitions"]} == {reason}


async def test_page_asks_nobody_else() -> None:
    """Its files come from here, and the policy forbids what does not."""
    async with _running() as (_, server):
        for path in ("/", "/page.js", "/page.css", "/door.js"):
            answer = await ask(server.address, path)
            assert answer.status == 200
            text = answer.body.decode().replace("http://www.w3.org/2000/svg", "")
            assert "://" not in text
            assert "innerHTML" not in text
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self';")
            assert "unsafe" not in policy


async def test_application_is_mounted_in_another() -> None:
    """Below a path of that one's; its streams end by themselves, and come again."""
    import uvicorn

    consumer = _consumer()
    service = Starlette(routes=[Mount("/consumer", admin.app(consumer, token=TOKEN))])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        server = uvicorn.Server(uvicorn.Config(service, log_config=None))
        serving = asyncio.create_task(server.serve([listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        page = await ask(address, "/consumer/", headers={"authorization": f"Bearer {TOKEN}"})
        assert (page.status, b"page.js" in page.body) == (200, True)
        assert (await ask(address, "/consumer/healthz")).status == 200
        assert (await ask(address, "/consumer/api/view")).status == 401
        login = await ask(address, "/consumer/login", "POST", POST, TOKEN.encode())
        assert "Path=/consumer;" in login.headers["set-cookie"]
        server.should_exit = True
        await serving


# -- acting ---------------------------------------------------------------------------------


async def test_partition_is_paused_and_resumed_by_hand() -> None:
    """With the reason that was given; the answer says whether it is held."""
    async with _running() as (consumer, server):
        path = "/api/partitions/s/1/pause"
        answer = await ask(server.address, path, "POST", POST, b'{"reason": "too hot"}')
        assert (answer.status, answer.json) == (200, {"pause": "s/1", "is_held": True})
        _, paused = consumer.snapshot().partitions
        assert (paused.paused, paused.pause_text) == ("operator", "too hot")
        await ask(server.address, "/api/partitions/s/1/resume", "POST", POST)
        assert consumer.snapshot().partitions[1].paused != "operator"
        await ask(server.address, "/api/pause", "POST", POST, b"not JSON")
        assert {each.pause_text for each in consumer.snapshot().partitions} == {"by hand"}
        await ask(server.address, "/api/resume", "POST", POST)
        assert {each.pause_text for each in consumer.snapshot().partitions} == {None}


async def test_partition_that_goes_away_under_a_pause_is_shown_and_resumed() -> None:
    """It stays paused for this consumer, and says so while it is elsewhere."""
    async with _running() as (consumer, server):
        await ask(server.address, "/api/partitions/s/1/pause", "POST", POST)
        await ask(server.address, "/api/pause", "POST", POST)  # says nothing of what has left
        consumer.stop()
        while consumer.state != "closed":
            await asyncio.sleep(0.01)
        (view,) = (await ask(server.address, "/api/view")).json["consumers"]
        (row,) = view["partitions"]
        assert (row["id"], row["state"], row["is_by_hand"]) == ("1", "elsewhere", True)
        done = await ask(server.address, "/api/partitions/s/1/resume", "POST", POST)
        assert (done.status, done.json["is_held"]) == (200, False)


async def test_consumers_of_one_process_are_told_apart() -> None:
    """By their place; probes are of all."""
    one, two = _consumer(), _consumer()
    async with admin.serve(one, two, address="127.0.0.1:0", actions=True) as server, one:
        assert (await ask(server.address, "/readyz")).status == 503
        async with two:
            assert (await ask(server.address, "/readyz")).status == 200
            assert (await ask(server.address, "/api/pause?consumer=1", "POST", POST)).status == 200
            paused = [{p.pause_text for p in each.snapshot().partitions} for each in (one, two)]
            assert paused == [{None}, {"by hand"}]
            assert len((await ask(server.address, "/api/view")).json["consumers"]) == 2


async def test_flush_and_stop() -> None:
    """A flush that cannot work says why; stop ends the run."""
    async with _running() as (consumer, server):
        assert (await ask(server.address, "/api/flush", "POST", POST)).json == {"flush": "all"}
        assert (await ask(server.address, "/api/stop", "POST", POST)).status == 200
        while consumer.state != "closed":
            await asyncio.sleep(0.01)
        refused = await ask(server.address, "/api/flush", "POST", POST)
        assert refused.status in {200, 409}


@pytest.mark.parametrize(
    "path, status, words",
    [
        ("/api/partitions/s/9/pause", 404, "never held s/9"),
        ("/api/partitions/other/0/pause", 404, "never held other/0"),
        ("/api/partitions/s/0/delete", 404, "there are pause, resume"),
        ("/api/explode", 404, "there are pause, resume, flush, stop"),
        ("/api/pause?consumer=1", 404, "no consumer '1'"),
        ("/api/pause?consumer=x", 404, "no consumer 'x'"),
        ("/api/pause?consumer=-1", 404, "no consumer '-1'"),
        (f"/api/pause?consumer={'9' * 5000}", 404, "no consumer '99999999999999999999'"),
    ],
)
async def test_what_cannot_be_done_is_said(path: str, status: int, words: str) -> None:
    """And nothing is done."""
    async with _running() as (consumer, server):
        answer = await ask(server.address, path, "POST", POST)
        assert (answer.status, words in answer.json["error"]) == (status, True)
        assert {each.pause_text for each in consumer.snapshot().partitions} == {None}


# -- attacks --------------------------------------------------------------------------------


async def test_actions_are_off_unless_asked_for() -> None:
    """Looking is one thing, acting another."""
    async with _running(actions=False) as (consumer, server):
        for action in ("pause", "flush", "stop", "partitions/s/0/pause"):
            assert (await ask(server.address, f"/api/{action}", "POST", POST)).status == 403
        assert consumer.state == "running"
        assert not (await ask(server.address, "/api/view")).json["actions"]


async def test_view_is_left_out() -> None:
    """Probes and metrics alone."""
    async with _running(view=False) as (_, server):
        found = [(await ask(server.address, path)).status for path in ("/", "/api/snapshot")]
        assert found == [404, 404]
        assert (await ask(server.address, "/metrics")).status == 200


@pytest.mark.parametrize(
    "host, status",
    [
        ("evil.example", 421),
        ("evil.example:9464", 421),
        ("127.0.0.1.evil.example", 421),
        ("evil.example@127.0.0.1", 421),
        ("", 421),
        ("localhost:1", 200),
        ("127.0.0.1:9", 200),
        ("[::1]:9464", 200),
        ("Page.Internal:80", 200),
    ],
)
async def test_name_that_leads_here_is_no_way_in(host: str, status: int) -> None:
    """DNS rebinding: a browser asks for its site's name, which is none of ours."""
    async with _running(hosts=["page.internal"]) as (_, server):
        assert (await ask(server.address, "/api/view", headers={"host": host})).status == status


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "application/x-www-form-urlencoded"},
        {**POST, "origin": "http://evil.example"},
        {**POST, "origin": "http://localhost:8080"},
        {**POST, "origin": "null"},
        {**POST, "origin": "http://[x"},
    ],
)
async def test_another_site_cannot_act(headers: dict[str, str]) -> None:
    """A form sends no header of its own; a script says its origin."""
    async with _running() as (consumer, server):
        assert (await ask(server.address, "/api/stop", "POST", headers)).status == 403
        assert (await ask(server.address, "/api/view", "OPTIONS", headers)).status in {403, 405}
        assert consumer.state == "running"


@pytest.mark.parametrize(
    "site, to, status",
    [
        ("cross-site", "empty", 403),
        ("cross-site", "image", 403),
        ("cross-site", "document", 200),
        ("same-origin", "empty", 200),
        ("none", "document", 200),
    ],
)
async def test_another_site_cannot_look(site: str, to: str, status: int) -> None:
    """Its page makes no work here; a link of it leads here all the same."""
    async with _running() as (_, server):
        headers = {"sec-fetch-site": site, "sec-fetch-dest": to}
        for path in ("/", "/api/snapshot", "/healthz"):
            assert (await ask(server.address, path, headers=headers)).status == status


async def test_own_page_acts() -> None:
    """Its origin is the host that was asked."""
    async with _running() as (_, server):
        headers = {**POST, "host": "127.0.0.1:1", "origin": "http://127.0.0.1:1"}
        assert (await ask(server.address, "/api/pause", "POST", headers)).status == 200


async def test_token_is_asked_for_by_all_but_probes() -> None:
    """As a bearer token or a cookie; a browser gets the door."""
    async with _running(token=TOKEN) as (_, server):
        at = server.address
        for path in ("/metrics", "/api/view", "/api/snapshot", "/api/events"):
            assert (await ask(at, path)).status == 401
            wrong = {"authorization": f"Bearer {TOKEN}x", "cookie": f"consumer_sdk={TOKEN}"}
            assert (await ask(at, path, headers=wrong)).status == 401
        assert (await ask(at, "/api/stop", "POST", POST)).status == 401
        door = await ask(at, "/")
        assert (door.status, b"door.js" in door.body, b"page.js" in door.body) == (401, True, False)
        assert [(await ask(at, path)).status for path in ("/healthz", "/readyz")] == [200, 200]
        bearer = {"authorization": f"bearer {TOKEN}"}
        assert (await ask(at, "/metrics", headers=bearer)).status == 200


async def test_login_gives_a_strict_cookie() -> None:
    """Which is not the token, and no script can read."""
    async with _running(token=TOKEN) as (_, server):
        wrong = await ask(server.address, "/login", "POST", POST, b"guess")
        assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)
        cookie = (await ask(server.address, "/login", "POST", POST, TOKEN.encode())).headers[
            "set-cookie"
        ]
        assert TOKEN not in cookie
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        shown = {"cookie": cookie.partition(";")[0]}
        assert b"page.js" in (await ask(server.address, "/", headers=shown)).body
        assert (await ask(server.address, "/api/stop", "POST", shown)).status == 403


async def test_servers_of_one_host_have_cookies_of_their_own() -> None:
    """A browser sends each the cookies of all; their token may be the same."""
    options: dict[str, Any] = {"address": "127.0.0.1:0", "token": TOKEN}
    async with admin.serve(_consumer(), **options) as a, admin.serve(_consumer(), **options) as b:
        jar: dict[str, str] = {}
        for server in (a, b):
            login = await ask(server.address, "/login", "POST", POST, TOKEN.encode())
            name, _, value = login.headers["set-cookie"].partition(";")[0].partition("=")
            jar[name] = value
        cookie = "; ".join(f"{name}={value}" for name, value in jar.items())
        found = [
            await ask(each.address, "/api/view", headers={"cookie": cookie}) for each in (a, b)
        ]
        assert [answer.status for answer in found] == [200, 200]


@pytest.mark.parametrize("other", ['a={"x":1}', "a=b c", "a=[1,2]", "a", "=", ";", 'a="'])
async def test_cookies_of_others_lock_nobody_out(other: str) -> None:
    """Whatever they look like, before ours or behind it."""
    async with _running(token=TOKEN) as (_, server):
        login = await ask(server.address, "/login", "POST", POST, TOKEN.encode())
        ours = login.headers["set-cookie"].partition(";")[0]
        for cookie in (f"{other}; {ours}", f"{ours};{other}"):
            found = await ask(server.address, "/api/view", headers={"cookie": cookie})
            assert found.status == 200
        name = ours.partition("=")[0]
        wrong = {"cookie": f"{other}; {name}=x"}
        assert (await ask(server.address, "/api/view", headers=wrong)).status == 401


async def test_probes_are_asked_by_any_name() -> None:
    """Who probes it has a name for it; what they tell is no secret."""
    async with _running() as (_, server):
        headers = {"host": "consumer.svc:9464"}
        found = [
            (await ask(server.address, path, headers=headers)).status
            for path in ("/healthz", "/readyz", "/metrics")
        ]
        assert found == [200, 200, 421]


async def test_long_and_broken_requests_are_ended() -> None:
    """They cost an answer, and no memory."""
    async with _running() as (consumer, server):
        body = b'{"reason": "' + b"x" * 100_000 + b'"}'
        await ask(server.address, "/api/pause", "POST", POST, body)
        assert {each.pause_text for each in consumer.snapshot().partitions} == {"by hand"}
        reader, writer = await connect(server.address)
        writer.write(b"no HTTP\r\n\r\n")
        assert b" 400 " in await reader.read()
        writer.close()


async def test_request_that_is_cut_does_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Its sender has gone; it is no error of ours."""
    async with _running(max_viewers=1) as (consumer, server):
        for path in ("/login", "/api/pause"):
            reader, writer = await connect(server.address)
            writer.write(request(path, "POST", {**POST, "content-length": "9"}, b"{"))
            writer.write_eof()
            await reader.read()
            writer.close()
        while _open(server):
            await asyncio.sleep(0.01)
        assert (await ask(server.address, "/healthz")).status == 200
        assert {each.pause_text for each in consumer.snapshot().partitions} == {None}
    assert "Exception in ASGI application" not in caplog.text


async def test_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, and the connection is closed."""
    monkeypatch.setattr("consumer_sdk.admin.application.BODY_TIME", 0.05)
    async with _running() as (consumer, server):
        for path in ("/api/pause", "/login"):
            reader, writer = await connect(server.address)
            writer.write(request(path, "POST", {**POST, "content-length": "9"}, b"{"))
            assert b" 408 " in await reader.read()
            writer.close()
        assert {each.pause_text for each in consumer.snapshot().partitions} == {None}


async def test_broken_requests_are_logged_a_few_times(caplog: pytest.LogCaptureFixture) -> None:
    """However many there are; later lines are not limited."""
    async with _running() as (_, server):
        for _ in range(10):
            reader, writer = await connect(server.address)
            writer.write(b"no HTTP\r\n\r\n")
            await reader.read()
            writer.close()
    assert caplog.text.count("Invalid HTTP request received.") == 3
    assert logging.getLogger("consumer_sdk.admin.connections").filters == []


# -- connections ----------------------------------------------------------------------------


async def _end(reader: asyncio.StreamReader) -> None:
    """Waits until the server has ended it."""
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""


async def test_connections_that_ask_nothing_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go; probes are answered, and viewers stay."""
    monkeypatch.setattr("consumer_sdk.admin.server.CONNECTIONS", 8)
    async with _running() as (_, server), watching(server.address) as frames:
        await anext(frames)
        idle = [await connect(server.address) for _ in range(40)]
        assert (await ask(server.address, "/healthz")).status == 200
        for reader, _ in idle[:30]:
            await _end(reader)
        await anext(frames)
        for _, writer in idle:
            writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GE",
        request("/healthz", "GET", {}) + b"GE",
        request("/login", "POST", {**POST, "content-length": "9"}),
    ],
)
async def test_connection_that_does_not_ask_is_ended(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing, a part of a request, or one more."""
    async with _running() as (_, server), watching(server.address) as frames:
        await anext(frames)  # it has asked, however slowly
        monkeypatch.setattr("consumer_sdk.admin.connections.ASKING", 0.05)
        reader, writer = await connect(server.address)
        writer.write(sent)
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        await anext(frames)
        writer.close()


def _open(server: AdminServer) -> int:
    assert server._server is not None
    return len(server._server.server_state.connections)


MUCH = 400
"""Answers of 18 KB that no socket's buffers hold."""


@pytest.mark.parametrize("last", [{}, {"connection": "close"}])
async def test_reader_that_takes_nothing_is_ended(
    last: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While more is to be written, and after the server has closed its side."""
    monkeypatch.setattr("consumer_sdk.admin.connections.TAKING", 0.05)
    async with _running() as (_, server):
        _, writer = await connect(server.address)
        writer.write(request("/page.js", "GET", {}) * MUCH + request("/", "GET", last))
        while not _open(server):
            await asyncio.sleep(0.01)
        while _open(server):
            await asyncio.sleep(0.01)
        writer.close()


async def test_closed_connection_waits_for_its_reader_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its answer was written, and the other side reads nothing."""
    monkeypatch.setattr("consumer_sdk.admin.connections.TAKING", 0.05)
    monkeypatch.setattr("consumer_sdk.admin.application.Admin._all_snapshots", _long)
    async with _running() as (_, server):
        _, writer = await connect(server.address)
        writer.write(request("/api/snapshot", "GET", {"connection": "close"}))
        while not _open(server):
            await asyncio.sleep(0.01)
        while _open(server):
            await asyncio.sleep(0.01)
        writer.close()


def _long(_admin: object) -> bytes:
    return b" " * 20_000_000


async def test_server_leaves_no_connection_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also none that takes nothing."""
    monkeypatch.setattr("consumer_sdk.admin.application.Admin._all_snapshots", _long)
    monkeypatch.setattr("consumer_sdk.admin.connections.LEAVING", 0.05)
    async with _running() as (_, server):
        _, writer = await connect(server.address)
        writer.write(request("/api/snapshot", "GET", {}))
        while not _open(server):
            await asyncio.sleep(0.01)
        await server.aclose()
        assert _open(server) == 0
        writer.close()


# -- addresses ------------------------------------------------------------------------------


async def test_unix_socket_is_this_users_alone(tmp_path: Path) -> None:
    """Mode 0600; it is asked by any name, and goes with the server."""
    path = tmp_path / "admin.sock"
    async with _running(address=f"unix:{path}") as (_, server):
        assert server.address == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (await ask(server.address, "/api/view", headers={"host": "x"})).status == 200
        assert os.listdir(tmp_path) == ["admin.sock"]  # noqa: PTH208 - a coroutine may not use iterdir
    assert not path.exists()


async def test_socket_without_a_path_is_where_top_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory of this user's alone, by the group's name."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    async with _running(address=None) as (_, server):
        (found,) = living_sockets(default_directory())
        assert server.address == f"unix:{found}"
        assert found.name.startswith("g-")
        assert stat.S_IMODE(found.parent.stat().st_mode) == 0o700
    assert living_sockets(default_directory()) == []


async def test_consumers_of_one_group_have_sockets_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in one process."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    async with admin.serve(_consumer()) as one, admin.serve(_consumer()) as two:
        found = {f"unix:{path}" for path in living_sockets(default_directory())}
        assert found == {one.address, two.address}


async def test_directory_that_others_may_use_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may have made it before us."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "consumer_sdk").mkdir(mode=0o755)
    with pytest.raises(ConfigurationError, match="not a directory of this user alone"):
        async with _running(address=None):
            pass


def _leave_dead(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


async def test_socket_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    """Nobody listens on it."""
    _leave_dead(tmp_path / "a.sock")
    async with _running(address=f"unix:{tmp_path}/a.sock") as (_, server):
        assert (await ask(server.address, "/healthz")).status == 200
    _leave_dead(tmp_path / "b.sock")
    assert living_sockets(tmp_path) == []
    assert not (tmp_path / "b.sock").exists()


async def test_socket_of_the_living_is_left_alone(tmp_path: Path) -> None:
    """And goes on answering."""
    address = f"unix:{tmp_path}/a.sock"
    async with _running(address=address):
        with pytest.raises(ConfigurationError, match="another process listens on unix:"):
            async with admin.serve(_consumer(), address=address):
                pass
        assert (await ask(address, "/healthz")).status == 200


async def test_port_in_use_is_said() -> None:
    """With what to do; the consumer was not started."""
    async with _running() as (_, server):
        taken = server.address.removeprefix("http://").rstrip("/")
        with pytest.raises(
            ConfigurationError, match=r"another process listens there.*0 for a free"
        ):
            async with admin.serve(_consumer(), address=taken):
                pass


@pytest.mark.parametrize(
    "options, words",
    [
        ({"address": "0.0.0.0:0"}, "is reached from other machines: give a token"),
        ({"address": "[::]:0"}, "is reached from other machines: give a token"),
        ({"address": "127.0.0.1"}, "give unix:/path"),
        ({"address": "127.0.0.1:http"}, "give a port after the colon"),
        ({"address": "127.0.0.1:65536"}, "give a port after the colon"),
        ({"address": "example.org:80"}, "give unix:/path"),
        ({"address": "unix:relative.sock"}, "from / on"),
        ({"address": f"unix:/{'x' * 120}"}, "107 bytes at most"),
        ({"address": "127.0.0.1:0", "token": "short"}, "16 characters at least"),
        ({"address": "127.0.0.1:0", "token": b"x" * 20}, "token=…): give a text"),
        ({"address": "127.0.0.1:0", "token": " " * 16}, "ASCII characters without spaces"),
        ({"address": "127.0.0.1:0", "token": "påssword-of-enough"}, "ASCII characters without"),
        (
            {"address": "127.0.0.1:0", "hosts": "page.internal"},
            "hosts='page.internal'): give names",
        ),
        (
            {"address": "unix:/a.sock", "hosts": "page.internal"},
            "hosts='page.internal'): give names",
        ),
        ({"address": "127.0.0.1:0", "hosts": ["http://page"]}, "without a scheme and a port"),
        ({"address": "127.0.0.1:0", "hosts": [7]}, "hosts=7): give names"),
        ({"address": "127.0.0.1:0", "max_viewers": 0}, "max_viewers=0"),
        ({"address": "127.0.0.1:0", "max_viewers": 151}, "max_viewers=151: give 150 at most"),
        ({"address": "127.0.0.1:0", "actions": "yes"}, "actions='yes'"),
    ],
)
def test_what_cannot_be_served_is_refused(options: dict[str, Any], words: str) -> None:
    """Before anything listens."""
    with pytest.raises(ConfigurationError) as refused:
        admin.serve(_consumer(), **options)
    assert words in str(refused.value)


async def test_place_where_nobody_can_listen_is_refused(tmp_path: Path) -> None:
    """A file that is no socket, a directory that is not there."""
    (tmp_path / "file").write_text("mine")
    for name, words in (("file", "a file that is no socket"), ("no/a.sock", "no such directory")):
        with pytest.raises(ConfigurationError, match=words):
            async with admin.serve(_consumer(), address=f"unix:{tmp_path}/{name}"):
                pass
    assert (tmp_path / "file").read_text() == "mine"


def test_server_of_nothing_is_refused() -> None:
    """It needs a consumer."""
    with pytest.raises(ConfigurationError, match="needs a consumer"):
        admin.serve()
    with pytest.raises(ConfigurationError, match="give a Consumer"):
        admin.app("kafka://…")  # type: ignore[arg-type]  # the error under test


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "prometheus_client"])
def test_missing_extra_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of its packages is missing."""
    parts = ("consumer_sdk.admin.", "consumer_sdk.telemetry.prometheus", f"{package}.")
    for name in [each for each in sys.modules if each.startswith(parts)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(admin, "serve")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"consumer-sdk\[(admin|prometheus)\]"):
        _ = admin.serve


async def test_signals_are_not_the_servers() -> None:
    """They are the consumer's, which drains first."""
    before = signal.getsignal(signal.SIGTERM)
    async with _running():
        assert signal.getsignal(signal.SIGTERM) is before
