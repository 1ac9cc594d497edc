"""Apache Pulsar standalone: broker, bookie and metadata store in one process.

Its archive comes through the PySpark wheel's Ivy, and is unpacked once per user.
"""

import gzip
import logging
import shutil
import sys
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import final

from consumer_sdk.testing.servers.cache import cache_folder, is_complete, locked, publish
from consumer_sdk.testing.servers.errors import JarResolutionError
from consumer_sdk.testing.servers.ivy import Artifact, JarSet, resolve_jars
from consumer_sdk.testing.servers.java import JavaServer, java_version
from consumer_sdk.testing.servers.ports import HOST, ask
from consumer_sdk.testing.servers.pulsar.endpoint import PulsarEndpoint

__all__ = ["PULSAR", "PulsarServer", "unpacked"]

_LOG = logging.getLogger(__name__)
_CHUNK = 1 << 20  # bytes

PULSAR = JarSet(
    "pulsar",
    (
        Artifact(
            org="org.apache.pulsar",
            name="pulsar-server-distribution",
            revision="4.0.8",
            conf="default->master",  # the archive holds all that it needs
            classifier="bin",
            extension="tar.gz",
        ),
    ),
)


def unpacked(archive: JarSet, *, cache: Path | None = None, settings: Path | None = None) -> Path:
    """Return the folder with what an archive holds; fetches and unpacks it when it is not there.

    The archive itself is not kept. Blocks, for half a minute at the first call: call it in a thread.

    Args:
        archive: a set of one tar archive.
        cache: the cache folder; `cache_folder()` by default.
        settings: an Ivy settings file, see `resolve_jars`.

    Raises:
        JarResolutionError: it could not be fetched, or what arrived is no such archive.
        JavaNotFoundError: there is no Java to run Ivy with.
        MissingExtraError: PySpark, which ships Ivy, is not installed.
    """
    target = (cache or cache_folder()) / "unpacked" / archive.folder
    if not is_complete(target):
        with locked(target):
            if not is_complete(target):
                _fetch(archive, target, settings)
    # An archive of a release has one folder, which names the version.
    return next(each for each in target.iterdir() if each.is_dir())


def _fetch(archive: JarSet, target: Path, settings: Path | None) -> None:
    work = target.with_name(f"{target.name}.partial")
    fetched = resolve_jars(archive, cache=work, settings=settings)
    files = work / "files"
    shutil.rmtree(files, ignore_errors=True)
    (packed,) = fetched.glob("*.tar.gz")
    _LOG.info("unpacking %s into %s", packed.name, target)
    _unpack(packed, files)
    publish(files, target)
    shutil.rmtree(work)


def _unpack(packed: Path, files: Path) -> None:
    try:
        _read_to_the_end(packed)
        with tarfile.open(packed) as archive:
            # Refuses what would lie outside of the folder; Python 3.12 asks for the choice.
            archive.extractall(files, filter="data")
        if not any(each.is_dir() for each in files.iterdir()):
            raise tarfile.ReadError("no folder in it")
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        packed.unlink()  # else the next try would find it fetched
        raise JarResolutionError(
            f"{packed.name} is damaged: {error}. It will be fetched again; when that changes "
            "nothing, look at what your mirror or proxy gives under this name"
        ) from error


def _read_to_the_end(packed: Path) -> None:
    # tarfile takes an archive that is cut off between two of its files for a whole one.
    with gzip.open(packed) as content:
        while content.read(_CHUNK):
            pass


# As Pulsar's own script has them, which is not run: it takes a dozen settings from the environment.
_OPENED = (
    "java.base/java.io",
    "java.base/java.nio",
    "java.base/java.util.zip",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
_BOOKIE = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"
_JAVA_OPTIONS = (
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "--enable-native-access=ALL-UNNAMED",
    "-Djava.net.preferIPv4Stack=true",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dorg.apache.pulsar.shade.io.netty.tryReflectionSetAccessible=true",
    f"-Dbookkeeper.metadata.bookie.drivers={_BOOKIE}BookieDriver",
    f"-Dbookkeeper.metadata.client.drivers={_BOOKIE}ClientDriver",
    "-Dlog4j.shutdownHookEnabled=false",
    "-Dlog4j2.is.webapp=false",
    "-Dpulsar.allocator.exit_on_oom=true",
    "-Xms256m",
)
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
_UNSAFE_JAVA = 23  # from here on Java has to be told that Netty may use Unsafe


@final
class PulsarServer(JavaServer, PulsarEndpoint):
    """A real Pulsar on 127.0.0.1, ready in about six seconds; takes about 450 MB.

    A topic that has no retention deletes what all its subscriptions acked: make the subscriptions
    before producing.

    Args:
        directory: where configuration, data and log lie; a temporary folder by default.
        port: the port for clients; a free one by default.
        properties: broker settings that add to or replace ours, such as
            ``{"acknowledgmentAtBatchIndexLevelEnabled": "false"}``.
        heap: the largest Java heap, as Java writes it; as much again may lie beside it.
        settings: an Ivy settings file, see `resolve_jars`.
        start_timeout: seconds until a server that is not ready counts as failed.
        quick: leave out Java's second compiler, for a start with half of the work. A benchmark should
            measure what users run instead: False.
    """

    name = "Pulsar"
    port_count = 3

    def __init__(
        self,
        *,
        directory: Path | str | None = None,
        port: int | None = None,
        properties: Mapping[str, object] | None = None,
        heap: str = "768m",
        settings: Path | None = None,
        start_timeout: float = 240.0,
        quick: bool = True,
    ) -> None:
        super().__init__(directory=directory, port=port, start_timeout=start_timeout, quick=quick)
        self._properties = dict(properties or {})
        self._heap = heap
        self._settings = settings

    @property
    def service_url(self) -> str:
        """``pulsar://host:port`` for clients."""
        return f"pulsar://{self.address}"

    @property
    def admin_url(self) -> str:
        """``http://host:port`` of the admin interface."""
        return f"http://{HOST}:{self.ports[1]}"

    def _prepare(self, java: Path) -> list[str]:
        home = unpacked(PULSAR, settings=self._settings)
        shipped = (home / "conf" / "standalone.conf").read_text(encoding="utf-8")
        config = self._write_properties(
            "standalone.conf", {**_properties_of(shipped), **self._all_properties()}
        )
        memory = [f"-Xmx{self._heap}", f"-XX:MaxDirectMemorySize={self._heap}"]
        options = [*_options_of(java), *self._java_options(), *memory, self._logging_option()]
        main = "org.apache.pulsar.PulsarStandaloneStarter"
        return [str(java), *options, "-cp", f"{home}/lib/*", main, *self._arguments(config)]

    async def _is_ready(self) -> bool:
        # The first is cheap; the second writes and reads a message.
        return b'"public/default"' in await self._get("namespaces/public") and (
            await self._get("brokers/health")
        ).endswith(b"\r\n\r\nok")

    async def _get(self, path: str) -> bytes:
        """Return the whole answer to a GET, empty when there is none."""
        port = self.ports[1]
        return await ask(
            HOST, port, f"GET /admin/v2/{path} HTTP/1.0\r\nHost: {HOST}:{port}\r\n\r\n".encode()
        )

    def _arguments(self, config: Path) -> list[str]:
        data = self.directory / "data"
        return [
            *("--config", str(config)),
            *("--no-functions-worker", "--no-stream-storage"),
            *("--advertised-address", HOST),
            *("--bookkeeper-port", str(self.ports[2])),
            *("--metadata-dir", str(data / "metadata")),
            *("--bookkeeper-dir", str(data / "bookkeeper")),
        ]

    def _all_properties(self) -> dict[str, object]:
        clients, web, _ = self.ports
        return {
            "brokerServicePort": clients,
            "webServicePort": web,
            "bindAddress": HOST,
            "advertisedAddress": HOST,
            # The bookie's: without the first it takes any port, without the second any address.
            "allowEphemeralPorts": "true",
            "listeningInterface": _LOOPBACK,
            "acknowledgmentAtBatchIndexLevelEnabled": "true",
            # A topic that a test left alone for a minute is still there.
            "brokerDeleteInactiveTopicsEnabled": "false",
            # What makes it small.
            "webSocketServiceEnabled": "false",
            "managedLedgerCacheSizeMB": 64,
            "managedLedgerPersistIndividualAckAsLongArray": "true",
            "numIOThreads": 2,
            "numHttpServerThreads": 4,
            **self._properties,
        }


def _options_of(java: Path) -> list[str]:
    unsafe = ["--sun-misc-unsafe-memory-access=allow"] if java_version(java) >= _UNSAFE_JAVA else []
    return [*unsafe, *_JAVA_OPTIONS]


def _properties_of(text: str) -> dict[str, object]:
    """Return a file's settings: ours replace them, since one that stands twice is a list."""
    lines = (line.split("=", 1) for line in text.splitlines() if not line.lstrip().startswith("#"))
    return {pair[0].strip(): pair[1].strip() for pair in lines if len(pair) > 1}
