"""Figures and tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["figure", "table"]


def figure(value: float | None, digits: int) -> str:
    """A figure with thousands set apart, or that there is none."""
    return "failed" if value is None else f"{value:,.{digits}f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of rows that are as long as its head."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
