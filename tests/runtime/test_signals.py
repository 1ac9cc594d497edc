"""Signals end every consumer of a process, and nobody else's handler is lost."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from consumer_sdk import Consumer, Message
from consumer_sdk.runtime.signals import is_pythons_own
from consumer_sdk.testing import MemoryAdapter, MemoryBroker
from tests.runtime.event_loops import run_on

PATIENCE = 300
"""Seconds after which a program hangs."""


def _consumer() -> Consumer:
    broker = MemoryBroker()
    broker.create_stream("s")
    broker.append("s", b"x")
    return Consumer(MemoryAdapter(broker, "s", group="g"))


async def _kill(_: Message) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def _see(_: Message) -> None:
    """Does nothing."""


@pytest.mark.parametrize(
    "case, number, heard",
    [
        ("two", signal.SIGTERM, {"first", "second"}),
        pytest.param("two", signal.SIGINT, {"first", "second"}, marks=pytest.mark.campaign),
        ("signal", signal.SIGTERM, {"server", "consumer"}),
        ("loop", signal.SIGTERM, {"server", "consumer"}),
        ("busy", signal.SIGTERM, set()),
    ],
)
def test_process_is_sent_a_signal_everybody_who_listens_hears_it(
    case: str, number: int, heard: set[str]
) -> None:
    """All consumers end, and a server that listened before: by `signal.signal`, or by the loop."""
    command = [sys.executable, "-m", "tests.runtime.signalled_program", case]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(number)
        output, _ = program.communicate(timeout=PATIENCE)
        assert program.returncode == 0
        assert heard == {word for word in output.split() if word != "ready"}


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_last_consumer_ends_handlers_are_as_they_were(kind: str) -> None:
    """One that ends before leaves the other one listening; then all is put back."""
    calls: list[int] = []

    def foreign(number: int, _: Any) -> None:
        calls.append(number)

    async def main() -> None:
        signal.signal(signal.SIGTERM, foreign)
        first, second = _consumer(), _consumer()
        running = asyncio.create_task(first.run(_see))
        stays = asyncio.create_task(second.run(_see))
        await asyncio.sleep(0.01)
        first.stop()
        await running
        assert signal.getsignal(signal.SIGTERM) is not foreign
        os.kill(os.getpid(), signal.SIGTERM)
        await stays
        assert signal.getsignal(signal.SIGTERM) is foreign

    found = signal.getsignal(signal.SIGTERM)
    try:
        run_on(kind, main)
    finally:
        signal.signal(signal.SIGTERM, found)
    assert calls == [signal.SIGTERM]


async def test_handler_set_while_consumers_run_stays() -> None:
    """What somebody installs meanwhile is theirs."""
    found, consumer = signal.getsignal(signal.SIGTERM), _consumer()

    async def handle(_: Message) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        consumer.stop()

    try:
        await consumer.run(handle)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, found)


async def test_signals_are_not_asked_for_nothing_is_installed() -> None:
    """``handle_signals=False`` leaves them alone."""
    found, consumer, seen = signal.getsignal(signal.SIGTERM), _consumer(), []

    async def handle(_: Message) -> None:
        seen.append(signal.getsignal(signal.SIGTERM))
        consumer.stop()

    await consumer.run(handle, handle_signals=False)
    assert seen == [found]


async def test_two_consumers_in_a_loop_one_signal_ends_both() -> None:
    """The one whose handler is sent it, and the other."""
    await asyncio.gather(_consumer().run(_see), _consumer().run(_kill))


async def test_handlers_of_python_itself_are_not_called_beside_ours() -> None:
    """Theirs would end the program by a KeyboardInterrupt, in the middle of the drain."""
    found, consumer = signal.getsignal(signal.SIGINT), _consumer()

    async def handle(_: Message) -> None:
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        await consumer.run(handle)
        assert consumer.stats().settled == 1
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, found)


async def test_handlers_of_python_itself_are_known() -> None:
    """The one of each program, and that of ``asyncio.run``."""
    runner: Any = asyncio.Runner()
    task = asyncio.current_task()
    assert is_pythons_own(signal.default_int_handler)
    assert is_pythons_own(functools.partial(runner._on_sigint, main_task=task))
    assert not is_pythons_own(_kill)
    assert not is_pythons_own(functools.partial(_kill))
