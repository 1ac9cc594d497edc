"""The configuration file of ``consumer-sdk run``: TOML, as the keyword arguments that it stands for.

``[consumer]`` has the options of `Consumer`, ``[run]`` those of `Consumer.run`, ``[consumer.client]``
whatever may stand behind ``?`` in the URL. A text may be ``env:NAME`` or ``file:/path``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, quote, urlencode

from consumer_sdk.cli.run.apps import load_object
from consumer_sdk.decoders import json_decoder
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.named_secrets import SECRETS, secret
from consumer_sdk.options import (
    COUNT,
    FLAG,
    NAME,
    SECRET,
    check_options,
    choice,
    kinds_of,
    make_options,
    option,
    unknown_option,
)
from consumer_sdk.options import NAMES as SEVERAL_NAMES
from consumer_sdk.records import AtTime
from consumer_sdk.runtime.consumer import OPTION_NAMES
from consumer_sdk.trackers import RetryPolicy

__all__ = ["NAMES", "OWN", "Config", "Log", "parse_config", "read_config"]

PYTHONS = frozenset({"hooks", "clock", "around", "handle_signals", "transactions"})
"""Options that no text can be."""

Log = Literal["text", "json"]
Exporter = Literal["otel", "off"]


@dataclass(frozen=True)
class ServiceOptions:
    """What stands in the file outside of its tables.

    Attributes:
        app: module:name of what runs.
        handler: module:name of a Consumer's handler.
    """

    app: str = option(NAME)
    handler: str = option(NAME)


@dataclass(frozen=True)
class ProcessOptions:
    """What ``[run]`` has beside the options of `Consumer.run`.

    Attributes:
        workers: number of processes, all members of one group.
        uvloop: use uvloop's event loop.
    """

    workers: int = option(COUNT)
    uvloop: bool = option(FLAG)


@dataclass(frozen=True)
class AdminOptions:
    """What ``[admin]`` has: the arguments of `consumer_sdk.admin.serve`, by which others ask.

    Attributes:
        listen: where the server listens: auto, unix:/path or 127.0.0.1:9464.
        token: the token that requests have to carry.
        view: serve the page and its stream.
        actions: allow pause, resume, flush and stop.
        hosts: host names under which the server may be asked.
        max_viewers: most pages that may be open at the same time.
    """

    listen: str = option(NAME)
    token: str = option(SECRET)
    view: bool = option(FLAG)
    actions: bool = option(FLAG)
    hosts: Sequence[str] = option(SEVERAL_NAMES)
    max_viewers: int = option(COUNT)


@dataclass(frozen=True)
class TelemetryOptions:
    """What ``[telemetry]`` has.

    Attributes:
        log: format of log lines on stderr, for people or for programs.
        metrics, traces: send them to OpenTelemetry, configured by its own environment variables, or
            nowhere.
    """

    log: Log = option(choice(*get_args(Log)))
    metrics: Exporter = option(choice(*get_args(Exporter)))
    traces: Exporter = option(choice(*get_args(Exporter)))


OWN: Mapping[str, type] = {
    "": ServiceOptions,
    "run": ProcessOptions,
    "admin": AdminOptions,
    "telemetry": TelemetryOptions,
}
"""What each table has of its own; ``""`` is the file itself."""
KINDS = {table: kinds_of(options) for table, options in OWN.items()}

NAMES: Mapping[str, frozenset[str]] = {
    "": frozenset({*KINDS[""], "consumer", "run", "admin", "telemetry"}),
    "consumer": (OPTION_NAMES["Consumer"] - PYTHONS) | {"url", "client"},
    "run": (OPTION_NAMES["run()"] - PYTHONS) | KINDS["run"].keys(),
    "admin": frozenset(KINDS["admin"]),
    "telemetry": frozenset(KINDS["telemetry"]),
}
"""What each table may have."""

AUTO = "auto"
"""``listen=`` for a Unix socket where operators' commands look for it."""

HIDDEN = re.compile("pass|secret|token|credential|key|auth", re.IGNORECASE)
"""Options whose values are shown to nobody."""


@dataclass(frozen=True, slots=True)
class Config:
    """What a service is told, as it was written: no secret is looked up yet.

    Attributes:
        place: the file, for messages; None: there is none.
        admin: None: nobody is answered.
    """

    place: str | None = None
    app: str | None = None
    handler: str | None = None
    consumer: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    telemetry: Mapping[str, Any] = field(default_factory=dict)
    admin: Mapping[str, Any] | None = None

    def changed(self, table: str, **values: Any) -> Config:
        """With what the command line says; None: nothing.

        Raises:
            ConfigurationError: a value is of another kind.
        """
        given = {name: value for name, value in values.items() if value is not None}
        if not given:
            return self
        made: Mapping[str, Any] = {**(getattr(self, table) or {}), **given}
        _check(table, made)
        changes: dict[str, Any] = {table: made}
        return replace(self, **changes)

    def named(self, **names: str | None) -> Config:
        """With another application or handler; None: as it is."""
        given: dict[str, Any] = {name: text for name, text in names.items() if text is not None}
        return replace(self, **given)

    def consumer_options(self) -> dict[str, Any]:
        """The keyword arguments of `Consumer`, ``adapter`` among them; its secrets are looked up.

        Raises:
            ConfigurationError: a secret is not there, or a table cannot work.
        """
        found = {name: _value(name, value) for name, value in self.consumer.items()}
        client = found.pop("client", {})
        url = found.pop("url", None)
        if url is None:
            raise ConfigurationError("a handler needs a broker: give --url, or url= in [consumer]")
        return found | {"adapter": _with_options(url, client)}

    def run_options(self) -> dict[str, Any]:
        """The keyword arguments of `Consumer.run`."""
        return {name: value for name, value in self.run.items() if name not in KINDS["run"]}

    def admin_options(self) -> dict[str, Any]:
        """The keyword arguments of `consumer_sdk.admin.serve`."""
        found = {name: _value(name, value) for name, value in (self.admin or {}).items()}
        listen = found.pop("listen", AUTO)
        return found | {"address": None if listen == AUTO else listen}

    def shown(self) -> dict[str, Any]:
        """All of it for people, without secrets."""
        tables = {name: getattr(self, name) for name in NAMES[""]}
        return {name: _shown(name, tables[name]) for name in sorted(tables) if tables[name]}


def read_config(path: str) -> Config:
    """What a file says.

    Raises:
        ConfigurationError: it cannot be read, is no TOML, or has what is unknown.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise ConfigurationError(f"--config {path}: {why}") from error
    return parse_config(text, path)


def parse_config(text: str, place: str) -> Config:
    """What a file's text says.

    Args:
        place: the file, for messages.

    Raises:
        ConfigurationError: it is no TOML, or has what is unknown.
    """
    try:
        tables = tomllib.loads(text)
        for name in NAMES:
            _check(name, tables.get(name, {}) if name else tables)
    except ConfigurationError as error:
        raise ConfigurationError(f"{place}: {error}") from error
    except (ValueError, RecursionError) as error:  # also too many digits, or brackets
        raise ConfigurationError(f"{place}: this is no TOML: {error}") from error
    return Config(place=place, **tables)


def _check(table: str, values: object) -> None:
    where = f"[{table}]: " if table else ""
    if not isinstance(values, dict):
        raise ConfigurationError(f"{table}={values!r}: make it a table, [{table}]")
    try:
        for name in values:
            _check_name(table, name)
        kinds = {name: kind for name, kind in KINDS.get(table, {}).items() if name in values}
        check_options(values, kinds)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}{error}") from error


def _check_name(table: str, name: str) -> None:
    if name in PYTHONS:
        raise ConfigurationError(f"{name}= is an object: only Python can give it")
    if name not in NAMES[table]:
        raise unknown_option(name, NAMES[table])


# -- values ---------------------------------------------------------------------------------------


def _value(name: str, value: Any) -> Any:
    """What Python would be given for an option of ``[consumer]``."""
    if isinstance(value, str):
        if name == "decode":
            return _decoder(value)
        found = secret(name, value)
        return None if found == "none" and name == "max_holes" else found
    if isinstance(value, datetime):
        return AtTime(value)
    if name == "retry":
        return _retry(value)
    if name == "dead_letters" and isinstance(value, dict):
        options = dict(value)
        url = options.pop("url", None)
        if not isinstance(url, str):
            raise ConfigurationError("[consumer.dead_letters]: url= is missing")
        return _with_options(secret("url", url), options)
    return value


def _decoder(name: str) -> object:
    if name == "json":
        return json_decoder()
    if ":" not in name:
        raise ConfigurationError(f"decode={name!r}: write json, or module:name of a function")
    return load_object(name)


def _retry(value: Any) -> RetryPolicy:
    if not isinstance(value, dict):
        raise ConfigurationError(f"retry={value!r}: make it a table, {{ max_attempts = 5 }}")
    options = {name: None if each == "none" else each for name, each in value.items()}
    try:
        return make_options(RetryPolicy, options)
    except ConfigurationError as error:
        raise ConfigurationError(f"retry: {error}") from error


def _with_options(url: str, options: Any) -> str:
    """A URL with more behind its ``?``: what reads it there says what is wrong with it."""
    if not isinstance(options, dict):
        raise ConfigurationError(f"client={options!r}: make it a table, [consumer.client]")
    if not options:
        return url
    texts = {name: _text(name, value) for name, value in options.items()}
    return f"{url}{'&' if '?' in url else '?'}{urlencode(texts, quote_via=quote)}"


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return secret(name, value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    raise ConfigurationError(f"[consumer.client]: {name}= must be a text or a number")


# -- shown ----------------------------------------------------------------------------------------


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {each: _shown(each, inner) for each, inner in value.items()}
    if isinstance(value, str):
        if value.partition(":")[0] in SECRETS:
            return value
        return "…" if HIDDEN.search(name) else _shown_text(value)
    return value if isinstance(value, bool | int | float) else str(value)


def _shown_text(text: str) -> str:
    """A URL without the secrets in its query, and without credentials before its host."""
    head, mark, query = text.partition("?")
    scheme, slashes, rest = head.partition("://")
    credentials, at, host = rest.rpartition("@")
    head = (
        f"{scheme}{slashes}{'…' if credentials else ''}{at}{host}" if slashes else text[: len(head)]
    )
    pairs = parse_qsl(query, keep_blank_values=True)
    shown = "&".join(f"{name}={'…' if HIDDEN.search(name) else value}" for name, value in pairs)
    return f"{head}{mark}{shown}"
