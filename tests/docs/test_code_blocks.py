"""No page has a block of code that no test runs.

A block is a file that the page includes, or commands of a console. `test_snippets.py` has each file named by a test.
README.md and what a program writes (the help of the commands) have tests of their own.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from benchmarks.__main__ import BENCHMARKS
from consumer_sdk.adapters import open_url
from consumer_sdk.cli.arguments import make_parser
from tests.cli.test_help import BEGIN
from tests.docs.pages import DOCS, Page

ROOT = DOCS.parent
PAGES = sorted(DOCS.glob("*.md"))
BLOCK = re.compile(r"^( *)```(?P<kind>.*)\n(?P<text>(?:.*\n)*?)\1```$", re.MULTILINE)
INCLUDED = re.compile(r"\{literalinclude\} (?P<path>\S+)")
RUN = (DOCS / "snippets", ROOT / "examples", ROOT / "tests")
"""Folders whose programs the tests run."""
RUN_ELSEWHERE = {
    "pip": "test_install.py looks for the extras",
    "pkill": "test_tutorial.py kills the service",
    "sqlite3": "test_store_files.py runs the query",
}
"""Programs that are not ours → what is tested of them."""
OUR_SCHEMES = {"kafka", "kinesis", "pulsar"}


def blocks(path: Path) -> Iterator[tuple[str, str]]:
    """Kind and text of each block that a person has written."""
    text = path.read_text(encoding="utf-8").partition(BEGIN)[0]
    for found in BLOCK.finditer(text):
        yield found["kind"], found["text"]


def commands(path: Path) -> Iterator[str]:
    """What a reader is to type, without the comment behind it."""
    for kind, text in blocks(path):
        if kind == "console":
            for line in re.findall(r"^ *\$ (.*)", text, re.MULTILINE):
                yield re.sub(r"\s+#.*", "", line)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_each_block_is_a_file_or_commands(path: Path) -> None:
    """A program in the page itself would be run by nobody."""
    for kind, _ in blocks(path):
        if included := INCLUDED.fullmatch(kind):
            file = (path.parent / included["path"]).resolve()
            assert any(file.is_relative_to(folder) for folder in RUN)
            assert file.is_file(), kind
        else:
            assert kind in {"console", "{toctree}"}, f"{path.name}: ```{kind}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_each_command_works(path: Path) -> None:
    """A program is there, and one of ours takes these arguments; `test_snippets.py` has programs run."""
    for command in commands(path):
        first, *rest = shlex.split(command.partition(" > ")[0])
        if first in {"python", ".venv/bin/python"} and rest[0] == "-m":
            _check_module(rest[1:])
        elif first == "python":
            assert (Page(path.stem).snippets / rest[0]).is_file(), command
        elif first == "consumer-sdk":
            _check_arguments(rest)
        elif first == "make":
            assert re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        else:
            assert first in RUN_ELSEWHERE, f"no test runs this: {command}"


def _check_module(words: list[str]) -> None:
    name, *rest = words
    if name == "benchmarks":
        assert {each for each in rest if not each.startswith("-")} <= BENCHMARKS.keys()
    else:
        assert name in {"venv", "consumer_sdk.testing.servers"}


def _check_arguments(words: list[str]) -> None:
    arguments = make_parser().parse_args(words)
    assert isinstance(arguments, argparse.Namespace)
    for word in words:
        if urlsplit(word).scheme in OUR_SCHEMES and "?" in word:
            open_url(word)  # raises for an option that cannot work
