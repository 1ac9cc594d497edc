"""Options: each component has a dataclass of them, and all that reads options goes by its fields.

A field is made by `option`, with an `OptionType`: what it takes (unit and bounds, in words and as a
check), and how the text of a URL or of Spark is read. From the fields come the checks of what was given in
Python (`check_fields`), the readers of URLs, Spark's options and configuration files (`kinds_of`), and the error that
names the option which was probably meant. What an option does is told once, in the ``Args:`` of the
class that users call (or in the ``Attributes:`` of the dataclass), where editors show it; `help_of` reads it there.
`scripts/option_tables.py` makes the tables of the documents.

To add an option: a field, and the argument with its line of help.
"""

from __future__ import annotations

import difflib
import inspect
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, TypeVar

from consumer_sdk.errors import ConfigurationError

__all__ = [
    "ANYTHING",
    "COUNT",
    "FINITE",
    "FLAG",
    "HTTP_URL",
    "LEAST_0",
    "NAME",
    "NAMES",
    "NUMBER",
    "PATH",
    "SECONDS",
    "SECONDS_OR_0",
    "SECRET",
    "TEXT",
    "TRUTH",
    "URL",
    "WHOLE_NUMBER",
    "OptionType",
    "check_client_names",
    "check_fields",
    "check_options",
    "choice",
    "endless",
    "given_fields",
    "help_of",
    "instance",
    "kinds_like",
    "kinds_of",
    "make_options",
    "names_of",
    "option",
    "optional",
    "read_texts",
    "shown",
    "spelling_of",
    "unknown_option",
]

T = TypeVar("T")

SEMICOLON = re.compile(r";(\w+)=")
"""Before the name of another option: a separator that nothing splits at any more."""

LONGEST_VALUE = 200
"""Characters of a value in a message."""

KIND = "kind"
SPELLED = "spelled"
"""A field's `OptionType` in its metadata, and its name for users."""


def _short(value: object) -> str:
    return f"{value!r:.{LONGEST_VALUE}}"


def shown(url: object) -> str:
    """A URL for messages: without credentials, and without its query, which may hold a secret."""
    if not isinstance(url, str):
        return _short(url)
    credentials, at, rest = url.partition("?")[0].rpartition("@")
    scheme, slashes, _ = credentials.rpartition("//")
    return repr(f"{scheme}{slashes}…@{rest}" if at else rest)


def _hidden(_value: object) -> str:
    return "…"


@dataclass(frozen=True, slots=True)
class OptionType:
    """What an option takes.

    Attributes:
        wanted: what to give, for messages: ``"seconds, above 0"``.
        accepts: whether a value is of this kind.
        read: a URL's text as a value, or a ValueError; None if no text can be one.
        show: a value as messages show it; a secret is left out.
        least: the smallest number that is accepted, for schemas; None: there is none.
    """

    wanted: str
    accepts: Callable[[Any], bool]
    read: Callable[[str], Any] | None = None
    show: Callable[[Any], str] = _short
    least: int | None = None

    def check(self, name: str, value: object, owner: str = "") -> None:
        """Sees that a value is of this kind.

        Args:
            owner: whose option it is, where its name does not say that.

        Raises:
            ConfigurationError: it is not.
        """
        if not self.accepts(value):
            is_class = isinstance(value, type)
            shown = f"{value.__name__} is the class itself" if is_class else self.show(value)  # type: ignore[attr-defined]  # is_class says so
            option = f"{owner}({name}={shown})" if owner else f"{name}={shown}"
            raise ConfigurationError(f"{option}: give {self.wanted}")

    def parse(self, name: str, text: str, where: str = "") -> Any:
        """The value that a text stands for.

        Args:
            where: the text stands, for messages: ``" in the URL"``.

        Raises:
            ConfigurationError: none, or no text is one.
        """
        if self.read is None:
            raise ConfigurationError(f"{name}={where}: only Python can give {self.wanted}")
        try:
            return self.read(text)
        except ConfigurationError:  # which says more
            raise
        except ValueError as error:
            shown = f"{name}={self.show(text)}{where}"
            raise ConfigurationError(f"{shown}: give {self.wanted}") from error


# -- kinds ----------------------------------------------------------------------------------


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value  # noqa: PLR0124 - not NaN


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _truth(text: str) -> bool:
    if text.lower() not in TRUTH:
        raise ValueError(text)
    return TRUTH[text.lower()]


TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

ANYTHING = OptionType("anything", lambda _: True, str)
FLAG = OptionType("True or False", lambda value: isinstance(value, bool), _truth)
NUMBER = OptionType("a number", _is_number, float)
FINITE = OptionType("a finite number", lambda v: _is_number(v) and abs(v) < math.inf, float)
WHOLE_NUMBER = OptionType("a whole number", _is_whole, int)
COUNT = OptionType("a whole number, 1 or more", lambda v: _is_whole(v) and v >= 1, int, least=1)
LEAST_0 = OptionType("a whole number, 0 or more", lambda v: _is_whole(v) and v >= 0, int, least=0)
SECONDS = OptionType("seconds, above 0", lambda v: _is_number(v) and 0 < v < math.inf, float)
SECONDS_OR_0 = OptionType(
    "seconds, 0 or more", lambda v: _is_number(v) and 0 <= v < math.inf, float, least=0
)
TEXT = OptionType("a text", _is_text, str)
SECRET = replace(TEXT, show=_hidden)
URL = replace(TEXT, wanted="a URL")
NAME = OptionType("a name", lambda value: _is_text(value) and value.strip() != "", str)
NAMES = OptionType(
    "names in a sequence",
    lambda value: isinstance(value, list | tuple) and all(_is_text(name) for name in value),
)
PATH = OptionType(
    "the path of a file",
    lambda value: isinstance(value, str | os.PathLike) and os.fspath(value) != "",
    str,
)
HTTP_URL = OptionType(
    "http://host:port or https://host:port",
    lambda value: _is_text(value) and value.startswith(("http://", "https://")),
    str,
    shown,
)


def optional(kind: OptionType) -> OptionType:
    """What is of this kind, or None."""
    return replace(
        kind,
        wanted=f"{kind.wanted}, or None",
        accepts=lambda value: value is None or kind.accepts(value),
    )


def endless(kind: OptionType) -> OptionType:
    """A number of this kind, or infinity."""
    return replace(kind, accepts=lambda value: value == math.inf or kind.accepts(value))


def choice(*allowed: str) -> OptionType:
    """One of a few texts."""
    *most, last = map(repr, allowed)
    return OptionType(
        f"{', '.join(most)} or {last}", lambda v: _is_text(v) and v in allowed, _only(allowed)
    )


def _only(allowed: Iterable[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(text)
        return text

    return read


def instance(kinds: type | tuple[type, ...], wanted: str) -> OptionType:
    """An object of a class."""
    return OptionType(wanted, lambda value: isinstance(value, kinds))


def kind_like(name: str, default: object) -> OptionType:
    """What an option of a client takes, by its default."""
    if isinstance(default, bool):
        return FLAG
    if isinstance(default, int) and not name.endswith("_ms"):
        return WHOLE_NUMBER
    if isinstance(default, int | float):
        return replace(NUMBER, read=type(default))
    return TEXT if isinstance(default, str) else ANYTHING


def kinds_like(function: Callable[..., Any]) -> dict[str, OptionType]:
    """What each keyword argument of a client takes, by its default."""
    given = inspect.signature(function).parameters.values()
    keywords = [p for p in given if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return {p.name: kind_like(p.name, p.default) for p in keywords if p.name != "self"}


# -- a component's options ------------------------------------------------------------------


def option(kind: OptionType, *, spelled: str = "", **arguments: Any) -> Any:
    """A field of a dataclass of options; a secret is not in the dataclass's repr.

    Args:
        kind: what it takes.
        spelled: how users write its name, if not as the field's.
        arguments: those of `dataclasses.field`, such as ``default``.
    """
    is_shown = arguments.pop("repr", kind.show is not _hidden)
    return field(metadata={KIND: kind, SPELLED: spelled}, repr=is_shown, **arguments)


def kinds_of(options: type) -> dict[str, OptionType]:
    """What each option of a dataclass takes; fields that `option` has not made are left out."""
    return {each.name: each.metadata[KIND] for each in fields(options) if KIND in each.metadata}


def spelling_of(options: type) -> dict[str, str]:
    """The options of a dataclass, as users write their names → the fields."""
    known = [each for each in fields(options) if KIND in each.metadata]
    return {each.metadata[SPELLED] or each.name: each.name for each in known}


def check_fields(options: object, owner: str = "") -> None:
    """Sees that each field of a dataclass is of its kind.

    Args:
        owner: whose options they are, where their names do not say that.

    Raises:
        ConfigurationError: one is not.
    """
    for name, kind in kinds_of(type(options)).items():
        kind.check(name, getattr(options, name), owner)


def given_fields(options: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those arguments of a function that are fields of a dataclass.

    A field whose default is made by a function is left out where None stands for that default.

    Args:
        given: the function's ``locals()``.
    """
    made = {each.name for each in fields(options) if each.default_factory is not MISSING}
    names = {each.name for each in fields(options)} & given.keys()
    return {name: given[name] for name in names if name not in made or given[name] is not None}


def help_of(documented: object) -> dict[str, str]:
    """What each option does, from the ``Args:`` or ``Attributes:`` of a docstring, each in one line."""
    doc = inspect.getdoc(documented) or ""
    section = re.split(r"^(?:Args|Attributes):\n", doc, maxsplit=1, flags=re.MULTILINE)[-1]
    found = re.findall(
        r"^    ([\w, ]+): (.*(?:\n {8,}.*)*)", section.partition("\n\n")[0], re.MULTILINE
    )
    return {name: re.sub(r"\s+", " ", text) for names, text in found for name in names.split(", ")}


# -- what was given -------------------------------------------------------------------------


def check_options(
    given: Mapping[str, Any], kinds: Mapping[str, OptionType], owner: str = ""
) -> None:
    """Sees that values are of their kinds.

    Args:
        owner: whose options they are, where their names do not say that.

    Raises:
        ConfigurationError: one is not.
    """
    for name, kind in kinds.items():
        kind.check(name, given[name], owner)


def check_client_names(
    given: Iterable[str],
    known: Collection[str],
    ours: Mapping[str, str],
    *,
    own: Iterable[str] = (),
    hint: str = "",
) -> None:
    """Sees that every option is one of a client's, and none that the SDK sets itself.

    Args:
        known: the client's options.
        ours: those that the SDK sets → what to do instead.
        own: the SDK's options beside them, one of which may have been meant.
        hint: what to write, for an unknown one that is like no other.

    Raises:
        ConfigurationError: it is not; names the one that was probably meant.
    """
    for name in given:
        if name in ours:
            raise ConfigurationError(f"{name}= is not for you to set here: {ours[name]}")
        if name not in known:
            raise unknown_option(name, {*known, *own} - ours.keys(), hint)


def make_options(kind: Callable[..., T], options: Mapping[str, Any]) -> T:
    """A dataclass of options.

    Raises:
        ConfigurationError: an option is unknown; names the one that was probably meant.
    """
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    for name in options.keys() - set(known):
        raise unknown_option(name, known)
    return kind(**options)


def read_texts(
    texts: Mapping[str, str], kinds: Mapping[str, OptionType], hint: str = ""
) -> dict[str, Any]:
    """The options in a URL's query.

    Args:
        hint: what to write, for an unknown one that is like no other.

    Raises:
        ConfigurationError: an option is unknown, or its value of another kind.
    """
    for name in texts.keys() - kinds.keys():
        raise unknown_option(name, kinds, hint)
    for name, text in texts.items():
        for meant in kinds.keys() & set(SEMICOLON.findall(text)):
            raise ConfigurationError(
                f"{name}= in the URL has ';{meant}=' in its value: separate options by '&'"
            )
    return {name: kinds[name].parse(name, text, " in the URL") for name, text in texts.items()}


def unknown_option(name: str, known: Iterable[str], hint: str = "") -> ConfigurationError:
    """The error that names the option which was probably meant."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1)
    meant = f"did you mean {near[0]}=?" if near else hint or f"there are {', '.join(known)}"
    return ConfigurationError(f"unknown option {name}=: {meant}")


def names_of(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Names that were given one by one, or all of them in one sequence."""
    is_sequence = len(given) == 1 and isinstance(given[0], list | tuple | set | frozenset)
    return tuple(given[0]) if is_sequence else given
