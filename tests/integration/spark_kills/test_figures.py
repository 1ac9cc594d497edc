"""The judge of the runs with kills: it sees what it is there to see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.spark_kills.campaign import seeded
from tests.integration.spark_kills.figures import Figures, Looks
from tests.integration.spark_kills.sink import Events, Landed, Row, Sink
from tests.integration.spark_kills.stage import committed_end


def rows(*numbers: int) -> list[Row]:
    """Records of one partition."""
    return [Row("t", "0", str(number), str(number)) for number in numbers]


def judged(*arrived: int) -> Figures:
    """The figures when 0, 1 and 2 were sent, of which the group knows."""
    looks = Looks()
    looks.take({"0": 3}, {"0": 3}, {"0": 3})
    figures = Figures(looks=looks, lag=0)
    figures.count_rows(rows(0, 1, 2), rows(*arrived))
    return figures


def test_each_record_once_passes() -> None:
    """And the figures say how many there were."""
    figures = judged(2, 0, 1)
    figures.check()
    assert figures.sent == 3


@pytest.mark.parametrize(
    "arrived, name",
    [((0, 1), "lost"), ((0, 1, 1, 2), "duplicates"), ((0, 1, 2, 3), "strange")],
)
def test_a_wrong_row_is_found(arrived: tuple[int, ...], name: str) -> None:
    """One that is missing, one that is there twice, one that nobody sent."""
    figures = judged(*arrived)
    assert getattr(figures, name) == 1
    with pytest.raises(AssertionError):
        figures.check()


def test_a_group_that_leads_is_found() -> None:
    """Also where Spark has logged nothing of a partition; a log that moves meanwhile is fair."""
    looks = Looks()
    looks.take({"0": 4}, {"0": 3}, {"0": 4})
    assert (looks.made, looks.exact, looks.ahead) == (1, 0, [])
    looks.take({"0": 4, "1": 0}, {"0": 3}, {"0": 3})
    assert (looks.exact, looks.ahead) == (1, ["0: 4 > 3", "1: 0 > None"])


def test_the_end_of_the_last_logged_batch_is_what_counts(tmp_path: Path) -> None:
    """Not that of a batch that was only planned; hidden files are not Spark's log."""
    assert committed_end(tmp_path) == {}
    (tmp_path / "commits").mkdir()
    (tmp_path / "offsets").mkdir()
    for number in (8, 9, 10, 11):
        text = f'v1\n{{}}\n{{"positions": {{"t": {{"0": "{number}"}}}}, "version": 1}}'
        (tmp_path / "offsets" / str(number)).write_text(text)
    for name in ("8", "9", "10", ".11.tmp"):
        (tmp_path / "commits" / name).write_text("v1\n{}")
    assert committed_end(tmp_path) == {"0": "10"}


def test_a_batch_that_comes_again_replaces_itself_and_is_told_apart(tmp_path: Path) -> None:
    """The same rows again are fair; other rows are a defect, though the sink looks right."""
    events, landed = Events(tmp_path / "events"), Landed(tmp_path)
    sink = Sink(tmp_path, events)
    for numbers in ((0, 1), (1, 0), (0, 1, 2)):
        sink.write(0, rows(*numbers))
        landed.look()
    assert sorted(landed.rows) == rows(0, 1, 2)
    again, differs = events.lines()
    assert again == "again 0"
    assert differs.startswith("differs 0: gone [], new [")


def test_a_seed_orders_the_kills() -> None:
    """The same one gives the same order."""
    assert seeded(1, a=2, b=2) == seeded(1, a=2, b=2)
    assert sorted(seeded(1, a=2, b=1)) == ["a", "a", "b"]
