"""The native client's log: through `logging`, limited, and never in anybody's way."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from consumer_sdk.adapters.pulsar.client.native_log import NativeLog

GUARD = 300
LINE = "2026-11-22 20:33:55.268 {} [139681427617472] ClientConnection:{} | {}\n"


class Lines(logging.Handler):
    """Keeps what is logged, and can hold up who logs."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.arrived = threading.Semaphore(0)
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.arrived.release()
        self.may_go_on.wait(GUARD)

    def wait(self, count: int) -> None:
        """Until so many more lines are here."""
        for _ in range(count):
            assert self.arrived.acquire(timeout=GUARD)


@pytest.fixture
def lines() -> Iterator[Lines]:
    """What the logger of the client is told."""
    handler, logger = Lines(), logging.getLogger("pulsar")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    handler.may_go_on.set()
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_line_keeps_its_level_place_and_text(lines: Lines) -> None:
    """As if the client had logged it here; what has another form is an error's text."""
    native = NativeLog()
    with Path(native.path).open("ab", buffering=0) as file:
        file.write(LINE.format("WARN ", 485, "100 % away").encode())
        file.write(LINE.format("DEBUG", 486, "details").encode())
        file.write(b"something else\n")
    lines.wait(2)
    first, second = lines.records
    assert (first.levelno, first.getMessage()) == (logging.WARNING, "100 % away")
    assert (first.filename, first.lineno) == ("ClientConnection", 485)
    assert (second.levelno, second.getMessage()) == (logging.ERROR, "something else")


def test_repeats_are_left_out(lines: Lines) -> None:
    """Each place in the client's source has one line in ten seconds."""
    native = NativeLog()
    with Path(native.path).open("ab", buffering=0) as file:
        file.writelines(LINE.format("ERROR", n, "refused").encode() for n in [1] * 1000 + [2])
    lines.wait(2)
    assert [record.lineno for record in lines.records] == [1, 2]


def test_full_pipe_does_not_hold_the_client_up(lines: Lines) -> None:
    """Who logs may hold a lock that a thread of Python waits for: it must not wait for Python."""
    native = NativeLog()
    lines.may_go_on.clear()
    with Path(native.path).open("ab", buffering=0) as file:
        native.opened()
        file.write(LINE.format("ERROR", 1, "refused").encode())
        lines.wait(1)
        written = [file.write(b"x" * 4096) for _ in range(1000)]
    assert written[-1] is None  # BlockingIOError, for a raw file


SCRIPT = dedent("""
    import logging, os, sys
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    import _pulsar
    from consumer_sdk.adapters.pulsar.client.connection import Connection

    def ask():
        client = Connection(service_url="pulsar://127.0.0.1:1", operation_timeout=1).make_client()
        try:
            client.create_producer("t", _pulsar.ProducerConfiguration())
        except Exception as error:
            logging.info("%s", type(error).__name__)
        return client

    client = ask()
    child = os.fork()
    if not child:
        logging.basicConfig(level=logging.INFO, format="child %(name)s %(message)s", force=True)
        other = ask()
        os._exit(0)
    os.waitpid(child, 0)
    sys.exit(7)
""")


def test_client_logs_nothing_to_the_console_and_does_not_disturb_the_exit() -> None:
    """In a forked child neither, whose lines are its own."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout) == (7, ""), done.stderr
    said = done.stderr.splitlines()
    assert len([line for line in said if line.startswith("pulsar ")]) == 2
    assert len([line for line in said if line.startswith("child pulsar ")]) >= 1
