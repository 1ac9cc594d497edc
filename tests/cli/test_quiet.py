"""Commands keep the loggers of clients and of the SDK silent, and restore them when they end."""

from __future__ import annotations

import logging
import threading
from argparse import Namespace

import pytest

from consumer_sdk import cli

LOGGERS = [logging.getLogger(name) for name in ("aiokafka", "consumer_sdk", "kazoo")]


def levels() -> list[int]:
    """Of the loggers."""
    return [logger.level for logger in LOGGERS]


class Command:
    """A command that has begun, in a thread, until it is told to end."""

    def __init__(self) -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self, _arguments: Namespace) -> None:
        """What the command does."""
        self.has_begun.set()
        assert self.may_end.wait(300)


def test_two_commands_at_once_restore_the_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """(1) One begins; (2) another begins; (3) the first ends; (4) the other ends."""
    before, commands = levels(), {name: Command() for name in ("first", "second")}
    monkeypatch.setattr(
        cli,
        "parse",
        lambda argv: Namespace(is_quiet=lambda _arguments: True, command=commands[argv[0]]),
    )
    threads = {name: threading.Thread(target=cli.main, args=([name],)) for name in commands}
    try:
        for name, thread in threads.items():
            thread.start()
            assert commands[name].has_begun.wait(300)
        commands["first"].may_end.set()
        threads["first"].join()
        assert set(levels()) == {logging.CRITICAL}
    finally:
        for name, thread in threads.items():
            commands[name].may_end.set()
            thread.join()
        after = levels()
        for logger, level in zip(LOGGERS, before, strict=True):
            logger.setLevel(level)
    assert after == before
