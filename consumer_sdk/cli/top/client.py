"""Asks an admin server through its Unix socket or its URL."""

from __future__ import annotations

import http.client
import json
import os
import socket
from typing import Any
from urllib.parse import quote, urlsplit

from consumer_sdk.admin.addresses import default_directory, living_sockets
from consumer_sdk.errors import ConfigurationError, ConsumerSdkError

__all__ = ["AdminClient", "NoAnswerError", "find", "printable"]


PATIENCE = 5.0
"""Seconds that the server may take for one answer."""
VIEW = {"name", "streams", "state", "reasons", "totals", "held", "partitions", "points", "events"}
"""What `top` shows of a consumer."""
FORMS = "a socket's path, unix:/path, or http://host:port"


class NoAnswerError(ConsumerSdkError):
    """Nobody listens there, or what answers is no admin server."""


def find(given: str | None) -> str:
    """Where the server is: what was given, or the one socket of this user's consumers.

    Raises:
        ConfigurationError: no consumer of this user has a socket without a path, or several have.
    """
    if given is not None:
        return given
    directory = default_directory()
    found = living_sockets(directory)
    if len(found) == 1:
        return f"unix:{found[0]}"
    if found:
        raise ConfigurationError(f"several consumers run; give one of {', '.join(map(str, found))}")
    raise ConfigurationError(
        f"no consumer has its socket in {directory}: start it with admin.serve(consumer), or give "
        f"{FORMS}"
    )


class AdminClient:
    """What an admin server answers; a connection for each question.

    Args:
        where: a path, ``unix:/path``, or a URL.
        token: the server's.

    Raises:
        ConfigurationError: it is none of these.
    """

    def __init__(self, where: str, token: str | None = None) -> None:
        self.where = where
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._path: str | None = None
        self._prefix = ""
        if where.startswith(("unix:", "/", "./")):
            self._path = where.removeprefix("unix:")
            return
        try:
            self._url = urlsplit(where)
            is_http = self._url.scheme in {"http", "https"} and self._url.port != 0
        except ValueError:
            is_http = False
        if not is_http or not self._url.hostname:
            raise ConfigurationError(f"{where!r} is no admin server: give {FORMS}")
        self._prefix = self._url.path.rstrip("/")

    def view(self) -> dict[str, Any]:
        """What the page shows now; has one consumer at least."""
        found = self._ask("GET", "/api/view")
        consumers = self._consumers(found)
        if not consumers or not all(each.keys() >= VIEW for each in consumers):
            raise self._stranger(http.HTTPStatus.OK)
        return found

    def snapshots(self) -> list[dict[str, Any]]:
        """The whole snapshot of each consumer."""
        return self._consumers(self._ask("GET", "/api/snapshot"))

    def _consumers(self, found: dict[str, Any]) -> list[dict[str, Any]]:
        consumers = found.get("consumers")
        if not isinstance(consumers, list) or not all(isinstance(c, dict) for c in consumers):
            raise self._stranger(http.HTTPStatus.OK)
        return consumers

    def _stranger(self, status: int) -> NoAnswerError:
        return NoAnswerError(f"what answers at {self.where} is no admin server (status {status:d})")

    def set_paused(self, consumer: int, stream: str, id_: str, *, is_paused: bool) -> None:
        """Pauses a partition, or resumes it."""
        what = "pause" if is_paused else "resume"
        path = f"/api/partitions/{quote(stream, safe='')}/{quote(id_, safe='')}/{what}"
        self._ask("POST", f"{path}?consumer={consumer}", b'{"reason": "in consumer-sdk top"}')

    def _ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        connection = self._connection()
        headers = {**self._headers, "X-Consumer-Sdk": "1", "Connection": "close"}
        try:
            connection.request(method, self._prefix + path, body, headers)
            answer = connection.getresponse()
            return self._read(answer.status, answer.read())
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswerError(
                f"nobody answers at {self.where}: {error}; is the consumer running, with its admin "
                "server there?"
            ) from error
        finally:
            connection.close()

    def _read(self, status: int, body: bytes) -> dict[str, Any]:
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._stranger(status)
        if status == http.HTTPStatus.UNAUTHORIZED:
            raise ConfigurationError(
                f"{self.where} asks for its token: give --token env:NAME or --token file:/path"
            )
        if "error" in found:
            raise NoAnswerError(printable(str(found["error"])))
        if status == http.HTTPStatus.NOT_FOUND:
            raise NoAnswerError(f"{self.where} has no view: its server was given view=False")
        return found

    def _connection(self) -> http.client.HTTPConnection:
        if self._path is not None:
            return _UnixConnection(self._path)
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=PATIENCE)
        return http.client.HTTPConnection(host, port, timeout=PATIENCE)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        """To the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(os.fspath(self._path))


def printable(value: Any) -> Any:
    """An answer without characters that a terminal obeys: a record's key, say, may hold anything."""
    if isinstance(value, str):
        return value if value.isprintable() else "".join(map(_escaped, value))
    if isinstance(value, dict):
        return {name: printable(each) for name, each in value.items()}
    return [printable(each) for each in value] if isinstance(value, list) else value


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()
