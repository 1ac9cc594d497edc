"""Claims about the trackers' source: pure, and in small pieces."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

import consumer_sdk.trackers

SOURCES = sorted(Path(consumer_sdk.trackers.__file__).parent.rglob("*.py"))


def nodes() -> Iterator[ast.AST]:
    """Every node of every module."""
    for path in SOURCES:
        yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def test_no_clock_no_event_loop_and_no_log_is_imported() -> None:
    """Time and wake-ups come in by argument; what happened is a return value."""
    imported = {
        alias.name for node in nodes() if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {str(node.module) for node in nodes() if isinstance(node, ast.ImportFrom)}

    assert "consumer_sdk.records" in imported
    assert not {name.split(".")[0] for name in imported} & {
        "asyncio",
        "logging",
        "threading",
        "time",
    }


def test_nothing_is_awaited() -> None:
    """Decisions are synchronous: the waiting is the runtime's."""
    waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    assert not [node for node in nodes() if isinstance(node, waiting)]


def test_median_function_has_seven_lines_at_most() -> None:
    """Signature and docstring included."""
    lengths = [
        (node.end_lineno or 0) - node.lineno + 1
        for node in nodes()
        if isinstance(node, ast.FunctionDef)
    ]
    assert len(lengths) > 100
    assert statistics.median(lengths) <= 7
