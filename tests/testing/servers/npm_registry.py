"""A registry of npm packages on 127.0.0.1, with one package."""

import base64
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import final

NAME, VERSION = "present", "1.0.0"


@cache  # its hash has the second in it
def tarball() -> bytes:
    """Return the package as npm packs it; its install script would leave a file behind."""
    manifest = {"name": NAME, "version": VERSION, "scripts": {"install": "touch it-ran"}}
    files = {"package.json": json.dumps(manifest), "index.js": "module.exports = 'hello'\n"}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


def write_manifests(folder: Path, packed: bytes) -> Path:
    """Write package.json and package-lock.json that pin the packed package by its hash."""
    digest = base64.b64encode(hashlib.sha512(packed).digest()).decode()
    wanted = {"name": "wanted", "dependencies": {NAME: VERSION}}
    locked = {"version": VERSION, "integrity": f"sha512-{digest}", "hasInstallScript": True}
    packages = {"": wanted, f"node_modules/{NAME}": locked}
    lock = {"name": "wanted", "lockfileVersion": 3, "requires": True, "packages": packages}
    folder.mkdir()
    (folder / "package.json").write_text(json.dumps(wanted), encoding="utf-8")
    (folder / "package-lock.json").write_text(json.dumps(lock), encoding="utf-8")
    return folder


@final
class Registry(ThreadingHTTPServer):
    """Serves the package's page and its file, and counts what was asked for."""

    def __init__(self, packed: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.packed = packed
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        """The registry's address, for npm's configuration."""
        return f"http://127.0.0.1:{self.server_port}/"

    def body(self, path: str) -> bytes:
        """Return what lies at a path."""
        if path.endswith(".tgz"):
            return self.packed
        dist = {"tarball": f"{self.url}{NAME}/-/{NAME}-{VERSION}.tgz"}
        version = {"name": NAME, "version": VERSION, "dist": dist}
        page = {"name": NAME, "dist-tags": {"latest": VERSION}, "versions": {VERSION: version}}
        return json.dumps(page).encode()


@final
class _Answers(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        body = self.server.body(self.path)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(packed: bytes) -> Iterator[Registry]:
    """Run a registry in a thread."""
    with Registry(packed) as registry:
        thread = threading.Thread(target=registry.serve_forever)
        thread.start()
        try:
            yield registry
        finally:
            registry.shutdown()
            thread.join()
