"""What all commands' arguments share: the parser, its messages, and options of one meaning."""

from __future__ import annotations

import argparse
import asyncio
import difflib
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

__all__ = [
    "Commands",
    "Parser",
    "add_json",
    "add_partitions",
    "add_yes",
    "amount",
    "count",
    "in_loop",
    "rate",
    "text",
]

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 - its only name
T = TypeVar("T")

EXITS = {
    0: "done",
    1: "it failed; the last line on stderr says what, where, and what to do",
    2: "an argument or a URL cannot be used",
    130: "interrupted",
}
"""Exit status → what it means, of every command."""


class Parser(argparse.ArgumentParser):
    """A parser that names what was probably meant, and tells the exit status in its help.

    Attributes:
        exits: status → what it means.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.allow_abbrev = False
        self.formatter_class = lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=100)
        self.register("action", "parsers", _Inner)
        self.set_defaults(is_quiet=lambda _arguments: True)
        self.set_defaults(parser=self)  # of the command that is called, the last one that is set
        self.exits = dict(EXITS)

    def format_help(self) -> str:
        """The help, with the exit statuses at its end."""
        lines = [f"  {status:<4} {meaning}" for status, meaning in sorted(self.exits.items())]
        return "\n".join([super().format_help().rstrip(), "", "exit status:", *lines, ""])

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses the arguments. For an unknown one, the command that was called names the nearest known one."""
        arguments, unknown = self.parse_known_args(args, namespace)
        if unknown:
            parser: Parser = arguments.parser
            parser.unknown(unknown)
        return arguments

    def unknown(self, given: Sequence[str]) -> NoReturn:
        """Ends the program for arguments that this command does not have."""
        name = given[0].partition("=")[0]
        if not name.startswith("-"):
            self.error(f"{name!r} is one argument too many")
        self.error(f"unknown option {name}{_meant(name, self._option_string_actions)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = action.choices
        if choices is None or value in choices:
            return
        names = list(map(str, choices))
        what = f"unknown {(action.metavar or 'value')!s}".lower()
        raise argparse.ArgumentError(None, f"{what} {value!r}{_meant(str(value), names)}")


if TYPE_CHECKING:
    _SubParsers = argparse._SubParsersAction[Parser]  # noqa: SLF001 - its only name
else:
    _SubParsers = argparse._SubParsersAction  # noqa: SLF001 - it is generic for type checkers alone


class _Inner(_SubParsers):
    """The commands of a topic. The help of each begins with what the list of commands says of it."""

    def add_parser(self, name: str, **options: Any) -> Parser:
        what = options.get("help") or name
        options.setdefault("description", f"{what[0].upper()}{what[1:]}.")
        return super().add_parser(name, **options)


def _meant(name: str, known: Iterable[str]) -> str:
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f": did you mean {near[0]}?" if near else f": there are {', '.join(known)}"


def in_loop(
    command: Callable[[argparse.Namespace], Coroutine[Any, Any, T]],
) -> Callable[[argparse.Namespace], T]:
    """Makes a plain function of a command that is a coroutine; it runs in an event loop of its own."""
    return lambda arguments: asyncio.run(command(arguments))


def text(argument: str) -> str:
    """An argument that is valid Unicode: bytes that are not would fail in some store."""
    try:
        argument.encode()
    except UnicodeEncodeError as error:
        raise argparse.ArgumentTypeError(f"{argument!r} is not valid text") from error
    return argument


def count(argument: str) -> int:
    """A whole number from 1 up."""
    if not (argument.isascii() and argument.isdecimal() and 0 < int(argument) < 2**63):
        raise argparse.ArgumentTypeError(f"{argument!r}: give a whole number, 1 at least")
    return int(argument)


def rate(argument: str) -> float:
    """A number above 0."""
    if not 0 < (number := _number(argument)) < float("inf"):
        raise argparse.ArgumentTypeError(f"{argument!r}: give a number above 0")
    return number


def amount(argument: str) -> float:
    """A number from 0 up."""
    if not 0 <= (number := _number(argument)) < float("inf"):
        raise argparse.ArgumentTypeError(f"{argument!r}: give a number, 0 at least")
    return number


def _number(argument: str) -> float:
    try:
        return float(argument)
    except ValueError:
        return float("nan")


def add_json(
    parser: argparse.ArgumentParser, what: str = "write each line as a JSON object"
) -> None:
    """Adds ``--json``, which every command has."""
    parser.add_argument("--json", action="store_true", help=what)


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Adds ``--yes``."""
    parser.add_argument(
        "--yes", action="store_true", help="do it; without --yes, only show what would be done"
    )


def add_partitions(parser: argparse.ArgumentParser) -> None:
    """Adds ``--partition``: some of the partitions of the URL's streams."""
    parser.add_argument(
        "--partition",
        action="append",
        type=text,
        metavar="ID",
        help="only this partition, such as 3 or shardId-000000000002; repeat it for several partitions",
    )
