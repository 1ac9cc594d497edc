"""Pulsar's REST API as a hostile, broken or distant server answers it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from typing import Any

import pytest

from consumer_sdk.adapters.pulsar.client import admin as module
from consumer_sdk.adapters.pulsar.client.admin import Admin, Chunk, Entry
from consumer_sdk.errors import AdapterError, ConfigurationError, TransientAdapterError
from consumer_sdk.testing.servers.ports import HOST, free_ports

TOPIC = "persistent://public/default/t"


class Site:
    """A web server that answers every question alike.

    Attributes:
        tokens: the Authorization header of each question, or None.
        puts: the bodies that came with PUT.
        answer: status, headers and body.
    """

    def __init__(self) -> None:
        self.tokens: list[str | None] = []
        self.puts: list[bytes] = []
        self.answer: tuple[int, dict[str, str], bytes] = (200, {}, b"{}")
        self.before_body: Callable[[], Any] = lambda: None
        self.port = 0

    def ask(self, handler: BaseHTTPRequestHandler) -> None:
        """Answers one question."""
        self.tokens.append(handler.headers.get("Authorization"))
        status, headers, body = self.answer
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        self.before_body()
        handler.wfile.write(body)


@contextmanager
def site(tls: SSLContext | None = None) -> Iterator[Site]:
    """One that runs."""
    found = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.ask(self)

        def do_PUT(self) -> None:
            found.puts.append(self.rfile.read(int(self.headers["Content-Length"])))
            found.ask(self)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        found.port = server.server_port
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


@asynccontextmanager
async def asking(url: str, token: str | None = None, **options: Any) -> AsyncIterator[Admin]:
    """A client, closed."""
    admin = Admin(url, token, **options)
    try:
        yield admin
    finally:
        admin.close()


def redirect_to(port: int, host: str) -> tuple[int, dict[str, str], bytes]:
    """Of a broker that does not have the topic."""
    return 307, {"Location": f"http://{host}:{port}/admin/v2/persistent/p/d/t/stats"}, b""


async def test_token_is_not_shown_to_another_host() -> None:
    """Whoever answers for the broker could have it sent anywhere."""
    with site() as broker, site() as thief:
        broker.answer = redirect_to(thief.port, "localhost")
        async with asking(f"http://{HOST}:{broker.port}", "jwt") as admin:
            with pytest.raises(
                AdapterError, match=r"localhost:\d+, which does not get to see"
            ) as e:
                await admin.has_topic(TOPIC)
        assert not isinstance(e.value, TransientAdapterError)
        assert (broker.tokens, thief.tokens) == (["Bearer jwt"], [])


@pytest.mark.parametrize("how", ["trusted", "named", "same host", "no token"])
async def test_broker_redirects_to_the_one_that_has_the_topic(how: str) -> None:
    """Brokers of the service URL and hosts of the admin URL are known; without a token all are."""
    with site() as broker, site() as owner:
        broker.answer = redirect_to(owner.port, HOST if how == "same host" else "localhost")
        owner.answer = (200, {}, b'{"partitions": 1}')
        url = f"http://{HOST}:{broker.port}" + (
            f",localhost:{owner.port}" if how == "named" else ""
        )
        token = None if how == "no token" else "jwt"
        trusted = ["localhost"] if how == "trusted" else []
        async with asking(url, token, trusted=trusted) as admin:
            assert await admin.has_topic(TOPIC)
        assert owner.tokens == [token and "Bearer jwt"]


async def test_what_is_written_goes_to_the_broker_that_has_the_topic() -> None:
    """With its body, and the token, which no other host gets to see."""
    with site() as broker, site() as owner:
        broker.answer = redirect_to(owner.port, HOST)
        async with asking(f"http://{HOST}:{broker.port}", "jwt") as admin:
            assert await admin.set_properties(TOPIC, "s", {"a": "b"})
            broker.answer = redirect_to(owner.port, "localhost")
            with pytest.raises(AdapterError, match="which does not get to see"):
                await admin.set_properties(TOPIC, "s", {"a": "c"})
        assert (owner.tokens, owner.puts) == (["Bearer jwt"], [b'{"a": "b"}'])


@pytest.mark.parametrize("status", [404, 409])
async def test_subscription_that_is_there_or_whose_topic_is_not_is_no_error(status: int) -> None:
    """Nothing was made."""
    with site() as broker:
        broker.answer = (status, {}, b"{}")
        async with asking(f"http://{HOST}:{broker.port}") as admin:
            assert not await admin.make_subscription(TOPIC, "s", {})


async def test_redirects_without_end_are_given_up() -> None:
    """As an error that may pass."""
    with site() as broker:
        broker.answer = redirect_to(broker.port, HOST)
        async with asking(f"http://{HOST}:{broker.port}", "jwt") as admin:
            with pytest.raises(TransientAdapterError, match="307"):
                await admin.has_topic(TOPIC)


@pytest.mark.parametrize("place", ["http://[h/x", "http://h:port/x", "http://h\u2100/x"])
async def test_redirect_to_what_is_no_url_is_an_error_that_may_pass(place: str) -> None:
    """Another broker, or this one later, may know better."""
    with site() as broker:
        broker.answer = (307, {"Location": place}, b"")
        async with asking(f"http://{HOST}:{broker.port}") as admin:
            with pytest.raises(TransientAdapterError, match=f"{HOST}:{broker.port}/admin"):
                await admin.has_topic(TOPIC)


async def test_next_host_is_asked_where_one_cannot_be_reached() -> None:
    """And from then on first."""
    (nobody,) = free_ports(1)
    with site() as broker:
        broker.answer = (200, {}, b'{"partitions": 1}')
        async with asking(f"http://{HOST}:{nobody},{HOST}:{broker.port}") as admin:
            assert await admin.has_topic(TOPIC)
            assert await admin.has_topic(TOPIC)


BODIES = [
    b"",
    b"<html>",
    b"\xff\xfe",
    b"7",
    b"null",
    b'"x"',
    b"[1]",
    b'{"partitions": []',
    b"[" * 100_000,
    b'{"ledgerId": "x"}',
    b'{"subscriptions": [], "cursors": 7, "partitions": 7, "lastConfirmedEntry": 7}',
    b'{"subscriptions": {"s": 7}, "cursors": {"s": {}}, "lastConfirmedEntry": "1:2"}',
]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
async def test_answer_of_another_form_is_a_typed_error(body: bytes) -> None:
    """A proxy's login page, half an answer, another version's."""
    with site() as broker:
        broker.answer = (200, {"Date": "yesterday"}, body)
        async with asking(f"http://{HOST}:{broker.port}") as admin:
            questions = [
                admin.has_topic(TOPIC),
                admin.subscriptions(TOPIC),
                admin.properties(TOPIC, "s"),
                admin.active_consumer(TOPIC, "s"),
                admin.topics("public/default"),
                admin.after_last(TOPIC),
                admin.internals(TOPIC),
                admin.of_all(TOPIC),
                admin.cursor(TOPIC, "s"),
                admin.messages_in(TOPIC),
                admin.time(),
            ]
            for found in await asyncio.gather(*questions, return_exceptions=True):
                assert isinstance(found, AdapterError) or not isinstance(found, BaseException), (
                    found
                )


TRANSACTION = {"X-Pulsar-txnid-most-bits": "1"}
SECOND_OF_TWO = {
    "X-Pulsar-chunk-id": "1",
    "X-Pulsar-num-chunks-from-msg": "2",
    "X-Pulsar-uuid": "u",
}


@pytest.mark.parametrize(
    "headers,expected",
    [
        ({}, Entry(None, is_seen=True)),
        (TRANSACTION, Entry(None, is_seen=False)),
        ({"X-Pulsar-marker-type": "10"}, Entry(None, is_seen=False)),
        (SECOND_OF_TWO, Entry(Chunk("u", 1, 2), is_seen=True)),
        (SECOND_OF_TWO | TRANSACTION, Entry(Chunk("u", 1, 2), is_seen=False)),
    ],
    ids=["whole", "of a transaction", "marker", "chunk", "chunk of a transaction"],
)
async def test_entry_says_which_chunk_it_is_and_whether_every_reader_gets_it(
    headers: dict[str, str], expected: Entry
) -> None:
    """A chunk of a transaction may be aborted: a range must not count on it as the end of a message."""
    with site() as broker:
        broker.answer = (200, headers, b"payload")
        async with asking(f"http://{HOST}:{broker.port}") as admin:
            assert await admin.entry(TOPIC, 7, 3) == expected


@pytest.mark.parametrize("name", ["X-Pulsar-chunk-id", "X-Pulsar-num-chunks-from-msg"])
async def test_entry_with_a_broken_header_is_a_typed_error(name: str) -> None:
    """The message names the header."""
    with site() as broker:
        broker.answer = (200, SECOND_OF_TWO | {name: "one"}, b"")
        async with asking(f"http://{HOST}:{broker.port}") as admin:
            with pytest.raises(TransientAdapterError, match=name):
                await admin.entry(TOPIC, 7, 3)


async def test_answer_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, and the whole never."""
    monkeypatch.setattr(module, "LONGEST", 0.1)
    enough = threading.Event()
    with site() as broker:
        broker.before_body = enough.wait
        async with asking(f"http://{HOST}:{broker.port}") as admin:
            try:
                with pytest.raises(TransientAdapterError, match="no whole answer within"):
                    await admin.has_topic(TOPIC)
            finally:
                enough.set()


@pytest.mark.parametrize("url", ["h:8080", "ftp://h", "http:/h", ""])
def test_what_is_no_url_of_http_is_refused(url: str) -> None:
    """Before anything is asked."""
    with pytest.raises(ConfigurationError, match="give http://host:port"):
        Admin(url)
