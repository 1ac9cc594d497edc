"""Claims about what is installed: the distributions, their version, the development environment."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from runpy import run_path

import pytest
from hatchling.builders.sdist import SdistBuilder

import consumer_sdk
from consumer_sdk.cli import main

ROOT = Path(__file__).parent.parent


def pins() -> list[str]:
    """Return the entries of requirements.lock, one line each."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    joined = text.replace("\\\n", " ").splitlines()
    return [line for line in joined if line and not line.lstrip().startswith("#")]


def test_lock_pins_and_hashes_every_package() -> None:
    """`make setup` installs exactly what was locked; an own name would be a stranger's package."""
    assert pins()
    for pin in pins():
        assert "==" in pin, pin
        assert " --hash=sha256:" in pin, pin
        assert not pin.startswith("consumer-sdk"), pin


def test_sdist_has_every_file_of_the_package() -> None:
    """The links at the root hide nothing; `make wheel-test` builds, and tries what comes out."""
    command = ["git", "-C", str(ROOT), "ls-files", "consumer_sdk", "pyspark_consumer_sdk.py"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True)
    packed = {file.relative_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    assert {name for name in listed.stdout.split() if (ROOT / name).exists()} <= packed


def test_wheel_has_the_package_and_what_spark_looks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make wheel-test` expects no program of a page, whatever it is called."""
    monkeypatch.chdir(ROOT)
    expected = run_path(str(ROOT / "scripts" / "wheel_test.py"))["package_files"]()
    others = {name for name in expected if not name.startswith("consumer_sdk/")}
    assert others == {"pyspark_consumer_sdk.py"}


def test_version_is_that_of_the_metadata() -> None:
    """A version is written once; an environment older than it is fixed by `make setup`."""
    assert SdistBuilder(str(ROOT)).metadata.version == consumer_sdk.__version__
    assert version("consumer-sdk") == consumer_sdk.__version__


def test_command_line_tells_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`consumer-sdk --version` ends well, with one line."""
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["--version"])
    assert capsys.readouterr().out == f"consumer-sdk {consumer_sdk.__version__}\n"


def test_module_tells_the_version() -> None:
    """`python -m consumer_sdk --version` says the same."""
    command = [sys.executable, "-m", "consumer_sdk", "--version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == f"consumer-sdk {consumer_sdk.__version__}\n"
