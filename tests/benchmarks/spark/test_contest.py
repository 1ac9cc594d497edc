"""Who runs when."""

from __future__ import annotations

from benchmarks.spark.contest import turns


def test_contestants_take_turns_in_alternating_order() -> None:
    """Each round has all of them, every second one from the other end."""
    order: list[str] = []

    def one(name: str, number: int) -> float:
        order.append(f"{name}{number}")
        return float(number)

    turns(("a", "b"), 2, one)
    assert order == ["a0", "b0", "b1", "a1", "a2", "b2"]


def test_the_warm_up_counts_for_nothing() -> None:
    """Round 0 is run and left out."""
    found = turns(("a",), 2, lambda _, number: float(number))
    assert found["runs"] == {"a": [1.0, 2.0]}


def test_a_contestant_that_fails_runs_no_further() -> None:
    """Half of its rounds would be compared with the others' whole; those go on."""
    asked: list[str] = []

    def one(name: str, number: int) -> float:
        asked.append(name)
        if name == "a" and number == 2:
            raise ValueError("first\n\n  second")
        return 1.0

    found = turns(("a", "b"), 3, one)
    assert found["runs"] == {"a": [], "b": [1.0, 1.0, 1.0]}
    assert found["failures"] == {"a": "ValueError: first | second"}
    assert asked.count("a") == 3
