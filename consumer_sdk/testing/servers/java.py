"""The Java that runs servers, and what those have in common."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from consumer_sdk.testing.servers.errors import JavaNotFoundError
from consumer_sdk.testing.servers.server import Server

__all__ = ["OLDEST_JAVA", "JavaServer", "find_java", "java_version"]

OLDEST_JAVA = 17  # Kafka 4 and Spark 4 both need it
_FIX = (
    f"install Java {OLDEST_JAVA} or newer (openjdk-17-jre-headless on Debian and Ubuntu, "
    "java-17-openjdk-headless on Fedora) or point JAVA_HOME at one"
)

_QUICK = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",  # the jars' hashes are checked
)
_THOROUGH = ("-XX:+UseG1GC",)

_LOG4J = """\
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %-5p %c{1.}: %m%n
rootLogger.level=INFO
rootLogger.appenderRef.out.ref=out
"""


def find_java() -> Path:
    """Return the path of a Java that is new enough: JAVA_HOME's, else the first on PATH.

    Raises:
        JavaNotFoundError: there is none, it does not run, or it is older than `OLDEST_JAVA`.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise JavaNotFoundError(f"no java found in {where}; {_FIX}")
    version = java_version(java)
    if version < OLDEST_JAVA:
        raise JavaNotFoundError(f"{java} is Java {version}; {_FIX}")
    return Path(java)


class JavaServer(Server):
    """A `Server` that Java runs; its data outlives `stop`, `kill` and `restart`.

    Args:
        quick: leave out Java's second compiler, its verifier, and its collector with threads of its
            own. A start costs half of the processor time; a benchmark should measure what users run instead.
    """

    def __init__(
        self,
        *,
        directory: Path | str | None = None,
        port: int | None = None,
        start_timeout: float = 600.0,
        quick: bool = True,
    ) -> None:
        super().__init__(directory=directory, port=port, start_timeout=start_timeout)
        self._quick = quick

    def _java_options(self) -> list[str]:
        return list(_QUICK if self._quick else _THOROUGH)

    def _find_program(self) -> Path:
        return find_java()

    def _write_properties(self, name: str, properties: Mapping[str, object]) -> Path:
        """Write a file of ``key=value`` lines beside the data."""
        path = self.directory / name
        lines = (f"{key}={value}\n" for key, value in properties.items())
        path.write_text("".join(lines), encoding="utf-8")
        return path

    def _logging_option(self) -> str:
        """Return the JVM option that sends the server's log to its standard output."""
        log4j = self.directory / "log4j2.properties"
        log4j.write_text(_LOG4J, encoding="utf-8")
        return f"-Dlog4j2.configurationFile={log4j}"


def java_version(java: str | Path) -> int:
    """Return the major version of a Java.

    Raises:
        JavaNotFoundError: it does not run.
    """
    # The version goes to stderr on every Java, and "1.8.0" is how Java 8 writes it.
    result = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False)  # noqa: S603  the user's Java
    match = re.search(r'version "(?:1\.)?(\d+)', result.stderr)
    if result.returncode or match is None:
        raise JavaNotFoundError(f"{java} -version failed: {result.stderr.strip()}; {_FIX}")
    return int(match[1])
