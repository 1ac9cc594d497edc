"""How tests are shared out: what is one unit, what comes first, and what needs the machine for itself."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.distribution import rank, unit_of

SCRIPT = Path(__file__).parents[1] / "scripts" / "campaigns.sh"

LONG = "@pytest.mark.campaign(minutes=7)\ndef test_a(): ...\ndef test_b(): ..."
SPARK = "def test_a(spark: SparkSession): ..."


def units(root: Path, files: dict[str, str]) -> list[str]:
    """Those of two tests of each file."""
    for name, text in files.items():
        (root / name).write_text(text, encoding="utf-8")
    return [unit_of(root, f"{name}::test_{test}") for name in files for test in "ab"]


def test_tests_of_a_file_are_one_unit(tmp_path: Path) -> None:
    """Its fixtures are made once."""
    first, second, third, fourth = units(tmp_path, {"test_1.py": "", "test_2.py": ""})
    assert first == second != third == fourth


def test_long_campaigns_are_units_by_themselves(tmp_path: Path) -> None:
    """A worker that has one leaves the file's other tests to others."""
    first, second = units(tmp_path, {"test_1.py": LONG})
    assert first != second


def test_files_that_use_the_spark_session_are_one_unit_also_with_long_campaigns(
    tmp_path: Path,
) -> None:
    """One session for all."""
    assert len(set(units(tmp_path, {"test_1.py": SPARK, "test_2.py": SPARK + LONG}))) == 1


class Item:
    """A test with these marks."""

    def __init__(self, *marks: pytest.MarkDecorator) -> None:
        self._marks = [each.mark for each in marks]

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [mark for mark in self._marks if mark.name == name]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next(iter(self.iter_markers(name)), None)


def test_longest_campaign_comes_first_then_spark_then_servers() -> None:
    """What is short fills what is left."""
    mark: Any = pytest.mark
    wanted = [
        (mark.campaign(minutes=9),),
        (mark.spark, mark.campaign(minutes=2)),
        (mark.campaign, mark.spark),
        (mark.kafka,),
        (mark.campaign,),
    ]
    ranks = [rank(Item(*marks)) for marks in wanted]  # type: ignore[arg-type]  # a fake
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(ranks)


PYTEST = """#!/usr/bin/env bash
echo "$@" >> "$0.ran"
[[ "$*" == *"not alone"* ]] && exit {shared}
exit {alone}
"""


@pytest.mark.parametrize(
    "shared, alone, status, parts",
    [
        (0, 0, 0, 2),
        (0, 5, 0, 2),
        (5, 0, 0, 2),
        (5, 5, 5, 2),
        (1, 0, 1, 2),
        (0, 1, 1, 2),
        (1, 5, 1, 2),
        (2, 0, 2, 1),
    ],
)
def test_campaigns_fail_if_a_part_fails_or_nothing_was_chosen(
    tmp_path: Path, shared: int, alone: int, status: int, parts: int
) -> None:
    """One part may have none of what is asked for (pytest's 5); what is interrupted (2) goes no further."""
    python = tmp_path / "python"
    python.write_text(PYTEST.format(shared=shared, alone=alone), encoding="utf-8")
    python.chmod(0o755)
    ran = subprocess.run([SCRIPT, python, "-k", "an expression"], check=False)
    assert ran.returncode == status
    lines = Path(f"{python}.ran").read_text(encoding="utf-8").splitlines()
    assert len(lines) == parts
    assert all(line.endswith("-k an expression") for line in lines)
