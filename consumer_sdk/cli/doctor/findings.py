"""The result of each check, and how bad it is. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = [
    "Finding",
    "Level",
    "exit_status",
    "of_certificate",
    "of_clock",
    "of_files",
    "of_retention",
]

Level: TypeAlias = Literal["ok", "warn", "FAIL"]

FEW_FILES = 1024
"""Open files below which a consumer of many brokers or feeds may run out of them."""
DAY = 86_400.0
SOON = 14 * DAY
"""Seconds before its end when a certificate is worth a word."""
AHEAD = 60.0
"""Seconds that a record's time may be in the future: producers' clocks differ too."""
NEAR = 0.8
"""Share of what is stored that a group may be behind."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        what: was checked.
        found: the result.
        todo: what to do; empty if nothing is to be done.
    """

    level: Level
    what: str
    found: str
    todo: str = ""


def exit_status(findings: Iterable[Finding]) -> int:
    """The exit status for the worst result: 0 all is well, 3 a check warns, 1 a check fails."""
    levels = {finding.level for finding in findings}
    return 1 if "FAIL" in levels else 3 if "warn" in levels else 0


def of_files(limit: int) -> Finding:
    """How many files the process may have open; connections are files."""
    if limit >= FEW_FILES:
        return Finding("ok", "open files", f"{limit} at most")
    return Finding(
        "warn", "open files", f"{limit} at most", f"raise it to {FEW_FILES} or more: ulimit -n"
    )


def of_certificate(server: str, ends: float, now: float) -> Finding:
    """A certificate that is trusted now.

    Args:
        ends: seconds since the epoch.
        now: likewise.
    """
    days = (ends - now) / DAY
    found = f"the certificate is trusted, and good for {days:.0f} days"
    if ends - now >= SOON:
        return Finding("ok", f"TLS {server}", found)
    return Finding("warn", f"TLS {server}", found, "have it renewed")


def of_clock(newest: float, now: float) -> Finding:
    """This machine's clock beside the newest record's time; seconds since the epoch."""
    ahead = newest - now
    if ahead <= AHEAD:
        return Finding("ok", "clock", "the newest record's time is not in the future")
    return Finding(
        "warn",
        "clock",
        f"the newest record's time is {ahead:.0f} s in the future",
        "see that this machine's clock and the producers' are set: NTP",
    )


def of_retention(where: str, behind: float, kept: float) -> Finding:
    """How far the group is behind what the broker deletes next.

    Args:
        where: the partition that is farthest behind.
        behind: seconds since its first unsettled record was written.
        kept: seconds since the first record was written that is stored.
    """
    found = f"{where} is {behind:.0f} s behind, and {kept:.0f} s are stored"
    if behind <= NEAR * kept or behind <= AHEAD:
        return Finding("ok", "retention", found)
    return Finding(
        "warn",
        "retention",
        found,
        "records may be deleted before they are read: let the topic keep them longer, or consume faster",
    )
