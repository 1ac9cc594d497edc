"""``top``: asks a consumer's admin server once a second, draws its answer, and does what keys say."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from consumer_sdk.cli.parsing import Commands, add_json, text
from consumer_sdk.cli.top.client import AdminClient, NoAnswerError, find
from consumer_sdk.cli.top.looking import Look, Wish, pressed
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.named_secrets import secret

if TYPE_CHECKING:
    from rich.live import Live

__all__ = ["add_top", "top"]

INTERVAL = 1.0
ARROWS = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down", b"\x1b": "q"}


def add_top(topics: Commands) -> None:
    """Adds ``top`` and its options to the command line."""
    parser = topics.add_parser(
        "top",
        help="watch a running consumer, pause and resume its partitions",
        description="Watch a running consumer through its admin server (`run --admin`, or admin.serve(consumer)).",
    )
    parser.epilog = (
        "Keys: the arrows choose a partition, p pauses or resumes it, e explains its position, s changes the\n"
        "sorting, tab shows the next consumer of the process, q quits."
    )
    parser.add_argument(
        "where",
        metavar="SOCKET|URL",
        nargs="?",
        type=text,
        help="the admin server: /path, unix:/path or http://host:port; default: the socket of this user's only "
        "running consumer",
    )
    parser.add_argument(
        "--token",
        type=text,
        metavar="TOKEN",
        help="where the server's token is: env:NAME or file:/path",
    )
    parser.add_argument("--once", action="store_true", help="show the consumer once, and exit")
    add_json(parser)
    parser.set_defaults(command=top)


def top(arguments: Namespace) -> None:
    """Shows a consumer until ``q``, or once."""
    token = None if arguments.token is None else secret("--token", arguments.token)
    client = AdminClient(find(arguments.where), token)
    if arguments.json:
        _write_json(client, is_once=arguments.once)
    elif arguments.once:
        _write_once(client)
    else:
        _Screen(client).run()


def _write_json(client: AdminClient, *, is_once: bool) -> None:
    """A line for each consumer; again each second, unless once."""
    while True:
        for snapshot in client.snapshots():
            sys.stdout.write(json.dumps(snapshot) + "\n")
        sys.stdout.flush()
        if is_once:
            return
        time.sleep(INTERVAL)


def _write_once(client: AdminClient) -> None:
    from consumer_sdk.cli.top.display import Console, draw

    console = Console(file=sys.stdout, highlight=False)
    view = client.view()
    for number in range(len(view["consumers"])):
        console.print(draw(view, Look(number), width=console.width))


class _Screen:
    """A terminal's whole screen."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client
        self._look = Look()
        self._note = ""
        self._answered = time.monotonic()

    def run(self) -> None:
        """Until ``q``.

        Raises:
            ConfigurationError: there is no terminal.
        """
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise ConfigurationError("this is no terminal: give --once, with --json or without")
        from rich.live import Live

        from consumer_sdk.cli.top.display import Console

        self._view = self._client.view()
        console = Console(highlight=False)
        with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
            self._draw(live)
            while self._step(live):
                self._draw(live)

    def _step(self, live: Live) -> bool:
        """Waits for a key, or for the next second; False: it is over."""
        until = time.monotonic() + INTERVAL
        while (left := until - time.monotonic()) > 0:
            if not select.select([sys.stdin], [], [], left)[0]:
                break
            for key in _read_keys():
                if not self._pressed(key):
                    return False
            self._draw(live)
        self._refresh()
        return True

    def _pressed(self, key: str) -> bool:
        found = pressed(key, self._view, self._look)
        if isinstance(found, Look):
            self._look = found
        elif found is not None:
            self._do(found)
        return found is not None

    def _do(self, wish: Wish) -> None:
        try:
            self._client.set_paused(wish.consumer, wish.stream, wish.id, is_paused=wish.is_paused)
        except (NoAnswerError, ConfigurationError) as error:
            self._note = str(error)
            return
        self._note = f"{wish.stream}/{wish.id} is {'paused' if wish.is_paused else 'resumed'}"

    def _refresh(self) -> None:
        """What is shown stays there while nobody answers."""
        try:
            self._view = self._client.view()
        except NoAnswerError:
            ago = time.monotonic() - self._answered
            self._note = f"{self._client.where} has not answered for {ago:.0f} s; this is old"
            return
        if "has not answered" in self._note:
            self._note = ""
        self._answered = time.monotonic()
        consumers: list[Any] = self._view["consumers"]
        if self._look.consumer >= len(consumers):
            self._look = Look()

    def _draw(self, live: Live) -> None:
        from consumer_sdk.cli.top.display import draw

        width, height = live.console.size
        drawn = draw(self._view, self._look, height=height, width=width, note=self._note)
        live.update(drawn, refresh=True)


@contextmanager
def _keys() -> Iterator[None]:
    """Keys come at once, and are not shown; the terminal is as before in the end."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _read_keys() -> list[str]:
    """What was typed: an arrow, or each letter; the end of the input is ``q``."""
    typed = os.read(sys.stdin.fileno(), 64)
    if not typed:
        return ["q"]
    if typed in ARROWS:
        return [ARROWS[typed]]
    return list(typed.decode("ascii", "ignore")) if not typed.startswith(b"\x1b") else []
