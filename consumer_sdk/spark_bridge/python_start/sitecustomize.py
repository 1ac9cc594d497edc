"""A Python process of Spark takes PySpark from its folder, instead of compiling it.

Spark puts ``SPARK_HOME/python/lib/pyspark.zip`` first on the path of each Python process that it starts. The
zip has no byte code: each process compiles what it imports from there, which takes most of its start. The
same package lies beside the zip as a folder, with byte code, both where pip has installed PySpark and in
Spark's own archive.

`consumer_sdk.spark_bridge.register` puts this file's folder on the path of the source's processes. Python
imports the first ``sitecustomize`` on its path; this one then runs the next, which it has hidden.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

_NAME = "pyspark"


class _Folder:
    """Finds the package where it lies as a folder; the zip has no other.

    Args:
        parent: of the folder.
    """

    def __init__(self, parent: Path) -> None:
        self._path = [str(parent)]

    def find_spec(self, name: str, target: Any = None) -> ModuleSpec | None:
        """As Python asks the finder of an entry of its path."""
        return PathFinder.find_spec(name, self._path, target) if name == _NAME else None


def _parent(archive: Path) -> Path | None:
    """Of the same package as a folder; None where there is none."""
    home = archive.parents[2]
    installed = home.parent if home.name == _NAME else None
    places = [home / "python", *([installed] if installed else [])]
    return next((each for each in places if (each / _NAME / "__init__.py").is_file()), None)


def _skip_zip() -> None:
    for entry in sys.path:
        archive = Path(entry)
        if archive.parts[-3:] == ("python", "lib", f"{_NAME}.zip") and (parent := _parent(archive)):
            sys.path_importer_cache[entry] = _Folder(parent)


def _run_next() -> None:
    own = str(Path(__file__).parent)
    sys.path[:] = [entry for entry in sys.path if entry != own]
    if PathFinder.find_spec(__name__, sys.path) is not None:
        del sys.modules[__name__]
        import_module(__name__)


if __name__ == "sitecustomize":
    _skip_zip()
    _run_next()
