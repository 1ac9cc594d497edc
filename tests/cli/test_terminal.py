"""What commands show on a terminal: the words of a pipe, as a table with colours; and bars."""

from __future__ import annotations

import asyncio
import io
import os
import re
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from consumer_sdk.cli import terminal
from consumer_sdk.cli.terminal import Bar, Rows, Watched
from consumer_sdk.dead_letters.urls import dead_letters_from_url
from consumer_sdk.records import Checkpoint
from consumer_sdk.stores import LocalStore
from tests.cli.groups.test_checkpoints import COMMAND, ROOT, status_of
from tests.cli.worlds import letter_of, status
from tests.stores.exchange_world import GROUP, SECOND, entry, opened, own

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LINES = ["orders/0\tFAIL\tno [bold]markup[/] :smile:", "orders/12\tok\tall is settled, up to 9"]


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        """It says so."""
        return True


@pytest.fixture(autouse=True)
def _kind_of_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def written(screen: io.StringIO, *lines: str, is_json: bool = False) -> str:
    """What the rows are there."""
    with redirect_stdout(screen), Rows(is_json=is_json) as rows:
        for line in lines:
            rows.say({"line": line}, line)
    return screen.getvalue()


def text_of(screen: str) -> list[str]:
    """Its lines without colours, and without the spaces at their ends."""
    return [line.rstrip() for line in CODES.sub("", screen).splitlines()]


def test_rows_are_lines_in_a_pipe_and_columns_on_a_terminal() -> None:
    """The words are the same, markup is none, and what fails is seen."""
    assert written(io.StringIO(), *LINES).splitlines() == LINES
    shown = written(Screen(), *LINES)
    assert text_of(shown) == [
        "orders/0   FAIL  no [bold]markup[/] :smile:",
        "orders/12  ok    all is settled, up to 9",
    ]
    assert "\x1b[1;31mFAIL" in shown
    assert "\x1b[32mok" in shown


def test_text_between_rows_stands_where_it_was_said() -> None:
    """It makes no column wide."""
    text = "nothing was written; --yes does it"
    assert text_of(written(Screen(), LINES[0], text, LINES[1])) == [
        "orders/0  FAIL  no [bold]markup[/] :smile:",
        text,
        "orders/12  ok  all is settled, up to 9",
    ]


@pytest.mark.parametrize("width", [1, 8, 20, 40, 60, 80, 120])
@pytest.mark.parametrize(
    "fields",
    [
        ["orders/0", "word " * 30 + "end", "last"],
        ["-".join(["topic"] * 12) + "/0", "41 of 4200", "17 records", "1.5 s"],
        ["shardId-000000000001", "49590338271490256608559692538361571095921575989136588898", "dim"],
        ["orders/0"] * 9,
        ["日本語" * 9, "漢字" * 20, "かな"],
        ["e\u0301" * 30, "\u200d\U0001f469", "\u0301", ""],
    ],
)
def test_nothing_is_cut_off_however_narrow_the_terminal(
    monkeypatch: pytest.MonkeyPatch, width: int, fields: list[str]
) -> None:
    """The terminal wraps a row that is too long, so that whatever is copied from it is whole."""
    monkeypatch.setenv("COLUMNS", str(width))
    (shown,) = text_of(written(Screen(), "\t".join(fields)))
    assert "".join(shown.split()) == "".join("".join(fields).split())
    assert all(field.strip() in shown for field in fields)


def test_long_field_does_not_keep_the_short_ones_from_their_columns() -> None:
    """It reaches into the next one."""
    long = "x" * 120
    assert text_of(written(Screen(), f"{long}\t-\tend", "a\tok\tend")) == [
        f"{long}  -   end",
        f"a{' ' * 25}ok  end",
    ]


def test_columns_are_as_wide_as_they_look() -> None:
    """A Japanese character takes two places of a letter, an accent of its own takes none."""
    assert text_of(written(Screen(), "日本\tok", "abcde\tok", "e\u0301\tok")) == [
        "日本   ok",
        "abcde  ok",
        "e\u0301      ok",
    ]


def test_text_is_not_folded_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is copied is what was said."""
    monkeypatch.setenv("COLUMNS", "20")
    text = f"consumer.adapter = {'x' * 60}  two spaces"
    assert text_of(written(Screen(), text)) == [text]


@pytest.mark.parametrize("variable, value", [("TERM", "dumb"), ("rich", None)])
def test_terminal_that_cannot_be_drawn_on_gets_the_lines(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str | None
) -> None:
    """A dumb one, or one without rich."""
    if value is not None:
        monkeypatch.setenv(variable, value)
    else:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    assert written(Screen(), *LINES).splitlines() == LINES


def test_no_color_leaves_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """As https://no-color.org has it."""
    monkeypatch.setenv("NO_COLOR", "1")
    shown = written(Screen(), *LINES)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", shown)
    assert text_of(shown)[1].startswith("orders/12  ok    all")


def test_what_a_terminal_would_obey_is_shown_instead() -> None:
    """An error text of a dead letter is anybody's."""
    shown = written(Screen(), "orders/0\t\x1b]0;title\x07\x9b2J \udc80")
    assert text_of(shown) == ["orders/0  \\x1b]0;title\\x07\\x9b2J \\udc80"]


def test_row_is_one_line_in_a_pipe_whatever_names_hold() -> None:
    """Half of a surrogate pair is none that a pipe could take."""
    assert (
        written(io.StringIO(), "a\nb\t\x1b[31mred\rx\t\udc80")
        == "a\\x0ab\t\\x1b[31mred\\x0dx\t\\udc80\n"
    )


@pytest.mark.parametrize("terminal_kind", ["xterm", "dumb"])
def test_what_the_encoding_lacks_is_shown_instead(
    monkeypatch: pytest.MonkeyPatch, terminal_kind: str
) -> None:
    """Names and errors may be of any language; the locale is C in many containers."""
    monkeypatch.setenv("TERM", terminal_kind)
    data = io.BytesIO()
    screen = io.TextIOWrapper(data, encoding="ascii", write_through=True)
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    with redirect_stdout(screen), Rows(is_json=False) as rows:
        rows.say({}, "日/0\tok")
        rows.say({}, "1 → 2")
    assert text_of(data.getvalue().decode().replace("\t", "  ")) == ["\\u65e5/0  ok", "1 \\u2192 2"]


def test_json_on_a_terminal_is_json() -> None:
    """An object a line."""
    assert written(Screen(), "a\tb", is_json=True) == '{"line": "a\\tb"}\n'


# -- bars ----------------------------------------------------------------------------------------


async def test_bar_tells_what_is_done_after_a_while_and_is_erased(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It begins where the work is by then; a pass that follows knows how many there are."""
    monkeypatch.setattr(terminal, "PATIENCE", 0.0)
    screen = Screen()
    with redirect_stderr(screen), Bar("nothing", Namespace(json=False)) as bar:
        watched = Watched([1, 2, 3], bar, ("comparing", "writing"))
        assert list(watched) == [1, 2, 3]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [each for each in watched if each] == [1, 2, 3]
    shown = CODES.sub("", screen.getvalue())
    assert "comparing" in shown
    assert re.search(r"writing\s.* 3/3 ", shown)
    assert screen.getvalue().rstrip("\n").endswith("\x1b[2K")


@pytest.mark.parametrize(
    "screen, is_json", [(io.StringIO(), False), (Screen(), True)], ids=["pipe", "json"]
)
async def test_no_bar_in_a_pipe_and_none_with_json(
    monkeypatch: pytest.MonkeyPatch, screen: io.StringIO, *, is_json: bool
) -> None:
    """Nothing is written at all."""
    monkeypatch.setattr(terminal, "PATIENCE", 0.0)
    with redirect_stderr(screen), Bar("exporting", Namespace(json=is_json)) as bar:
        await asyncio.sleep(0)
        bar.begin("more", 3)
        bar.advance()
        await asyncio.sleep(0)
    assert screen.getvalue() == ""


async def test_work_of_less_than_a_second_has_no_bar() -> None:
    """It would flicker."""
    screen = Screen()
    with redirect_stderr(screen), Bar("exporting", Namespace(json=False)) as bar:
        bar.advance()
    assert screen.getvalue() == ""


@pytest.fixture
async def state(tmp_path: Path) -> str:
    """The URL of a store with two checkpoints and a pinned start."""
    async with opened(LocalStore(tmp_path / "state.db")) as store:
        await own(store, entry(Checkpoint(41, 42)), entry(Checkpoint(7, 8), SECOND))
        await store.pin(GROUP, "orders", "time:1")
    return f"sqlite://{tmp_path}/state.db"


async def test_export_has_a_bar_where_its_lines_go_elsewhere(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines are the same; the import of them has one too."""
    monkeypatch.setattr(terminal, "PATIENCE", 0.0)
    out, err = io.StringIO(), Screen()
    with redirect_stdout(out), redirect_stderr(err):
        assert await asyncio.to_thread(status_of, ["checkpoints", "export", state, GROUP]) == 0
    assert "exporting" in err.getvalue()
    assert err.getvalue().endswith("exported 3\n")
    assert len(out.getvalue().splitlines()) == 5
    (tmp_path / "lines").write_text(out.getvalue())
    other, err = f"sqlite://{tmp_path}/other.db", Screen()
    command = ["checkpoints", "import", other, f"{tmp_path}/lines"]
    with redirect_stdout(out), redirect_stderr(err):
        assert await asyncio.to_thread(status_of, command) == 0
    assert "writing" in err.getvalue()
    assert out.getvalue().endswith("wrote 3, kept 0 that were there\n")


async def test_purge_has_a_bar_of_the_letters_that_were_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are counted first."""
    monkeypatch.setattr(terminal, "PATIENCE", 0.0)
    url = f"sqlite://{tmp_path}/letters.db"
    letters = dead_letters_from_url(url)
    await letters.open()
    await letters.send([letter_of(("orders", "0", at), b"k", b"v") for at in range(5)])
    await letters.aclose()
    out, err = io.StringIO(), Screen()
    with redirect_stdout(out), redirect_stderr(err):
        assert await status("dead-letters", "purge", url, "--limit", "3", "--yes") == 0
    assert re.search(r"purging\s.* 3/3 ", CODES.sub("", err.getvalue()))
    assert out.getvalue().endswith("purged 3\n")


async def test_nothing_that_letters_and_errors_say_is_obeyed_by_a_terminal(tmp_path: Path) -> None:
    """What is counted, shown, and refused: names are those of anybody who writes letters."""
    url, odd = f"sqlite://{tmp_path}/letters.db", "or\x1b[31m\x9bders\n"
    letters = dead_letters_from_url(url)
    await letters.open()
    await letters.send([letter_of((odd, "0", 1), b"k", b"v")])
    await letters.aclose()
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        assert await status("dead-letters", "purge", url) == 0
        assert await status("dead-letters", "show", url, "1") == 0
        assert await status("dead-letters", "list", url) == 0
        assert await status("dead-letters", "replay", f"{url}{odd}", "--to", f"kafka://{odd}") != 0
    assert out.getvalue().startswith("would purge 1 of or\\x1b[31m\\x9bders\\x0a\n")
    assert not re.search(r"[\x1b\x9b]", out.getvalue() + err.getvalue())
    assert len(err.getvalue().splitlines()) == 1


def test_process_on_a_terminal_shows_the_words_of_a_pipe(state: str) -> None:
    """A real one: `checkpoints list` as a person sees it."""
    command = [*COMMAND, "checkpoints", "list", state, GROUP]
    piped = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    shown = CODES.sub("", "".join(on_terminal(command)))
    assert shown.split() == piped.split()
    assert "\t" not in shown


def on_terminal(command: list[str]) -> Iterator[str]:
    """What a process writes to a pseudo-terminal."""
    ours, theirs = os.openpty()
    with (
        closing(os.fdopen(ours, "rb", buffering=0)) as screen,
        subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT),
    ):
        os.close(theirs)
        try:
            while data := screen.read(4096):
                yield data.decode()
        except OSError:  # EIO: nobody has the other end any more
            return
