"""Pages, their snippets and what they show of a terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

DOCS = Path(__file__).parents[2] / "docs"
SNIPPETS = DOCS / "snippets"


class Page:
    """A page of docs.

    Args:
        name: without its suffix, also the name of its folder of snippets; "readme" is README.md.
    """

    def __init__(self, name: str) -> None:
        self.snippets = SNIPPETS / name
        path = DOCS.parent / "README.md" if name == "readme" else DOCS / f"{name}.md"
        self.text = path.read_text(encoding="utf-8")

    def shown(self, command: str) -> str:
        """What the page shows below ``$ command``, up to the next command or the end of its block."""
        found = re.search(
            rf"^ *\$ {re.escape(command)}\n(.*?)^ *(?:```|\$ )", self.text, re.MULTILINE | re.DOTALL
        )
        assert found, f"the page does not show: $ {command}"
        return dedent(found[1])

    def included(self) -> set[str]:
        """The snippets that the page includes."""
        return set(re.findall(r"^ *```\{literalinclude\} snippets/(\S+)$", self.text, re.MULTILINE))

    def copied(self, folder: Path, names: dict[str, str]) -> Page:
        """The page with copies of its snippets, in which streams have names of the test's own.

        Args:
            names: what stands in the snippets → what stands in the copies.
        """
        copy = Page.__new__(Page)
        copy.text, copy.snippets = self.text, folder
        for path in self.snippets.glob("*.*"):
            text = path.read_text(encoding="utf-8")
            for name, other in names.items():
                text = text.replace(name, other)
            (folder / path.name).write_text(text, encoding="utf-8")
        return copy

    def printed(self, command: str, **environment: str) -> str:
        """What a snippet prints that ends by itself."""
        done = subprocess.run(
            self._command(command),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env=_with(environment),
        )
        return done.stdout

    @contextmanager
    def running(self, command: str, **environment: str) -> Iterator[Snippet]:
        """A snippet that runs until it is told to end."""
        with subprocess.Popen(
            self._command(command), stdout=subprocess.PIPE, text=True, env=_with(environment)
        ) as process:
            try:
                yield Snippet(process)
            finally:
                process.kill()

    def _command(self, command: str) -> list[str]:
        python, file, *arguments = command.split()
        assert python == "python"
        return [sys.executable, str(self.snippets / file), *arguments]


class Snippet:
    """A snippet that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def lines(self, count: int) -> str:
        """The next lines that it prints."""
        assert self._process.stdout is not None
        return "".join(self._process.stdout.readline() for _ in range(count))

    def kill(self) -> None:
        """As ``kill -9``."""
        self._process.kill()
        self._process.wait()

    def until_interrupted(self, shown: str, wait: Callable[[], None] = lambda: None) -> str:
        """What it prints, with Ctrl-C where the page shows it.

        Args:
            wait: returns once what was printed is durable.
        """
        before, interrupt, _after = shown.partition("^C\n")
        printed = self.lines(before.count("\n"))
        wait()
        self._process.send_signal(signal.SIGINT)
        rest, _ = self._process.communicate()
        assert self._process.returncode == 0
        return printed + interrupt + rest


def _with(environment: dict[str, str]) -> dict[str, str]:
    # Spark's tasks run in this Python, and not in the first one of PATH.
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, **environment}
