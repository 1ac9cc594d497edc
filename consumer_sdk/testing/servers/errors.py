"""What goes wrong when a real server is started.

::

    ConsumerSdkError
    └── ServerError                a test server could not be started, or not be used as asked
        ├── JavaNotFoundError      no Java, or one that is too old
        ├── JarResolutionError     the server's jars could not be had
        ├── NodePackageError       the server's npm package could not be had
        ├── PortInUseError         somebody else listens on the wanted port
        ├── ServerStartError       the server ended, or was not ready in time
        └── ExternalServerError    this server was not started here, so it cannot be stopped here
"""

from pathlib import Path

from consumer_sdk.errors import ConsumerSdkError

__all__ = [
    "ExternalServerError",
    "JarResolutionError",
    "JavaNotFoundError",
    "NodePackageError",
    "PortInUseError",
    "ServerError",
    "ServerStartError",
    "tail",
]


class ServerError(ConsumerSdkError):
    """A test server could not be started, or not be used as asked."""


class JavaNotFoundError(ServerError):
    """There is no Java, or only one that is too old for the servers."""


class JarResolutionError(ServerError):
    """The jars of a server could not be had; the message ends with what the resolver said."""


class NodePackageError(ServerError):
    """The npm package of a server could not be had; the message ends with what npm said."""


class PortInUseError(ServerError):
    """Another process listens on a port that the server was asked to use."""


class ServerStartError(ServerError):
    """The server ended at its start, or was not ready in time; the message ends with its log."""


class ExternalServerError(ServerError):
    """The server runs elsewhere: it can be used, but neither stopped nor killed nor paused."""


def tail(log: Path, lines: int = 25) -> str:
    """Return the last lines of a log file, or a note when there are none."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace").rstrip()
    except FileNotFoundError:
        text = ""
    return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"
