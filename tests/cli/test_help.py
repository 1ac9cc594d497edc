"""The help of each command stands in ``docs/commands.md``; ``python -m tests.cli.test_help`` writes it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer_sdk.cli.arguments import make_parser
from consumer_sdk.cli.parsing import Parser
from tests.cli.groups.test_checkpoints import run

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
BEGIN = "## Help\n\nThe program writes what follows: `python -m tests.cli.test_help`.\n"


def commands(parser: Parser) -> Iterator[Parser]:
    """All that can be called."""
    inner = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not inner:
        yield parser
    for action in inner:
        for choice in action.choices.values():
            yield from commands(choice)


def page() -> str:
    """What the page should be."""
    text = PAGE.read_text(encoding="utf-8")
    head, begin, _ = text.partition(BEGIN)
    assert begin, PAGE
    helps = [
        f"### {each.prog.removeprefix('consumer-sdk ')}\n\n```\n{each.format_help().rstrip()}\n```\n"
        for each in commands(make_parser())
    ]
    return "\n".join([f"{head}{BEGIN}", *helps])


def test_page_has_the_help_of_each_command() -> None:
    """And it is the help of today."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_each_command_says_how_it_ends_and_what_its_arguments_are() -> None:
    """Exit status, and a word on each option."""
    for each in commands(make_parser()):
        assert "\nexit status:\n  0 " in each.format_help()
        options = [action for action in each._actions if action.option_strings]
        assert all(action.help for action in options), each.prog


def test_each_command_has_json() -> None:
    """Scripts need not know which ones have."""
    lacking = [each.prog for each in commands(make_parser()) if "--json" not in each.format_usage()]
    assert lacking == []


@pytest.mark.parametrize(
    "command, words",
    [
        (["dead-leters"], "unknown topic 'dead-leters': did you mean dead-letters?"),
        (["dead-letters", "reply", "u"], "unknown command 'reply': did you mean replay?"),
        (["dead-letters", "list", "u", "--lmit=3"], "unknown option --lmit: did you mean --limit?"),
        (["dead-letters", "list", "u", "v"], "'v' is one argument too many"),
        (["dead-letters", "list", "u", "--limit", "0"], "give a whole number, 1 at least"),
        (["dead-letters", "replay", "u", "--rate", "nan"], "give a number above 0"),
        (["lag", "u", "--fail-above", "-1"], "give a number, 0 at least"),
        (["checkpoints", "list", "u"], "the following arguments are required: GROUP"),
    ],
)
def test_wrong_command_line_names_what_was_meant(command: list[str], words: str) -> None:
    """Status 2, the usage, and one line."""
    done = run(*command[1:], topic=command[0])
    line = done.stderr.splitlines()[-1]
    assert (done.returncode, done.stdout) == (2, "")
    assert words in line


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
