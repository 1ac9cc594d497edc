"""The options of aiokafka's clients, checked when one is configured; what its topics and servers may be."""

from __future__ import annotations

import inspect
import math
import re
import ssl
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any
from urllib.parse import SplitResult

from aiokafka.abc import AbstractTokenProvider

from consumer_sdk.adapters.urls import is_host, read_server_url, shown
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import (
    COUNT,
    LEAST_0,
    NUMBER,
    SECRET,
    TEXT,
    OptionType,
    check_client_names,
    check_options,
    choice,
    instance,
    kinds_like,
    names_of,
    optional,
)

__all__ = [
    "check_client_options",
    "client_kinds",
    "connection_options",
    "read_servers",
    "read_topics",
    "read_url",
]

OURS = {
    "api_version": "the client asks the broker",
    "loop": "the running event loop is used",
}
"""Options of all clients that the SDK sets itself → what to do instead."""

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER")
PORTS = " with a port of 1 to 65535"
LEGAL_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""Names of those that Java's consumers know too."""

COOPERATIVE = "cooperative-sticky"

STRATEGY = f"a sequence of {', '.join(ASSIGNORS)}, or of aiokafka's assignors, each name once"

CALLED = {"assign": 2, "metadata": 1, "on_assignment": 1}
"""What is called of an assignor's class, and with how many arguments."""


def _not_empty(kind: OptionType) -> OptionType:
    return replace(
        kind,
        wanted="a text that is not empty (is the variable set?)",
        accepts=lambda value: kind.accepts(value) and value != "",
    )


MILLISECONDS = OptionType(
    "milliseconds, 0 or more", lambda v: NUMBER.accepts(v) and 0 <= v < math.inf
)

TYPES: Mapping[str, OptionType] = {
    "security_protocol": choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "ssl_context": optional(instance(ssl.SSLContext, "what ssl.create_default_context() returns")),
    "sasl_mechanism": choice(*MECHANISMS),
    "sasl_plain_username": optional(_not_empty(TEXT)),
    "sasl_plain_password": optional(_not_empty(SECRET)),
    "sasl_oauth_token_provider": optional(
        instance(AbstractTokenProvider, "an aiokafka.abc.AbstractTokenProvider")
    ),
    "client_rack": optional(TEXT),
    "group_instance_id": optional(_not_empty(TEXT)),
    "acks": OptionType(
        "'all' or 1 (with 0 nobody would know what was written)",
        lambda value: value in ("all", -1, 1),
        lambda text: int(text) if text.lstrip("-").isdigit() else text,
    ),
    "compression_type": optional(choice("gzip", "snappy", "lz4", "zstd")),
    "max_batch_size": COUNT,
    "max_request_size": COUNT,
    "fetch_max_bytes": COUNT,
    "fetch_min_bytes": LEAST_0,
    "max_partition_fetch_bytes": COUNT,
    "partition_assignment_strategy": OptionType(
        STRATEGY,
        lambda value: isinstance(value, list | tuple) and bool(value),
        lambda text: tuple(text.split(",")),
    ),
}
"""Options whose default does not say all of what they take."""


def read_servers(bootstrap_servers: str | Sequence[str]) -> list[str]:
    """``host:port`` of each server.

    Raises:
        ConfigurationError: there is none, or one is not ``host:port``.
    """
    given: object = bootstrap_servers  # whatever was given
    servers = given.split(",") if isinstance(given, str) else given
    are_texts = isinstance(servers, list | tuple | set | frozenset) and all(
        isinstance(s, str) for s in servers
    )
    found = [server.strip() for server in servers] if are_texts else []  # type: ignore[attr-defined]  # are_texts says so
    if not found or not all(map(_is_server, found)):
        hint = ", not a URL" if "://" in str(given) else ""
        hint += PORTS if any(server.rpartition(":")[2].isdigit() for server in found) else ""
        raise ConfigurationError(
            f"bootstrap_servers={shown(given)}: give 'host:port'{hint}, several "
            f"with commas or in a list"
        )
    return found


def _is_server(server: str) -> bool:
    return not any(sign in server for sign in "/@;?") and is_host(server)


def read_topics(given: tuple[Any, ...]) -> tuple[str, ...]:
    """The names of topics that were given one by one, or in one sequence.

    Raises:
        ConfigurationError: one cannot be the name of a topic.
    """
    topics = names_of(given)
    for topic in topics:
        if not isinstance(topic, str) or not LEGAL_TOPIC.fullmatch(topic):
            raise ConfigurationError(
                f"topic {topic!r}: give the name of a topic, which has letters, digits, '.', '_' "
                f"and '-'; several one by one or in a list; no pattern"
            )
    return topics


def check_client_options(
    options: Mapping[str, Any],
    client: Callable[..., Any],
    ours: Mapping[str, str],
    own: Iterable[str] = (),
) -> None:
    """Sees that every option is one of the client's, is no other's to set, and can work.

    Args:
        options: what was given beyond the owner's own options.
        client: whose options they have to be.
        ours: client options that the owner sets itself → what to do instead; beside `OURS`.
        own: the owner's own options, one of which may have been meant.

    Raises:
        ConfigurationError: it is not; names the one that was probably meant.
    """
    kinds = client_kinds(client)
    own, hint = ["bootstrap_servers", *own], "it is none of aiokafka's either"
    check_client_names(options, kinds, {**ours, **OURS}, own=own, hint=hint)
    check_options(dict(options), {name: kinds[name] for name in options})
    _check_security(options)
    _check_strategy(options.get("partition_assignment_strategy", ()))


def client_kinds(client: Callable[..., Any]) -> dict[str, OptionType]:
    """What each option of one of aiokafka's clients takes."""
    kinds = {
        name: replace(MILLISECONDS, read=kind.read) if name.endswith("_ms") and kind.read else kind
        for name, kind in kinds_like(client).items()
    }
    return kinds | {name: kind for name, kind in TYPES.items() if name in kinds}


def _check_security(options: Mapping[str, Any]) -> None:
    protocol = options.get("security_protocol", "PLAINTEXT")
    given = {name for name, value in options.items() if value is not None}
    unused = sorted(name for name in given if name.startswith("sasl_"))
    if unused and not protocol.startswith("SASL_"):
        raise ConfigurationError(
            f"{unused[0]}= has no effect with security_protocol={protocol!r}: give "
            f"security_protocol='SASL_SSL', or 'SASL_PLAINTEXT' without TLS"
        )
    if "ssl_context" in given and not protocol.endswith("SSL"):
        raise ConfigurationError(
            f"ssl_context= has no effect with security_protocol={protocol!r}: give "
            f"security_protocol='SSL' or 'SASL_SSL'"
        )
    if protocol.startswith("SASL_"):
        _check_sasl(options.get("sasl_mechanism", "PLAIN"), given)


def _check_sasl(mechanism: str, given: Collection[str]) -> None:
    if mechanism == "GSSAPI":
        if find_spec("gssapi") is None:
            raise ConfigurationError(
                "sasl_mechanism='GSSAPI': the client needs the gssapi package: pip install gssapi"
            )
        return
    needed = {"OAUTHBEARER": ("sasl_oauth_token_provider",)}
    for name in needed.get(mechanism, ("sasl_plain_username", "sasl_plain_password")):
        if name not in given:
            raise ConfigurationError(f"sasl_mechanism={mechanism!r} needs {name}=…: give it too")


def _check_strategy(strategy: Sequence[object]) -> None:
    names: list[str] = []
    for each in strategy:
        name, fault = _assignor(each)
        fault = fault or (f"{name!r} is there twice" if name in names else "")
        if fault:
            raise ConfigurationError(
                f"partition_assignment_strategy={strategy!r:.200}: {fault}; give {STRATEGY}"
            )
        names.append(name)


def _assignor(given: object) -> tuple[str, str]:
    """The name of one assignor, and what is wrong with it, or nothing."""
    if isinstance(given, str):
        return given, "" if given in ASSIGNORS else f"{given!r} is no assignor"
    if not inspect.isclass(given):
        return "", f"{given!r:.100} is neither a name nor a class"
    name = getattr(given, "name", None)
    if not isinstance(name, str) or not name:
        return "", f"the class {given.__name__} has no text as its name"
    if name == COOPERATIVE:
        return name, f"the class {given.__name__} is eager, and has the name of a cooperative one"
    wrong = [method for method, count in CALLED.items() if not _takes(given, method, count)]
    fault = f"{given.__name__}.{wrong[0]} is not to be called on the class" if wrong else ""
    return name, fault and f"{fault}, with {CALLED[wrong[0]]} arguments: make it a classmethod"


def _takes(given: type, name: str, count: int) -> bool:
    """Whether the class itself has a method that can be called with so many arguments."""
    method: Any = getattr(given, name, None)
    if getattr(method, "__isabstractmethod__", False):
        return False
    try:
        inspect.signature(method).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # it does not say what it takes
        return True
    return True


def connection_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """With the system's certificates, where TLS is asked for and no context is given."""
    found = dict(options)
    is_tls = found.get("security_protocol") in ("SSL", "SASL_SSL")
    if is_tls and found.get("ssl_context") is None:
        found["ssl_context"] = ssl.create_default_context()
    return found


def read_url(
    parts: SplitResult, texts: Mapping[str, str], kinds: Mapping[str, OptionType], form: str
) -> tuple[list[str], dict[str, Any]]:
    """Topics, and options with the servers.

    Raises:
        ConfigurationError: servers are missing, or an option is unknown or of another kind.
    """
    hint = "it is none of aiokafka's either"
    topics, options = read_server_url(
        parts, texts, kinds, form, servers="bootstrap_servers", hint=hint
    )
    return topics, {"bootstrap_servers": parts.netloc} | options
