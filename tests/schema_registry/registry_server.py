"""A schema registry in the test's own process: a real HTTP server with Confluent's interface."""

from __future__ import annotations

import base64
import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["RegistryServer", "basic", "running"]


class RegistryServer:
    """What the server has, what it is to say next, and what it was asked.

    Attributes:
        next: answers that come before all else, ``(status, body, headers)``.
        asked: paths with queries.
        wanted: the header that requests need.
    """

    def __init__(self) -> None:
        self.url = ""
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[tuple[str, int], int] = {}
        self.serialized: dict[int, bytes] = {}
        self.next: deque[tuple[int, bytes, dict[str, str]]] = deque()
        self.asked: list[str] = []
        self.seen: list[dict[str, str]] = []
        self.wanted: str | None = None

    def add(
        self,
        number: int,
        schema: Any,
        *,
        kind: str = "AVRO",
        subject: str = "orders-value",
        references: Any = (),
        serialized: bytes = b"",
    ) -> None:
        """Registers a schema as the subject's next version."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        # The real one leaves the type of Avro out.
        named = {} if kind == "AVRO" else {"schemaType": kind}
        self.schemas[number] = {"schema": text, "references": list(references)} | named
        self.serialized[number] = serialized
        version = 1 + sum(each == subject for each, _ in self.subjects)
        self.subjects[subject, version] = number

    def answer(self, target: str, headers: dict[str, str]) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers."""
        self.asked.append(target)
        self.seen.append(headers)
        if self.next:
            return self.next.popleft()
        if self.wanted is not None and headers.get("authorization") != self.wanted:
            return 401, b'{"error_code":40101,"message":"Unauthorized"}', {}
        found = self._found(target)
        return (200 if "schema" in found else 404), json.dumps(found).encode(), {}

    def _found(self, target: str) -> dict[str, Any]:
        parts = urlsplit(target)
        match parts.path.strip("/").split("/"):
            case ["schemas", "ids", number]:
                known = int(number)
                unknown = {"error_code": 40403, "message": "Schema not found"}
            case ["subjects", subject, "versions", version]:
                known = self._number(subject, version)
                unknown = {"error_code": 40401, "message": f"Subject '{subject}' not found."}
            case _:
                return {"error_code": 404, "message": "HTTP 404 Not Found"}
        found = self.schemas.get(known)
        if found is None:
            return unknown
        if parse_qs(parts.query).get("format") == ["serialized"]:
            return found | {"schema": base64.b64encode(self.serialized[known]).decode()}
        return found

    def _number(self, subject: str, version: str) -> int:
        known = [number for name, number in self.subjects if name == subject]
        wanted = max(known, default=0) if version == "latest" else int(version)
        return self.subjects.get((subject, wanted), -1)


@contextmanager
def running() -> Iterator[RegistryServer]:
    """A registry that listens on a free port of this machine."""
    registry = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, body, more = registry.answer(self.path, headers)
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | more).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()


def basic(name: str, password: str) -> str:
    """The header of HTTP basic authentication."""
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"
