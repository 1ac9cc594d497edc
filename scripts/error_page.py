"""Writes the entries of docs/errors.md anew, from the docstrings of the errors.

An entry has the first paragraphs of a docstring, and its sections ``Cause:`` and ``What to do:``. ``--check`` writes
nothing, and ends with 1 where the page is not what it would write.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from importlib import import_module
from pathlib import Path

__all__ = ["PAGE", "errors", "sections", "written"]

PAGE = Path(__file__).parent.parent / "docs" / "errors.md"
PACKAGES = (
    "consumer_sdk",
    "consumer_sdk.schema_registry",
    "consumer_sdk.spark_bridge",
    "consumer_sdk.stores",
    "consumer_sdk.testing",
)
MARKED = re.compile(r"(<!-- errors -->\n).*?(<!-- end of errors -->)", re.DOTALL)
SECTION = re.compile(r"^(Args|Attributes|Cause|What to do):\n((?:[ ]{4}.*\n?|\n)+)", re.MULTILINE)


def errors() -> dict[str, type[Exception]]:
    """Where a reader imports an error from → the error; by name."""
    found: dict[type[Exception], str] = {}
    for package in PACKAGES:
        module = import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, type) and issubclass(value, Exception):
                found.setdefault(value, f"{package}.{name}")
    return {
        path: error
        for error, path in sorted(found.items(), key=lambda each: each[0].__name__)
        if error.__name__.endswith("Error")
    }


def sections(error: type[Exception]) -> dict[str, str]:
    """The docstring's parts as Markdown, each in one line; the first one has no name."""
    text = inspect.cleandoc(error.__doc__ or "").replace("``", "`") + "\n"
    parts = {"": SECTION.sub("", text)} | {
        found[1]: textwrap.dedent(found[2]) for found in SECTION.finditer(text)
    }
    return {name: " ".join(part.split()) for name, part in parts.items()}


def entry(path: str, error: type[Exception]) -> str:
    """An error as it stands on the page."""
    parts = sections(error)
    bases = " and ".join(_with_article(base.__name__) for base in error.__bases__)
    return "\n".join(
        [
            f"## {error.__name__}",
            "",
            f"`{path}`, {bases}. {parts['']}",
            "",
            f"- **Cause:** {parts['Cause']}",
            f"- **What to do:** {parts['What to do']}",
            "",
        ]
    )


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} `{name}`"


def written(text: str) -> str:
    """The page with its entries as they have to be."""
    entries = "\n".join(entry(path, error) for path, error in errors().items())
    return MARKED.sub(lambda found: f"{found[1]}{entries}{found[2]}", text)


def main() -> int:
    """Write the page, or with ``--check`` say whether it is stale; then 1."""
    text = PAGE.read_text("utf-8")
    is_stale = written(text) != text
    if "--check" not in sys.argv:
        PAGE.write_text(written(text), "utf-8")
        return 0
    if is_stale:
        sys.stderr.write(f"{PAGE.name} is stale: python scripts/error_page.py\n")
    return int(is_stale)


if __name__ == "__main__":
    sys.exit(main())
