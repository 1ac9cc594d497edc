"""A real PostgreSQL for the examples' tests: Debian's where it is installed, else one that is fetched.

What is fetched is an archive of programs from Maven, through the Ivy that gets the other servers' jars.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import final

import asyncpg

from consumer_sdk.testing.servers import Artifact, JarSet, Server, ServerError, resolve_jars
from consumer_sdk.testing.servers.cache import cache_folder, is_complete, locked, publish
from consumer_sdk.testing.servers.ports import HOST

VERSION = "17.6.0"
DEBIAN = Path("/usr/lib/postgresql")
MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64v8", "arm64": "arm64v8"}
OPTIONS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    # Its own crash is no test's subject, and a disk that others keep busy would slow each commit.
    "fsync": "off",
}


class PostgresqlUnavailableError(ServerError):
    """This machine can have none."""


@final
class PostgresqlServer(Server):
    """A PostgreSQL on 127.0.0.1 with the superuser ``postgres``, ready in about two seconds.

    Args:
        programs: the folder of its programs; what `find_programs` finds by default.
    """

    name = "PostgreSQL"

    def __init__(self, *, programs: Path | None = None) -> None:
        super().__init__()
        self._programs = programs

    def url(self, database: str = "postgres") -> str:
        """What clients take."""
        return f"postgresql://postgres@{self.address}/{database}"

    async def create_database(self, name: str) -> str:
        """Returns its URL."""
        client = await asyncpg.connect(self.url())
        try:
            await client.execute(f"CREATE DATABASE {name}")
        finally:
            await client.close()
        return self.url(name)

    async def stop(self, *, patience: float = 20.0) -> None:
        """Ends the sessions of clients too; for those SIGTERM alone would wait."""
        if self.is_running:
            os.kill(self.pid, signal.SIGINT)
        await super().stop(patience=patience)

    def _find_program(self) -> Path:
        return self._programs or find_programs()

    def _prepare(self, programs: Path) -> list[str]:
        data = self.directory / "data"
        run = as_nobody()
        if not data.exists():
            how = ["-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"]
            made = subprocess.run(
                [*run, str(programs / "initdb"), "-D", str(data), *how],
                capture_output=True,
                text=True,
                check=False,
            )
            if made.returncode:
                raise ServerError(f"{programs}/initdb failed: {made.stdout}{made.stderr}")
        options = [f"--{name}={value}" for name, value in OPTIONS.items()]
        command = [str(programs / "postgres"), "-D", str(data), "-p", str(self.ports[0])]
        return [*run, *command, *options]

    async def _is_ready(self) -> bool:
        try:
            client = await asyncpg.connect(self.url())
        except (OSError, asyncpg.PostgresError):
            return False
        await client.close()
        return True


def as_nobody() -> list[str]:
    """What runs a command as another user than root, whom PostgreSQL refuses.

    Raises:
        PostgresqlUnavailableError: this machine lets nobody have a user namespace.
    """
    if os.geteuid():
        return []
    run = [shutil.which("unshare") or "unshare", "--user"]
    try:
        subprocess.run([*run, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PostgresqlUnavailableError(
            "PostgreSQL does not run as root, and user namespaces are forbidden here: run the tests "
            "as another user"
        ) from error
    return run


def find_programs() -> Path:
    """The folder of Debian's newest PostgreSQL, else of the fetched one.

    Raises:
        JarResolutionError: it could not be fetched.
        PostgresqlUnavailableError: there is none to fetch for this machine.
    """
    installed = {int(each.parts[-3]): each.parent for each in DEBIAN.glob("[0-9]*/bin/initdb")}
    return installed[max(installed)] if installed else fetched()


def fetched() -> Path:
    """The folder of the fetched one's programs; blocks, for ten seconds at the first call."""
    jars = _archive()
    target = cache_folder() / "unpacked" / jars.folder
    if not is_complete(target):
        with locked(target):
            if not is_complete(target):
                _unpack(resolve_jars(jars), target)
    return target / "bin"


def _archive() -> JarSet:
    system, machine = platform.system().lower(), platform.machine().lower()
    if system not in {"linux", "darwin"} or machine not in MACHINES:
        raise PostgresqlUnavailableError(f"no PostgreSQL is fetched for {system} on {machine}")
    name = f"embedded-postgres-binaries-{system}-{MACHINES[machine]}"
    group = "io.zonky.test.postgres"
    one = Artifact(org=group, name=name, revision=VERSION, conf="default->master")
    return JarSet("postgresql", (one,))


def _unpack(jars: Path, target: Path) -> None:
    (jar,) = jars.glob("*.jar")
    work = target.with_name(f"{target.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    with zipfile.ZipFile(jar) as outer:
        (packed,) = (name for name in outer.namelist() if name.endswith(".txz"))
        with outer.open(packed) as stream, tarfile.open(fileobj=stream, mode="r|xz") as archive:
            # Refuses what would lie outside of the folder; Python 3.12 asks for the choice.
            archive.extractall(work, filter="data")
    publish(work, target)
