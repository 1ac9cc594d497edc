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


# The error of a process that makes a source shows from where it has imported PySpark.
SESSION = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from consumer_sdk import spark_bridge

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder.config("spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
if sys.argv[1] == "registered":
    spark_bridge.register(spark)
try:
    spark.read.format("consumer_sdk").option("url", "storm://nowhere").load()
except Exception as error:
    assert "create_data_source" in str(error)
    print("zip" if "pyspark.zip" in str(error) else "folder")
spark.stop()
"""


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.parametrize("how,place", [("registered", "folder"), ("found", "zip")])
def test_spark_starts_the_processes_of_a_registered_source_so(
    tmp_path: Path, how: str, place: str
) -> None:
    """Those of a source that Spark has found by itself are as Spark starts them."""
    environment = {name: text for name, text in os.environ.items() if name != "SPARK_HOME"}
    environment["PYTHONPATH"] = str(START.parents[2])
    command = [sys.executable, "-c", SESSION, how]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == place
