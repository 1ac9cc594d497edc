"""Confluent's Parallel Consumer: its jars are fetched and the program compiled when first used.

The compiler is a jar, too: a Java runtime (17 or newer) is all that must be installed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from benchmarks.contestant import Job
from benchmarks.process import ROOT, ContestantError, tail
from consumer_sdk.errors import ConsumerSdkError
from consumer_sdk.testing.servers import Artifact, JarSet, find_java, resolve_jars

__all__ = ["ParallelConsumer"]

_LIBRARY = JarSet(
    "parallel-consumer",
    (
        Artifact(
            org="io.confluent.parallelconsumer", name="parallel-consumer-core", revision="0.5.3.2"
        ),
    ),
)
_COMPILER = JarSet("ecj", (Artifact(org="org.eclipse.jdt", name="ecj", revision="3.37.0"),))
_SOURCE = Path(__file__).parent / "ParallelConsumer.java"


class ParallelConsumer:
    """The program, ready to run.

    Raises:
        ContestantError: no Java, no PySpark (it ships the resolver), or jars that cannot be had.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        say("Parallel Consumer: fetching its jars and compiling, unless that was done before")
        try:
            self._java = str(find_java())
            library, compiler = resolve_jars(_LIBRARY), resolve_jars(_COMPILER)
        except ConsumerSdkError as error:
            raise ContestantError(str(error)) from error
        jars = sorted(str(jar) for jar in library.glob("*.jar"))
        classes = ROOT / "build" / "benchmarks" / sha256(_SOURCE.read_bytes()).hexdigest()[:10]
        if not classes.exists():
            self._compile(next(compiler.glob("*.jar")), jars, classes)
        self._classpath = os.pathsep.join([str(classes), *jars])

    def _compile(self, compiler: Path, jars: list[str], classes: Path) -> None:
        arguments = ["-17", "-cp", os.pathsep.join(jars), "-d", str(classes), str(_SOURCE)]
        done = subprocess.run(
            [self._java, "-jar", str(compiler), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ContestantError(tail(done.stdout + done.stderr))

    def command(self, job: Job) -> list[str]:
        """The command of one run."""
        numbers = [job.concurrency, round(job.work * 1000), job.records, job.warmup]
        return [
            *(self._java, "-Xmx1g", "-cp", self._classpath, "ParallelConsumer"),
            *(job.servers, job.topic, job.group),
            *map(str, numbers),
        ]
