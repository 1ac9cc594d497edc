"""Tokens of SASL/OAUTHBEARER, by the import path of what makes them.

A path is a text, so that it fits an option, travels to other machines, and holds no secret.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from aiokafka.abc import AbstractTokenProvider

from consumer_sdk.errors import ConfigurationError

__all__ = ["token_provider"]

_FORM = (
    "give package.module:name of a function that returns a token (a text), or of an "
    "aiokafka.abc.AbstractTokenProvider, which can be imported on driver and executors"
)


def token_provider(path: str) -> AbstractTokenProvider:
    """What ``path`` names: a token provider, its class, or a function that returns a token.

    A function may be asynchronous; one that is not runs in a thread. It is called for each
    connection: what it returns has to be valid still.

    Raises:
        ConfigurationError: there is nothing of that name, or it is something else.
    """
    found = _imported(path)
    if isinstance(found, type) and issubclass(found, AbstractTokenProvider):
        found = found()
    if isinstance(found, AbstractTokenProvider):
        return found
    if not callable(found):
        raise ConfigurationError(f"{path} is no token provider: {_FORM}")
    return _Called(found)


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"the token provider {path!r}: {error}; {_FORM}") from error


class _Called(AbstractTokenProvider):  # type: ignore[misc]  # the client has no types
    """Asks a function."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._ask = ask

    async def token(self) -> str:
        is_async = inspect.iscoroutinefunction(self._ask)
        token = await self._ask() if is_async else await asyncio.to_thread(self._ask)
        if not isinstance(token, str):
            raise ConfigurationError(
                f"the token provider returned a {type(token).__name__}: {_FORM}"
            )
        return token
