"""Completion for bash, zsh and fish, made of the parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from consumer_sdk.cli.parsing import Parser

__all__ = ["SHELLS", "Shell", "completion"]

Shell: TypeAlias = Literal["bash", "zsh", "fish"]
SHELLS: tuple[Shell, ...] = ("bash", "zsh", "fish")


@dataclass(frozen=True, slots=True)
class _Command:
    """What may follow some words.

    Attributes:
        path: the words: ``("checkpoints", "list")``.
        words: name → what it does, of commands.
        options: name → what it does.
        values: option → its choices.
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
    if shell == "fish":
        return "".join(f"{line}\n" for line in _fish(commands))
    head = ["autoload -U +X bashcompinit && bashcompinit"] if shell == "zsh" else []
    return "".join(f"{line}\n" for line in [*head, *_bash(commands)])


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
            if action.choices:
                values[name] = list(map(str, action.choices))
    yield _Command(path, words, options, values)


def _bash(commands: list[_Command]) -> Iterator[str]:
    paths = "|".join(f'"{" ".join(("", *each.path))}"' for each in commands if each.path)
    yield "_consumer_sdk() {"
    yield '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" at="" word words=""'
    yield '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    yield f'    case "$at $word" in {paths}) at="$at $word" ;; esac'
    yield "  done"
    yield '  case "$at $prev" in'
    for each in commands:
        for option, values in each.values.items():
            yield f'    "{" ".join(("", *each.path, option))}") words="{" ".join(values)}" ;;'
    yield "  esac"
    yield '  if [ -z "$words" ]; then case "$at" in'
    for each in commands:
        words = " ".join([*each.words, *each.options])
        yield f'    "{" ".join(("", *each.path)) if each.path else ""}") words="{words}" ;;'
    yield "  esac; fi"
    yield '  COMPREPLY=($(compgen -W "$words" -- "$cur"))'
    yield "}"
    yield "complete -o default -F _consumer_sdk consumer-sdk"


def _fish(commands: list[_Command]) -> Iterator[str]:
    for each in commands:
        seen = [f"__fish_seen_subcommand_from {word}" for word in each.path]
        inner = f"not __fish_seen_subcommand_from {' '.join(each.words)}" if each.words else ""
        when = "; and ".join(filter(None, [*seen, inner]))
        begin = f"complete -c consumer-sdk -n '{when}'" if when else "complete -c consumer-sdk"
        for word, text in each.words.items():
            yield f"{begin} -f -a {word} -d '{_quoted(text)}'"
        for option, text in each.options.items():
            name = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            values = each.values.get(option)
            choices = f" -x -a '{' '.join(values)}'" if values else ""
            yield f"{begin} {name}{choices} -d '{_quoted(text)}'"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
