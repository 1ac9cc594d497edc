"""What ``top`` draws, and what a key does: without a terminal; and the command against a real server."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from consumer_sdk import ConfigurationError, MissingExtraError, admin
from consumer_sdk.cli.top.client import AdminClient, NoAnswerError
from consumer_sdk.cli.top.display import draw
from consumer_sdk.cli.top.looking import SORTS, Look, Wish, pressed, rows
from tests.admin.busy import STUCK, busy
from tests.cli.groups.test_checkpoints import run


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is there answers, however long the machine stands still."""
    monkeypatch.setattr("consumer_sdk.cli.top.client.PATIENCE", 300.0)


PINNED = {
    "position": "171",
    "state": "running",
    "age": 19.6,
    "attempts": 0,
    "key": "customer-7",
    "running": 19.5,
}
ROW = {
    "stream": "orders",
    "id": "0",
    "state": "reading",
    "is_by_hand": False,
    "pause_text": None,
    "position": "170",
    "pinned": None,
    "in_flight": 5,
    "in_flight_bytes": 100,
    "holes": 0,
    "retrying": 0,
    "blocked": 0,
    "lanes": 5,
    "trees": 0,
    "lag": 12,
    "lag_seconds": 1.0,
    "settled": 171,
    "failed": 0,
    "dead_lettered": 0,
}
TOTALS = {
    "in_flight": 5,
    "in_flight_limit": 10_000,
    "handlers": 2,
    "handlers_limit": 200,
    "retrying": 0,
    "lag": 24,
}


def _view(count: int = 2, consumers: int = 1, **changes: Any) -> dict[str, Any]:
    """What a server answers; partition 1 is pinned."""
    found = [{**ROW, "id": str(n)} for n in range(count)]
    if count > 1:
        found[1] = {**ROW, "id": "1", "pinned": PINNED, "holes": 4, **changes}
    one = {
        "name": "billing · memory",
        "streams": ["orders"],
        "state": "running",
        "reasons": [],
        "totals": TOTALS,
        "held": count,
        "partitions": found,
        "points": [[1.0, 0.0, 0, 0, 0, 0, 0, 0], [2.0, 1201.5, 47.0, 13.0, 0.1, 0.2, 24, 5]],
        "events": [
            {"time": 0.0, "kind": "assigned", "count": 2, "partitions": ["orders/0"], "text": "two"}
        ],
    }
    return {"consumers": [one] * consumers, "actions": True}


def _text(view: Mapping[str, Any], look: Look | None = None, **options: Any) -> str:
    width = options.get("width", 110)
    console = Console(file=StringIO(), width=width, highlight=False)
    console.print(draw(view, look or Look(), **{"width": width, **options}))
    written: str = console.file.getvalue()  # type: ignore[attr-defined]  # it is a StringIO
    return written


# -- drawing --------------------------------------------------------------------------------


def test_drawing_shows_totals_partitions_and_what_pins() -> None:
    """And the last events."""
    text = " ".join(_text(_view()).split())
    for words in (
        "billing · memory: orders running 2 partitions",
        "settled 1,201.5/s failed 47/s dead 13/s in flight 5 of 10,000",
        "handlers 2 of 200",
        " █",
        "orders/0 170 reading",
        "171 running 19.5 s 19.6 s old",
        "assigned x 2 two",
    ):
        assert words in text
    assert "p pause/resume" not in text


def test_consumer_without_partitions_or_past_is_drawn_without_rates() -> None:
    """Nothing is known of rates."""
    view = _view(0)
    view["consumers"][0] |= {"points": [], "reasons": ["the consumer is opening"]}
    text = _text(view, height=24)
    assert "No partition is assigned." in text
    assert "settled -/s" in text
    assert "the consumer is opening" in text


@pytest.mark.parametrize("width", [70, 110])
@pytest.mark.parametrize("is_explained", [True, False])
@pytest.mark.parametrize("height", [22, 24, 50])
@pytest.mark.parametrize("count", [1, 5, 300])
def test_drawing_fits_the_terminal(
    count: int, height: int, *, is_explained: bool, width: int
) -> None:
    """With the chosen row, the keys and what is said; no line is too long."""
    look = Look(chosen=count - 1, is_explained=is_explained)
    text = _text(_view(count), look, height=height, width=width, note="it is old")
    lines = text.splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert f"orders/{count - 1} " in text
    assert "q leave" in lines[-1]
    assert "it is old" in text


def test_explained_row_says_all() -> None:
    """Key, reason of the pause, counts."""
    text = _text(
        _view(pause_text="too hot", state="paused: operator"), Look(0, 1, "partition", True)
    )
    for words in ("orders/1 is paused: operator", "too hot", "key customer-7", "settled 171"):
        assert words in text


def test_texts_of_records_are_no_markup() -> None:
    """A key may look like a style, or like a terminal's own."""
    pinned = {**PINNED, "key": "[red]x[/red]\x1b[2J"}
    text = _text(_view(pinned=pinned), Look(0, 1, "partition", True))
    assert "[red]x[/red]" in text
    assert "\x1b" not in text


# -- keys -----------------------------------------------------------------------------------


def test_keys_choose_sort_and_explain() -> None:
    """The first and the last row are the ends."""
    view, look = _view(3, consumers=2), Look()
    assert pressed("up", view, look) == Look(chosen=0)
    assert pressed("j", view, look) == Look(chosen=1)
    assert pressed("down", view, Look(chosen=9)) == Look(chosen=2)
    assert pressed("e", view, look) == Look(is_explained=True)
    assert pressed("\t", view, Look(1)) == Look(0)
    assert pressed("x", view, look) == look
    assert pressed("q", view, look) is None
    sorts = [look]
    for _ in SORTS:
        again = pressed("s", view, sorts[-1])
        assert isinstance(again, Look)
        sorts.append(again)
    assert [each.sort for each in sorts] == [*SORTS, "partition"]
    assert [row["id"] for row in rows(view, Look(sort="pinned"))] == ["1", "0", "2"]


def test_p_pauses_and_resumes_the_chosen_row() -> None:
    """Of the order that is shown; nothing where there is no row."""
    view = _view()
    assert pressed("p", view, Look(sort="pinned")) == Wish(0, "orders", "1", is_paused=True)
    by_hand = _view(is_by_hand=True, state="elsewhere")
    assert pressed("p", by_hand, Look(chosen=1)) == Wish(0, "orders", "1", is_paused=False)
    assert pressed("p", _view(0), Look()) == Look()


# -- the command ----------------------------------------------------------------------------


async def test_once_writes_what_a_server_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its path, by its URL, and found without either; as text and as JSON."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    async with busy() as consumer, admin.serve(consumer) as one:
        path = one.address.removeprefix("unix:")
        async with admin.serve(consumer, address="127.0.0.1:0") as two:
            for where in ([], [path], [one.address], [two.address]):
                done = await asyncio.to_thread(run, "--once", *where, topic="top")
                assert (done.returncode, done.stderr) == (0, "")
                assert f"orders/{STUCK}" in done.stdout
            done = await asyncio.to_thread(run, "--once", "--json", topic="top")
            (line,) = done.stdout.splitlines()
            assert json.loads(line)["partitions"][0]["partition"] == ["orders", "0"]


async def test_several_sockets_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which one is meant has to be said; none says how to have one."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    none = await asyncio.to_thread(run, "--once", topic="top")
    assert (none.returncode, "no consumer has its socket in" in none.stderr) == (2, True)
    async with (
        busy() as consumer,
        admin.serve(consumer),
        admin.serve(consumer, address=f"unix:{tmp_path}/consumer_sdk/a.sock"),
    ):
        several = await asyncio.to_thread(run, "--once", topic="top")
        assert (several.returncode, "several consumers run" in several.stderr) == (2, True)


async def test_token_is_named_and_client_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is in no command line; without actions the server's refusal is told."""
    token = "a-token-of-enough-characters"  # noqa: S105 - of this test
    monkeypatch.setenv("TOP_TOKEN", token)
    options: dict[str, Any] = {"address": "127.0.0.1:0", "token": token, "actions": True}
    async with busy() as consumer, admin.serve(consumer, **options) as server:
        at = server.address
        refused = await asyncio.to_thread(run, at, "--once", topic="top")
        assert (refused.returncode, "give --token env:NAME" in refused.stderr) == (2, True)
        done = await asyncio.to_thread(run, at, "--once", "--token", "env:TOP_TOKEN", topic="top")
        assert done.returncode == 0
        client = AdminClient(at, token)
        await asyncio.to_thread(client.set_paused, 0, "orders", "3", is_paused=True)
        (row,) = [p for p in consumer.snapshot().partitions if p.partition.id == "3"]
        assert row.pause_text == "in consumer-sdk top"


@pytest.mark.parametrize(
    "where, status, words",
    [
        ("kafka://host", 2, "is no admin server: give"),
        ("http://", 2, "is no admin server: give"),
        ("http://host:99999", 2, "is no admin server: give"),
        ("/nowhere/at/all.sock", 1, "nobody answers at /nowhere/at/all.sock"),
    ],
)
def test_place_where_no_server_is_is_told(where: str, status: int, words: str) -> None:
    """With what can be given."""
    done = run(where, "--once", topic="top")
    assert (done.returncode, words in done.stderr) == (status, True), done.stderr


@contextmanager
def _answering(body: bytes) -> Iterator[str]:
    """Where a server is that answers once."""

    def answer() -> None:
        connection, _ = other.accept()
        with connection:
            connection.recv(9999)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    with socket.create_server(("127.0.0.1", 0)) as other:
        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{other.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    "body",
    [b"hi", b"[]", b'{"ok": 1}', b'{"consumers": 1}', b'{"consumers": [1]}', b"[" * 20_000],
)
def test_what_is_no_admin_server_is_told(body: bytes) -> None:
    """Something else listens there."""
    for ask in (AdminClient.view, AdminClient.snapshots):
        with (
            _answering(body) as where,
            pytest.raises(NoAnswerError, match=r"is no admin server \(status 200\)"),
        ):
            ask(AdminClient(where))


def test_view_of_nothing_is_no_view() -> None:
    """There is nothing that `top` could draw."""
    for body in (b'{"consumers": []}', b'{"consumers": [{"name": "x"}]}'):
        with _answering(body) as where, pytest.raises(NoAnswerError, match="no admin server"):
            AdminClient(where).view()


def test_texts_of_a_server_are_not_obeyed() -> None:
    """Its error, and what is noted of an action."""
    with (
        _answering(b'{"error": "\\u001b]0;owned\\u0007 x"}') as where,
        pytest.raises(NoAnswerError) as told,
    ):
        AdminClient(where).view()
    assert str(told.value) == r"\x1b]0;owned\x07 x"
    assert "\x1b" not in _text(_view(), note="s/\x1b]0;owned\x07 is paused")


def test_no_terminal_is_told() -> None:
    """A pipe gets nothing of a screen."""
    done = run("http://127.0.0.1:1", topic="top")
    assert (done.returncode, "give --once" in done.stderr) == (2, True)


async def test_screen_draws_and_ends_on_q(tmp_path: Path) -> None:
    """In a terminal of its own, which is as before in the end."""
    options: dict[str, Any] = {"address": f"unix:{tmp_path}/a", "actions": True}
    async with busy() as consumer, admin.serve(consumer, **options) as server:
        ours, theirs = pty.openpty()
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "consumer_sdk", "top", server.address),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "LINES": "30", "COLUMNS": "110"},
        )
        os.close(theirs)
        await _written(ours, b"orders/5")
        os.write(ours, b"jp")
        await _written(ours, b"is paused")
        assert consumer.snapshot().partitions[1].paused == "operator"
        os.write(ours, b"q")
        await _written(ours, b"\x1b[?1049l")
        assert await program.wait() == 0
        os.close(ours)


async def _written(terminal: int, words: bytes) -> None:
    seen = b""
    while words not in seen:
        seen += await asyncio.to_thread(os.read, terminal, 4096)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON needs none."""
    for name in [each for each in sys.modules if each == "rich" or each.startswith("rich.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "consumer_sdk.cli.top.display")
    monkeypatch.setitem(sys.modules, "rich", None)
    import consumer_sdk.cli.top as package

    monkeypatch.delattr(package, "display")
    with pytest.raises(MissingExtraError, match=r"consumer-sdk\[top\]"):
        import consumer_sdk.cli.top.display  # noqa: F401 - the import is the test


def test_client_takes_what_a_person_writes() -> None:
    """A URL may have a path, where the server is mounted."""
    with pytest.raises(ConfigurationError, match="is no admin server"):
        AdminClient("localhost:9464")
    assert AdminClient("http://localhost:9464/consumer/")._prefix == "/consumer"
