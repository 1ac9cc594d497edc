"""Prints pinned versions of the development environment's packages.

Follows the requirements of the project itself, so that what somebody installed
by hand into .venv does not end up in the lock file.
"""

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = "consumer-sdk"
HEADER = "# Pinned versions for development, written by `make lock`. Addresses of indexes do not belong here.\n"


def canonical(name: str) -> str:
    """Return the name as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def roots(pyproject: Path) -> list[Requirement]:
    """Return what the project and its dev group ask for, extras of the project unfolded."""
    table = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    extras: dict[str, list[str]] = table["project"]["optional-dependencies"]
    texts = [*table["project"]["dependencies"], *table["dependency-groups"]["dev"]]
    texts += [text for group in extras.values() for text in group]
    parsed = [Requirement(text) for text in texts]
    return [item for item in parsed if canonical(item.name) != PROJECT and applies(item, "")]


def closure(todo: list[Requirement]) -> dict[str, str]:
    """Return name and version of everything the requirements lead to."""
    pinned: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    while todo:
        wanted = todo.pop()
        for extra in ("", *wanted.extras):
            key = (canonical(wanted.name), extra)
            if key in seen:
                continue
            seen.add(key)
            found = distribution(wanted.name)
            pinned[key[0]] = found.version
            needs = [Requirement(text) for text in found.requires or ()]
            todo += [need for need in needs if applies(need, extra)]
    return pinned


def applies(need: Requirement, extra: str) -> bool:
    """Return whether the requirement counts on this machine."""
    return need.marker is None or need.marker.evaluate({"extra": extra})


def main() -> int:
    """Print the lock file; 1 when a package is missing from the environment."""
    try:
        pinned = closure(roots(Path("pyproject.toml")))
    except PackageNotFoundError as error:
        print(f"lock: {error.name} is not installed: install it first, then lock", file=sys.stderr)
        return 1
    print(HEADER + "\n".join(f"{name}=={pinned[name]}" for name in sorted(pinned)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
