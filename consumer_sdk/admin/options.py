"""The options of the admin application and its server."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import (
    COUNT,
    FLAG,
    SECRET,
    TEXT,
    OptionType,
    check_fields,
    option,
    optional,
)

__all__ = ["VIEWERS", "AdminOptions"]

HOSTS = OptionType(
    'names in a list, such as ["page.internal"]',
    lambda value: isinstance(value, Collection) and not isinstance(value, str | bytes),
)
HOST = OptionType(
    "names without a scheme and a port",
    lambda value: isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_.-]+", value) is not None,
)
VIEWERS = 32
SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminOptions:
    """What `admin.serve` and `admin.app` take; their docstrings say what each option does.

    Raises:
        ConfigurationError: an option cannot work.
    """

    address: str | None = option(optional(TEXT), default=None)
    token: str | None = option(optional(SECRET), default=None)
    view: bool = option(FLAG, default=True)
    actions: bool = option(FLAG, default=False)
    hosts: Collection[str] = option(HOSTS, default=())
    max_viewers: int = option(COUNT, default=VIEWERS)

    def __post_init__(self) -> None:
        check_fields(self, "admin")
        for name in self.hosts:
            HOST.check("hosts", name, "admin")
        if self.token is not None:
            _check_token(self.token)


def _check_token(token: str) -> None:
    """Refuses a token that could be guessed, or that no header can carry."""
    if len(token) < SHORTEST_TOKEN:
        raise ConfigurationError(
            f"token=…: give {SHORTEST_TOKEN} characters at least, such as secrets.token_urlsafe() makes"
        )
    if not re.fullmatch(r"[!-~]+", token):
        raise ConfigurationError(
            "token=…: give ASCII characters without spaces; a header carries it"
        )
