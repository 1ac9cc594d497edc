"""Completion for bash, zsh and fish, made of the parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from consumer_sdk.cli.parsing import Parser

__all__ = ["SHELLS", "completion"]

Shell: TypeAlias = Literal["bash", "zsh", "fish"]
SHELLS: tuple[Shell, ...] = ("bash", "zsh", "fish")


@dataclass(frozen=True, slots=True)
class _Command:
    """What may follow some words.

    Attributes:
        path: the words: ``("checkpoints", "list")``.
        words: name → what it does, of commands.
        options: name → what it does.
        values: option that takes a value → its choices; none: anything, perhaps a file.
    """

    path: tuple[str, ...]
    words: dict[str, str]
    options: dict[str, str]
    values: dict[str, list[str]]


def completion(parser: Parser, shell: Shell) -> str:
    """A script to be sourced.

    Args:
        parser: of the whole program.
    """
    commands = list(_commands(parser, ()))
    lines = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands)
    return "".join(f"{line}\n" for line in lines)


def _commands(parser: Parser, path: tuple[str, ...]) -> Iterator[_Command]:
    words, options, values = {}, {}, {}
    for action in parser._actions:  # noqa: SLF001 - argparse shows them to nobody
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - likewise
            words = {each.dest: each.help or "" for each in action._choices_actions}  # noqa: SLF001 - likewise
            for name, inner in action.choices.items():
                yield from _commands(inner, (*path, name))
        elif action.choices and not action.option_strings:
            words = dict.fromkeys(map(str, action.choices), action.help or "")
        for name in action.option_strings:
            options[name] = action.help or ""
            if action.nargs != 0:
                values[name] = list(map(str, action.choices or ()))
    yield _Command(path, words, options, values)


def _at(path: tuple[str, ...]) -> str:
    """What a script knows of the words so far: each command with a space before it."""
    return "".join(f" {word}" for word in path)


def _paths(commands: list[_Command]) -> list[str]:
    return [_at(each.path) for each in commands if each.path]


def _bash(commands: list[_Command]) -> Iterator[str]:
    paths = "|".join(f'"{path}"' for path in _paths(commands))
    yield "_consumer_sdk() {"
    yield '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" at="" word words=""'
    yield '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    yield f'    case "$at $word" in {paths}) at="$at $word" ;; esac'
    yield "  done"
    yield "  COMPREPLY=()"
    yield '  case "$at $prev" in'
    for option, values in _values(commands).items():
        then = f'words="{" ".join(values)}"' if values else "return"
        yield f'    "{option}") {then} ;;'
    yield "  esac"
    yield '  if [ -z "$words" ]; then case "$at" in'
    for each in commands:
        words = " ".join([*each.words, *each.options])
        yield f'    "{_at(each.path)}") words="{words}" ;;'
    yield "  esac; fi"
    yield '  COMPREPLY=($(compgen -W "$words" -- "$cur"))'
    yield "}"
    yield "complete -o default -F _consumer_sdk consumer-sdk"


def _values(commands: list[_Command]) -> dict[str, list[str]]:
    """An option behind its command → its choices."""
    return {
        f"{_at(each.path)} {option}": values
        for each in commands
        for option, values in each.values.items()
    }


def _zsh(commands: list[_Command]) -> Iterator[str]:
    """Its own functions: what it has for bash's scripts knows neither their arrays nor ``compinit``."""
    paths = "|".join(f'"{path}"' for path in _paths(commands))
    yield "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }"
    yield "_consumer_sdk() {"
    yield '  local at="" word'
    yield "  local -a names options"
    yield '  for word in "${(@)words[2,CURRENT-1]}"; do'
    yield f'    case "$at $word" in ({paths}) at="$at $word" ;; esac'
    yield "  done"
    yield '  case "$at ${words[CURRENT-1]}" in'
    for option, values in _values(commands).items():
        then = f"compadd -- {' '.join(values)}" if values else "_files"
        yield f'    ("{option}") {then}; return ;;'
    yield "  esac"
    yield '  case "$at" in'
    for each in commands:
        yield f'    ("{_at(each.path)}")'
        yield f"      names=({_described(each.words)})"
        yield f"      options=({_described(each.options)}) ;;"
    yield "  esac"
    yield "  (( $#names )) && _describe command names"
    yield "  _describe -o option options"
    yield "  (( $#names )) || _files"
    yield "}"
    yield "compdef _consumer_sdk consumer-sdk"


def _described(words: dict[str, str]) -> str:
    return " ".join(
        "'" + f"{word}:{text}".replace("'", "'\\''") + "'" for word, text in words.items()
    )


def _fish(commands: list[_Command]) -> Iterator[str]:
    yield "function __consumer_sdk_at"
    yield "  set -l at ''"
    yield "  for word in (commandline -opc)[2..-1]"
    paths = " ".join(f"'{path}'" for path in _paths(commands))
    yield f'    contains -- "$at $word" {paths}; and set at "$at $word"'
    yield "  end"
    yield '  test "$at" = "$argv[1]"'
    yield "end"
    for each in commands:
        begin = f"complete -c consumer-sdk -n '__consumer_sdk_at \"{_at(each.path)}\"'"
        for word, text in each.words.items():
            yield f"{begin} -f -a {word} -d '{_quoted(text)}'"
        for option, text in each.options.items():
            name = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            yield f"{begin} {name}{_taken(each.values.get(option))} -d '{_quoted(text)}'"


def _taken(values: list[str] | None) -> str:
    if values is None:
        return ""
    return f" -x -a '{' '.join(values)}'" if values else " -r"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
