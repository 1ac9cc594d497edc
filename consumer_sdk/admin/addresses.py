"""Where an admin server listens: what can be written, and sockets that nobody else has."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import re
import socket
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from consumer_sdk.errors import ConfigurationError

__all__ = ["FORMS", "Address", "default_directory", "listen", "living_sockets", "parse_address"]

FORMS = "unix:/path/of/a/socket, 127.0.0.1:9464, [::1]:9464, or 0.0.0.0:9464 with a token"
LONGEST_PATH = 107
"""Bytes of a Unix socket's path that every system takes."""
HIGHEST_PORT = 65_535
_servers = count()
"""Of this process: several may show consumers of one group."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port, or the path of a Unix socket.

    Attributes:
        port: 0 for a free one.
        path: of a Unix socket; None for TCP.
    """

    host: str = ""
    port: int = 0
    path: Path | None = None

    @property
    def is_private(self) -> bool:
        """Only programs of this machine get here; of a socket, only those of this user."""
        return self.path is not None or ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        """As a person opens it."""
        if self.path is not None:
            return f"unix:{self.path}"
        return f"http://{_bracketed(self.host)}:{self.port}/"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def parse_address(text: str | None, name: str) -> Address:
    """What was written; for None, a socket called ``name`` in the directory where `top` looks.

    Raises:
        ConfigurationError: nobody can listen there.
    """
    if text is None:
        file = f"{_file_name(name)}-{os.getpid()}-{next(_servers)}.sock"
        return Address(path=default_directory() / file)
    if text.startswith("unix:"):
        return Address(path=_path(text))
    host, colon, port = text.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ConfigurationError(f"address={text!r}: give {FORMS}") from None
    if not (colon and port.isascii() and port.isdecimal() and int(port) <= HIGHEST_PORT):
        raise ConfigurationError(f"address={text!r}: give a port after the colon, such as {FORMS}")
    return Address(host, int(port))


def _path(text: str) -> Path:
    path = Path(text.removeprefix("unix:"))
    if not path.is_absolute():
        raise ConfigurationError(f"address={text!r}: give the socket's whole path, from / on")
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise ConfigurationError(f"address={text!r}: systems take {LONGEST_PATH} bytes at most")
    return path


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:40] or "consumer"


# -- the directory of sockets without a name ------------------------------------------------


def default_directory() -> Path:
    """Where sockets are that were given no path: this user's alone."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "consumer_sdk"
    return Path(tempfile.gettempdir()) / f"consumer_sdk-{os.getuid()}"


def _make_directory(path: Path) -> None:
    """The directory of `default_directory`, which others may have made before us in ``/tmp``."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_directory(path)


def _check_directory(path: Path) -> None:
    found = path.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_ours or found.st_mode & 0o077:
        raise ConfigurationError(
            f"{path} is not a directory of this user alone (mode 0700); remove it, or give the "
            "admin server an address"
        )


def living_sockets(directory: Path) -> list[Path]:
    """Those that somebody listens on; what dead processes have left is removed."""
    if not directory.exists():
        return []
    _check_directory(directory)
    found = sorted(directory.glob("*.sock"), key=lambda path: path.stat().st_mtime)
    living = [path for path in found if _is_listened_on(path)]
    for dead in set(found) - set(living):
        dead.unlink(missing_ok=True)
    return living


# -- listening ------------------------------------------------------------------------------


def listen(address: Address) -> tuple[socket.socket, Address]:
    """A socket that listens, and its address with the port that was found.

    Raises:
        ConfigurationError: somebody listens there, or nobody may.
    """
    if address.path is not None:
        return _listen_at(address.path), address
    kind = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(kind, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise _refused(str(address), error) from error
    return listener, Address(address.host, listener.getsockname()[1])


def _listen_at(path: Path) -> socket.socket:
    """A socket of mode 0600, in place of one that a dead process has left.

    It gets its name when it is ready: nobody connects to one that others may still open, and of two
    processes that start at once, the later one is reached.
    """
    if path.parent == default_directory():
        _make_directory(path.parent)
    _check_free(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    making = path.with_name(f".{os.getpid()}")
    try:
        making.unlink(missing_ok=True)
        listener.bind(str(making))
        making.chmod(0o600)
        listener.listen()
        making.replace(path)
    except OSError as error:
        listener.close()
        with contextlib.suppress(OSError):
            making.unlink(missing_ok=True)
        raise _refused(f"unix:{path}", error) from error
    return listener


def _check_free(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigurationError(
            f"unix:{path} is a file that is no socket; give another path, or remove it"
        )
    if _is_listened_on(path):
        raise ConfigurationError(
            f"another process listens on unix:{path}; give each consumer's server its own path"
        )


def _is_listened_on(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # such as its queue is full: somebody is there
            return True
    return True


REASONS: Sequence[tuple[int, str]] = (
    (errno.EADDRINUSE, "another process listens there; give another port, or 0 for a free one"),
    (errno.EADDRNOTAVAIL, "this machine has no such address; give 127.0.0.1, or one of its own"),
    (
        errno.EACCES,
        "this user may not listen there; give a port from 1024 up, or another directory",
    ),
    (errno.ENOENT, "there is no such directory; make it first"),
)


def _refused(where: str, error: OSError) -> ConfigurationError:
    why = dict(REASONS).get(error.errno or 0, str(error))
    return ConfigurationError(f"the admin server cannot listen on {where}: {why}")
