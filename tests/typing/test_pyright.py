"""Pyright reads users' programs as mypy does, which `make types` runs over the same files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from consumer_sdk.errors import MissingExtraError
from consumer_sdk.testing.servers import NodePackageError
from consumer_sdk.testing.servers.node import NodePackage, find_node, install_package

HERE = Path(__file__).parent


@pytest.mark.campaign
def test_pyright_accepts_what_is_right_and_finds_each_planted_mistake() -> None:
    """An ignore of a mistake that is not found is an error, by ``pyrightconfig.json``."""
    try:
        node = find_node()
        pyright = install_package(node, NodePackage("pyright", HERE / "npm"))
    except (MissingExtraError, NodePackageError) as error:
        pytest.skip(str(error))
    command = [
        *map(str, (node, pyright / "index.js", "--project", HERE)),
        "--pythonpath",
        sys.executable,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
