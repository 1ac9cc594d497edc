"""Keeps credentials out of what the brokers' clients log: at DEBUG they print whole requests."""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["hide_arguments"]


def hide_arguments(*loggers: str, kinds: tuple[str, ...]) -> None:
    """Shows the class alone where another package logs a request that has credentials. Idempotent.

    Args:
        loggers: full names; a filter does not see what a logger's children log.
        kinds: beginnings of the names of the classes.
    """
    for name in loggers:
        logger = logging.getLogger(name)
        if not any(isinstance(found, _HiddenArguments) for found in logger.filters):
            logger.addFilter(_HiddenArguments(kinds))


class _HiddenArguments(logging.Filter):
    def __init__(self, kinds: tuple[str, ...]) -> None:
        super().__init__()
        self._kinds = kinds

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(self._shown, record.args))
        return True

    def _shown(self, argument: Any) -> Any:
        name = type(argument).__name__
        return f"<{name}: hidden>" if name.startswith(self._kinds) else argument
