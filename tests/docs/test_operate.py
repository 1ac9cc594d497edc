"""docs/operate.md: its programs and commands print what it shows."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable

import pytest

from consumer_sdk.cli import main
from consumer_sdk.testing.servers import KafkaServer
from tests.docs.pages import Page

PAGE = Page("operate")
SHOWN = re.findall(
    r"^\$ (consumer-sdk [^\n]*)\n(.*?)(?=^```|^\$ )", PAGE.text, re.MULTILINE | re.DOTALL
)
"""The commands of the page, in its order, with what it shows below each."""
(STUCK, SETTLED, LAG, LETTERS, WOULD_REPLAY, REPLAY, WOULD_RESET, RESET, AFTER) = SHOWN


@pytest.mark.parametrize(
    "command", ["python unreadable.py", "python unreadable.py dead_letter", "python locked.py"]
)
def test_program_prints_what_the_page_shows(command: str) -> None:
    """But for the folder of the store."""
    printed = re.sub(r"/\S+/state\.db", "/var/lib/state.db", PAGE.printed(command))
    assert printed == PAGE.shown(command)


@pytest.fixture
def run(
    kafka_server: KafkaServer, capsys: pytest.CaptureFixture[str]
) -> Callable[[tuple[str, str]], None]:
    """Runs a command of the page until it prints what the page shows."""

    def until_as_shown(shown: tuple[str, str]) -> None:
        words = shlex.split(shown[0].replace("127.0.0.1:9092", kafka_server.bootstrap_servers))
        ends = time.monotonic() + 100
        while True:
            status = main(words[1:])
            printed = capsys.readouterr().out
            if (status, _timeless(printed)) == (0, _timeless(shown[1])):
                return
            assert time.monotonic() < ends, printed

    return until_as_shown


@pytest.mark.kafka
def test_commands_print_what_the_page_shows(
    kafka_server: KafkaServer, run: Callable[[tuple[str, str]], None]
) -> None:
    """A stuck record, a dead letter, the fixed service, a replay and a reset."""
    servers = kafka_server.bootstrap_servers
    assert PAGE.printed("python order.py", KAFKA=servers) == PAGE.shown("python order.py")
    _one_is_stuck(servers, run)
    shown = PAGE.shown("python charge.py fixed")
    with PAGE.running("python charge.py fixed", KAFKA=servers) as service:
        assert service.lines(1) == shown
        for each in (SETTLED, WOULD_REPLAY, REPLAY):
            run(each)
        assert service.until_interrupted("charged order 5\n^C\n") == "charged order 5\n^C\n"
    for each in (WOULD_RESET, RESET, AFTER):
        run(each)


def _one_is_stuck(servers: str, run: Callable[[tuple[str, str]], None]) -> None:
    shown = PAGE.shown("python charge.py")
    with PAGE.running("python charge.py", KAFKA=servers) as service:
        assert service.lines(8) == shown
        for each in (STUCK, LAG, LETTERS):
            run(each)
        assert service.until_interrupted("^C\n") == "^C\n"


def _timeless(text: str) -> str:
    """Without ages and times."""
    return re.sub(r"[\d.]+ (s|min|h)\b|20\d\d-[-\d:TZ]+", "…", text)
