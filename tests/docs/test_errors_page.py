"""docs/errors.md: each public error has its entry, with cause and advice."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path

import consumer_sdk
from consumer_sdk import spark_bridge

ROOT = Path(__file__).parents[2]
SCRIPT = run_path(str(ROOT / "scripts" / "error_page.py"))


def test_page_is_what_the_docstrings_say() -> None:
    """``python scripts/error_page.py`` writes it anew."""
    text = SCRIPT["PAGE"].read_text(encoding="utf-8")
    assert SCRIPT["written"](text) == text


def test_every_error_says_its_cause_and_what_to_do() -> None:
    """Also those of the Spark bridge, of stores, of schema registries and of simulations."""
    errors = SCRIPT["errors"]()
    exported = {*consumer_sdk.__all__, *spark_bridge.__all__}
    assert {name for name in exported if name.endswith("Error")} <= {
        error.__name__ for error in errors.values()
    }
    for error in errors.values():
        assert {"", "Cause", "What to do"} <= SCRIPT["sections"](error).keys(), error
