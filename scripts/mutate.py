"""Runs the trackers' tests against mutants: small changes that some test ought to notice.

Each mutant is compiled into a forked child, which then runs the tests until one fails. A survivor is
either explained in docs/mutants.md, or a test is missing.
"""

from __future__ import annotations

import argparse
import ast
import importlib.machinery
import importlib.util
import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from types import CodeType

import hypothesis.stateful  # noqa: F401 - loaded once, before the forks
import pytest
from mutations import Mutant, mutants

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "consumer_sdk" / "trackers"
PAGE = ROOT / "docs" / "mutants.md"
TESTS = ROOT / "tests" / "trackers"
LONGEST = 60
"""Seconds: a mutant that takes longer loops, which a timeout would notice."""
MEMORY = 1_000_000_000
"""Bytes: a loop may also fill the machine."""
FAMILIES = {
    "checkpoint": {"checkpoint", "varints"},
    "tree": {"edges", "naming", "receipts", "tree", "trees"},
}
"""Words in the names of modules and of their tests; what has none of them belongs together too."""
OPTIONS = (
    *("-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "--hypothesis-seed=0"),
    *("-p", "no:consumer_sdk", "-o", "timeout=20", "-m", "not slow and not spark"),
)


# -- running the tests ----------------------------------------------------------------------------


def survives(mutant: Mutant) -> bool:
    """Whether all tests pass, in a child of this process."""
    child = os.fork()
    if not child:
        os._exit(run_tests(mutant))
    deadline = time.monotonic() + LONGEST
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def run_tests(mutant: Mutant) -> int:
    """The quick tests of the mutant's family first, then its models."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.meta_path.insert(0, Finder(mutant))
    files = [path for path in TESTS.glob("test_*.py") if family(path) == family(mutant.path)]
    files.sort(key=lambda path: (path.stem.endswith("_model"), path))
    return int(pytest.main([*OPTIONS, *map(str, files)]))


def family(path: Path) -> str:
    """Which tests are for which modules, by their names."""
    words = set(path.stem.removeprefix("test_").split("_"))
    return next((name for name, known in FAMILIES.items() if known & words), "")


class Finder(importlib.machinery.SourceFileLoader):
    """Finds and loads the mutant in its module's place."""

    def __init__(self, mutant: Mutant) -> None:
        name = ".".join(mutant.path.relative_to(ROOT).with_suffix("").parts)
        super().__init__(name, str(mutant.path))
        self.code = compile(ast.fix_missing_locations(mutant.tree), self.path, "exec")

    def find_spec(
        self, name: str, _path: object = None, _target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The mutant's module, and no other."""
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - there is one module
        """What the module runs."""
        return self.code


# -- the page -------------------------------------------------------------------------------------


def explained() -> set[tuple[str, str, str]]:
    """The survivors that the page gives a reason for."""
    text = PAGE.read_text(encoding="utf-8").replace("\\|", "¦")
    rows = re.findall(r"^\| `(.+?)` \| `(.*?)` \| `(.+?)` \|", text, re.MULTILINE)
    return {(file, place, change.replace("¦", "|")) for file, place, change in rows}


def report(survivors: Sequence[Mutant], count: int, took: float) -> int:
    """Prints what is not explained, as rows for the page; 1 if there is any."""
    known = explained()
    left = [mutant.key for mutant in survivors if mutant.key not in known]
    for row in left:
        print("| " + " | ".join(f"`{part}`".replace("|", "\\|") for part in row) + " | ? |")
    print(
        f"mutants: {count} in {took / 60:.0f} min, {count - len(survivors)} killed, "
        f"{len(survivors)} survived, {len(left)} of those not explained in docs/mutants.md"
    )
    return 1 if left else 0


def run(path: Path, only: str) -> tuple[int, list[Mutant]]:
    """How many mutants of a file there are, and which of them survive."""
    count, survivors = 0, []
    for mutant in wanted(path, only):
        count += 1
        if survives(mutant):
            print("survives:", *mutant.key, sep="  ", flush=True)
            survivors.append(mutant)
    print(f"{path.name}: {count} mutants, {len(survivors)} survived", flush=True)
    return count, survivors


def wanted(path: Path, only: str) -> Iterator[Mutant]:
    """The mutants of a file whose text contains ``only``."""
    return (mutant for mutant in mutants(path) if only in "  ".join(mutant.key))


def main() -> int:
    """Runs all mutants of the files; 1 if a survivor is not explained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="names of files of consumer_sdk/trackers")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument("--only", default="", help="mutants whose text contains this")
    options = parser.parse_args()
    paths = [PACKAGE / name for name in options.files] or sorted(PACKAGE.glob("*.py"))
    if options.list:
        for path in paths:
            for mutant in wanted(path, options.only):
                print(*mutant.key, sep="  ")
        return 0
    os.nice(10)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = tempfile.mkdtemp()
    for path in paths:
        if not survives(Mutant(path, "", "", ast.parse(path.read_text(encoding="utf-8")))):
            print(f"mutants: the tests of {path.name} fail without any mutant", file=sys.stderr)
            return 1
    began = time.monotonic()
    counts, survivors = zip(*(run(path, options.only) for path in paths), strict=True)
    return report(list(chain(*survivors)), sum(counts), time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
