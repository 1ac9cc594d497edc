"""Java programs of this repository: a program is compiled when it is first used.

The compiler is a jar, too: a Java runtime (17 or newer) is all that must be installed.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path

from benchmarks.process import ROOT, ContestantError, tail
from consumer_sdk.errors import ConsumerSdkError
from consumer_sdk.testing.servers import Artifact, JarSet, find_java, resolve_jars

__all__ = ["JavaProgram"]

_COMPILER = JarSet("ecj", (Artifact(org="org.eclipse.jdt", name="ecj", revision="3.37.0"),))


class JavaProgram:
    """A class with a ``main``, compiled.

    Args:
        source: the file; the class has its name.
        library: the jars that it needs.

    Raises:
        ContestantError: no Java, no PySpark (it ships the resolver), jars that cannot be had, or a source that
            does not compile.
    """

    def __init__(self, source: Path, library: JarSet) -> None:
        try:
            self._java = str(find_java())
            folders = [resolve_jars(each) for each in (library, _COMPILER)]
        except ConsumerSdkError as error:
            raise ContestantError(str(error)) from error
        jars, (compiler,) = (sorted(map(str, each.glob("*.jar"))) for each in folders)
        text = source.read_bytes() + library.folder.encode()
        classes = ROOT / "build" / "java" / f"{source.stem}-{sha256(text).hexdigest()[:10]}"
        if not classes.exists():
            self._compile(compiler, source, jars, classes)
        self._classpath = os.pathsep.join([str(classes), *jars])
        self._main = source.stem

    def _compile(self, compiler: str, source: Path, jars: list[str], classes: Path) -> None:
        """Other processes may compile the same meanwhile: a folder gets its name when it is whole."""
        classes.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=classes.parent) as place:
            made = Path(place) / "classes"
            arguments = ["-17", "-cp", os.pathsep.join(jars), "-d", str(made), str(source)]
            command = [self._java, "-jar", compiler, *arguments]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise ContestantError(tail(done.stdout + done.stderr))
            try:
                made.rename(classes)
            except OSError:
                if not classes.exists():
                    raise

    def command(self, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        """The command of one run; ``options`` are Java's."""
        return [self._java, *options, "-cp", self._classpath, self._main, *arguments]
