"""Runs tests against mutants: small changes of the trackers, or of any module, that some test ought to notice.

The tests are collected and run once, to see which lines they run. Each mutant is put in place in a forked child,
which runs the tests that reach it until one fails. A survivor is either explained in docs/mutants.md, or a test is missing.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import re
import resource
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from mutations import Mutant, mutants

TraceFunction = Callable[[types.FrameType, str, object], Any]
ROOT = Path(__file__).parent.parent
ROOMS = ("trackers", "trackers/trees", "checkpoints")
"""Those whose files are tested by all tests of their room."""
PAGE = ROOT / "docs" / "mutants.md"
PREFIX = "consumer_sdk."
LONGEST = 20
"""Seconds of processor time for a test: a mutant that takes longer loops, which is noticed."""
HANGS = 60
"""Seconds for a test: a mutant that takes longer waits for ever, which is noticed."""
MEMORY = 1_000_000_000
"""Bytes: a loop may also fill the machine."""
SERVERS = ("kafka", "kinesis", "pulsar", "zookeeper", "spark")
"""Tests with these marks take too long to be run for each mutant."""
PLAIN = (bool, int, float, str, bytes)
"""Of these a class may have some, beside its functions."""
OPTIONS = (
    *("-q", "-s", "--assert=plain", "-p", "no:cacheprovider", "--hypothesis-seed=0"),
    *("-o", "timeout=0", "-m", f"not ({' or '.join(('campaign', *SERVERS))})"),
)


# -- putting a mutant in place --------------------------------------------------------------------


def put_in_place(mutant: Mutant) -> None:
    """Gives the functions of a module that is loaded the mutant's code; and its constants."""
    name = ".".join(mutant.path.relative_to(ROOT).with_suffix("").parts)
    changed = types.ModuleType(name)
    changed.__file__ = str(mutant.path)
    code = compile(ast.fix_missing_locations(mutant.tree), str(mutant.path), "exec")
    exec(code, vars(changed))  # noqa: S102 - that is what mutants are for
    original = sys.modules[name]
    replace_functions(original, changed)
    before = {key: value for key, value in vars(original).items() if key.isupper()}
    for module in [each for key, each in sys.modules.items() if key.startswith(PREFIX)]:
        same = [key for key, value in before.items() if vars(module).get(key) is value]
        vars(module).update({key: vars(changed)[key] for key in same if key in vars(changed)})


def replace_functions(original: object, changed: object) -> None:
    """Gives the functions of a module or class the code and the defaults of others."""
    for name, new in list(vars(changed).items()):
        old = vars(original).get(name)
        if isinstance(new, type) and new.__module__ == getattr(changed, "__name__", None):
            replace_functions(old, new)
            replace_values(old, new)
        elif (function := function_of(old)) and (other := function_of(new)):
            function.__code__ = other.__code__
            function.__defaults__ = other.__defaults__
            function.__kwdefaults__ = other.__kwdefaults__


def replace_values(original: object, changed: object) -> None:
    """Gives a class the numbers and texts of another one."""
    for name, old in list(vars(original).items()):
        if name.startswith("__") or type(old) not in PLAIN:
            continue
        if name in vars(changed):
            setattr(original, name, vars(changed)[name])
        else:
            delattr(original, name)


def function_of(found: object) -> types.FunctionType | None:
    """The function of this package in an entry of a module or class."""
    if isinstance(found, property):
        found = found.fget
    elif isinstance(found, (classmethod, staticmethod)):
        found = found.__func__
    found = inspect.unwrap(found) if callable(found) else found
    if not isinstance(found, types.FunctionType) or not found.__module__.startswith(PREFIX):
        return None
    return found


# -- running the tests ----------------------------------------------------------------------------


@dataclass(eq=False)
class Test:
    """A collected test: the lines that it runs of each mutated file, and how long it takes."""

    item: pytest.Item
    lines: dict[str, list[int]]
    seconds: float

    def reaches(self, mutant: Mutant) -> bool:
        """Whether it runs the changed lines; what runs at import belongs to all that run any."""
        lines = self.lines.get(str(mutant.path), [])
        return not set(mutant.lines).isdisjoint(lines) if mutant.lines else bool(lines)


class Runner:
    """A plugin that runs the collected tests in a fork for each mutant.

    Only tests that reach the mutant run. The one that killed last comes first: most mutants die by few tests.
    """

    def __init__(self, paths: Sequence[Path], only: str) -> None:
        self.paths, self.only = paths, only
        self.tests: list[Test] = []
        self.status = 1

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of running the tests once."""
        measured = measure(session.items, frozenset(map(str, self.paths)))
        if len(measured) < len(session.items):
            at = session.items[len(measured)]
            print(f"mutants: without any, {at.nodeid} fails", file=sys.stderr)
            return True
        self.tests = sorted(measured, key=lambda test: test.seconds)
        began = time.monotonic()
        counts, survivors = zip(*map(self.run, self.paths), strict=True)
        self.status = report(list(chain(*survivors)), sum(counts), time.monotonic() - began)
        return True

    def run(self, path: Path) -> tuple[int, list[Mutant]]:
        """How many mutants of a file there are, and which of them survive."""
        count, survivors = 0, []
        for mutant in wanted(path, self.only):
            count += 1
            reaching = [test for test in self.tests if test.reaches(mutant)]
            if not (reaching or mutant.lines):  # values alone: no test runs a line of theirs
                reaching = list(self.tests)
            if (failed := first_failing(reaching, mutant)) is None:
                print(f"survives {len(reaching)} tests:", *mutant.key, sep="  ", flush=True)
                survivors.append(mutant)
            elif reaching:
                self.tests.remove(killer := reaching[failed])
                self.tests.insert(0, killer)
        print(f"{path.name}: {count} mutants, {len(survivors)} survived", flush=True)
        return count, survivors


def measure(items: Sequence[pytest.Item], paths: frozenset[str]) -> list[Test]:
    """All tests without a mutant, run in a child of this process; those up to one that fails."""
    with tempfile.TemporaryFile("w+") as file:
        if not (child := os.fork()):
            quieten()
            for item in items:
                limit_time()
                with traced(paths) as lines:
                    began = time.monotonic()
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                if item.session.testsfailed:
                    break
                json.dump((lines, time.monotonic() - began), file, default=list)
                print(file=file, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        file.seek(0)
        return [Test(item, *json.loads(line)) for item, line in zip(items, file, strict=False)]


@contextmanager
def traced(paths: frozenset[str]) -> Iterator[dict[str, set[int]]]:
    """The lines of files that run within it, in any thread."""
    lines: dict[str, set[int]] = {}

    def enter(frame: types.FrameType, event: str, argument: object) -> TraceFunction | None:
        code = frame.f_code
        if code.co_filename not in paths:
            return None
        lines.setdefault(code.co_filename, set()).add(code.co_firstlineno)
        return step(frame, event, argument)

    def step(frame: types.FrameType, _event: str, _argument: object) -> TraceFunction:
        lines[frame.f_code.co_filename].add(frame.f_lineno)
        return step

    threading.settrace(enter)
    sys.settrace(enter)
    yield lines
    sys.settrace(None)
    threading.settrace(None)


def first_failing(tests: Sequence[Test], mutant: Mutant) -> int | None:
    """Which test is the first to fail with a mutant, in a child of this process; 0 if the import fails."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os._exit(fails([test.item for test in tests], mutant, writer))
    os.close(writer)
    status = os.waitpid(child, 0)[1]
    begun = os.read(reader, 1_000_000)  # a byte for each test that was begun
    os.close(reader)
    return max(len(begun) - 1, 0) if status else None


def fails(items: Sequence[pytest.Item], mutant: Mutant, writer: int) -> bool:
    """Runs the tests until one fails."""
    quieten()
    try:
        put_in_place(mutant)
        for item in items:
            os.write(writer, b".")
            limit_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            if item.session.testsfailed:
                return True
    except BaseException:  # noqa: BLE001 - also what ends a test run
        return True
    return False


def quieten() -> None:
    """The child says nothing, and takes no more memory than it may."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def limit_time() -> None:
    """The next test may take so long."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + LONGEST
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    signal.alarm(HANGS)


def family(path: Path) -> str:
    """Which tests are for which modules: those of their room."""
    room = path.parent.relative_to(ROOT).as_posix().partition("/")[2]
    return room if room in ROOMS else "elsewhere"


# -- the page -------------------------------------------------------------------------------------


def explained() -> re.Pattern[str]:
    """The survivors that the page gives a reason for; its ``…`` stands for any text."""
    text = PAGE.read_text(encoding="utf-8").replace("\\|", "¦")
    rows = re.findall(r"^\| `(.+?)` \| `(.*?)` \| `(.+?)` \|", text, re.MULTILINE)
    keys = ("\n".join(row).replace("¦", "|") for row in rows)
    return re.compile("|".join(re.escape(key).replace("…", ".*") for key in keys))


def report(survivors: Sequence[Mutant], count: int, took: float) -> int:
    """Prints what is not explained, as rows for the page; 1 if there is any."""
    known = explained()
    left = [each.key for each in survivors if not known.fullmatch("\n".join(each.key))]
    for row in left:
        print("| " + " | ".join(f"`{part}`".replace("|", "\\|") for part in row) + " | ? |")
    print(
        f"mutants: {count} in {took / 60:.0f} min, {count - len(survivors)} killed, "
        f"{len(survivors)} survived, {len(left)} of those not explained in docs/mutants.md"
    )
    return 1 if left else 0


def wanted(path: Path, only: str) -> Iterator[Mutant]:
    """The mutants of a file whose text contains ``only``."""
    return (mutant for mutant in mutants(path) if only in "  ".join(mutant.key))


def main() -> int:
    """Runs all mutants of the files; 1 if a survivor is not explained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="names in trackers and checkpoints, or any paths")
    parser.add_argument(
        "--tests", nargs="*", default=[], help="files or folders of tests for other paths"
    )
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument("--only", default="", help="mutants whose text contains this")
    options = parser.parse_args()
    paths = list(map(module_path, options.files)) or files("consumer_sdk", ROOMS)
    if options.list:
        for path in paths:
            for mutant in wanted(path, options.only):
                print(*mutant.key, sep="  ")
        return 0
    os.nice(10)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = tempfile.mkdtemp()
    runner = Runner(paths, options.only)
    pytest.main([*OPTIONS, *map(str, tests_of(paths, options.tests))], plugins=[runner])
    return runner.status


def files(top: str, rooms: Iterable[str]) -> list[Path]:
    """The files of rooms."""
    return [path for room in rooms for path in sorted((ROOT / top / room).glob("*.py"))]


def module_path(name: str) -> Path:
    """A module of `ROOMS` by its name, any other by its path from the root."""
    named = (path for path in files("consumer_sdk", ROOMS) if path.name == name)
    return ROOT / name if "/" in name else next(named)


def tests_of(paths: Sequence[Path], others: Sequence[str]) -> list[Path]:
    """All tests of the rooms that are meant; else each module's own, and ``others``."""
    found = [
        path
        for each in others
        for path in sorted((ROOT / each).rglob("test_*.py")) or [ROOT / each]
    ]
    for path in (each for each in paths if family(each) == "elsewhere"):
        place = ROOT / "tests" / path.parent.relative_to(ROOT / "consumer_sdk")
        found.append(place / f"test_{path.stem}.py")
    tests = files("tests", sorted({family(path) for path in paths} & set(ROOMS)))
    found += sorted(tests, key=lambda path: (path.stem.endswith("model"), path))
    chosen = (path for path in found if path.exists() and path.name.startswith("test_"))
    return list(dict.fromkeys(chosen))


if __name__ == "__main__":
    sys.exit(main())
