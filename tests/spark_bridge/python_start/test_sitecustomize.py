"""What Spark's Python processes run before anything else."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

START = Path(__file__).parents[3] / "consumer_sdk" / "spark_bridge" / "python_start"


def make_home(home: Path, folder: Path) -> str:
    """A home of Spark with a zip of PySpark, and the same package as a folder; returns the zip's path."""
    library = home / "python" / "lib"
    library.mkdir(parents=True)
    archive = library / "pyspark.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("pyspark/__init__.py", "FROM = 'zip'")
        packed.writestr("pyspark/worker.py", "FROM = 'zip'")
    if folder != home:
        folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("FROM = 'folder'")
    (folder / "worker.py").write_text("FROM = 'folder'")
    return str(archive)


def printed(program: str, *path: str) -> str:
    """What a Python process prints that has this path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    )
    assert not done.stderr
    return done.stdout.strip()


WORKER = "import pyspark, pyspark.worker; print(pyspark.FROM, pyspark.worker.FROM)"


@pytest.mark.parametrize("place", ["pyspark", "spark/python/pyspark"])
def test_a_process_takes_pyspark_from_the_folder_beside_the_zip(tmp_path: Path, place: str) -> None:
    """As pip installs it, and as it lies in Spark's archive."""
    home = tmp_path / place.split("/", maxsplit=1)[0]
    archive = make_home(home, tmp_path / place)
    assert printed(WORKER, archive) == "zip zip"
    assert printed(WORKER, archive, str(START)) == "folder folder"


def test_a_zip_without_a_folder_is_taken(tmp_path: Path) -> None:
    """There is nothing better."""
    archive = make_home(tmp_path / "home", tmp_path / "elsewhere")
    assert printed(WORKER, archive, str(START)) == "zip zip"


def test_the_next_sitecustomize_runs_too(tmp_path: Path) -> None:
    """A program's own, such as that of a profiler; ours is gone from the path then."""
    (tmp_path / "sitecustomize.py").write_text("MARK = 'theirs'")
    program = "import sitecustomize, sys; print(sitecustomize.MARK, sys.argv[0])"
    assert printed(program, str(START), str(tmp_path)) == "theirs -c"
    shown = printed("import sys; print(*sys.path)", str(START), str(tmp_path))
    assert str(START) not in shown.split()


def test_importing_the_file_by_its_whole_name_changes_nothing() -> None:
    """Only Python itself runs it, by the name that it looks for."""
    name = "consumer_sdk.spark_bridge.python_start.sitecustomize"
    program = f"import sys; before = list(sys.path); import {name}; print(sys.path == before)"
    assert printed(program, str(START.parents[2])) == "True"
