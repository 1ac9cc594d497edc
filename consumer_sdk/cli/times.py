"""Times as operators write them, and as they are shown. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from consumer_sdk.errors import ConfigurationError

__all__ = ["FORMS", "is_time", "parse_time", "shown_time"]

FORMS = "TIME: 2026-05-01T12:00:00Z, 2026-05-01, 90s, 15m, 2h or 7d ago, or @SECONDS since 1970"
AGO = re.compile(r"(\d{1,9})([smhd])")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
DATE = re.compile(r"\d{4}-\d\d-\d\d")
EPOCH = re.compile(r"@(\d{1,10}(?:\.\d{1,9})?)")


def is_time(text: str) -> bool:
    """Whether it is meant as a time, and not as a position."""
    return bool(AGO.fullmatch(text) or EPOCH.fullmatch(text) or DATE.match(text))


def parse_time(text: str, now: float) -> float:
    """Seconds since the epoch.

    Args:
        now: likewise, for what is so long ago.

    Raises:
        ConfigurationError: it is no time, or could be any time zone's.
    """
    if found := AGO.fullmatch(text):
        return now - int(found[1]) * UNITS[found[2]]
    if found := EPOCH.fullmatch(text):
        return float(found[1])
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(f"{text!r} is no time; {FORMS}") from error
    if DATE.fullmatch(text):
        time = time.replace(tzinfo=UTC)
    if time.tzinfo is None:
        raise ConfigurationError(f"{text!r} could be any time zone's: write {text}Z for UTC")
    return time.timestamp()


def shown_time(seconds: float | None) -> str:
    """In UTC; ``-`` where it is not known, or no date: whoever wrote it had an odd clock."""
    try:
        return (
            "-" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
        )
    except (ValueError, OverflowError, OSError):
        return "-"
