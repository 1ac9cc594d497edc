"""docs/architecture.md: its pictures are those of the sources, and its files exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "architecture.md"


def test_pictures_are_drawn_from_todays_sources() -> None:
    """A room, an import or a step that changes makes its picture stale."""
    command = [sys.executable, str(ROOT / "scripts" / "pictures.py"), "--check"]
    checked = subprocess.run(command, check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_files_of_the_page_exist() -> None:
    """A file that is named with its folder is below the package or the root, or below the room that its section is about."""
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE.read_text(encoding="utf-8")))
    assert len(named) > 50
    package = ROOT / "consumer_sdk"
    rooms = (*(package / "adapters").iterdir(), package / "spark_bridge")
    bases = (ROOT, package, ROOT / "tests", *rooms)
    assert not {name for name in named if not any((base / name).is_file() for base in bases)}


@pytest.mark.campaign
@pytest.mark.kafka
def test_records_pass_the_files_that_the_page_lists() -> None:
    """A trace on a real Kafka meets every file of the tables."""
    command = [sys.executable, str(ROOT / "scripts" / "house.py"), "--ways"]
    traced = subprocess.run(command, check=False, capture_output=True, text=True)
    assert traced.returncode == 0, traced.stdout + traced.stderr
