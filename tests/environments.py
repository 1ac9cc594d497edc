"""Environments of their own for programs that need packages which the tests do not have; for campaigns."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

from consumer_sdk.testing.servers.cache import cache_folder

__all__ = ["ROOT", "environment", "output", "start"]

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")


def environment(name: str, *requirements: str) -> Path:
    """A Python that has these before all else that the tests have; made once, and kept.

    Where the package index does not have them, the test is skipped, or fails if everything has to run.
    """
    folder = cache_folder() / name
    python = folder / "bin" / "python"
    whole = folder / "whole"
    if not whole.exists() or whole.read_text() != " ".join(requirements):
        uv("venv", "--clear", "--python", sys.executable, str(folder))
        uv("pip", "install", "--compile-bytecode", "--python", str(python), *requirements)
        whole.write_text(" ".join(requirements))
    # Each time: the checkout that made the environment may be gone.
    site = next((folder / "lib").glob("python*/site-packages"))
    (site / "tests.pth").write_text(sysconfig.get_path("purelib"))
    return python


def uv(*arguments: str) -> None:
    """Run it; skip or fail when it does."""
    command = [str(UV), "--quiet", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        give_up = pytest.fail if os.environ.get("CONSUMER_SDK_REQUIRE_SERVERS") else pytest.skip
        give_up(f"uv {' '.join(arguments)}: {done.stderr.strip()}")


def output(python: Path, module: str, *arguments: str, **variables: str) -> str:
    """The last line that a program of these tests prints, in such an environment."""
    done = start(python, module, *arguments, variables=variables)
    printed, errors = done.communicate(timeout=1800)
    assert done.returncode == 0, errors[-5000:]
    return printed.splitlines()[-1]


def start(
    python: Path, module: str, *arguments: str, variables: Mapping[str, str]
) -> subprocess.Popen[str]:
    """Such a program, while it runs."""
    return subprocess.Popen(
        [str(python), "-m", module, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
    )
