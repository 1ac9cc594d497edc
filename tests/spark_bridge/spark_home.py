"""A home of Spark whose Python processes start in a third of the time."""

from __future__ import annotations

from pathlib import Path

__all__ = ["link_spark"]


def link_spark(home: Path) -> Path:
    """Make a home without Spark's zip of PySpark, which nobody has compiled.

    Each Python that Spark starts would compile what it imports from there: 1.2 s of a core, where the
    installed package takes 0.4. Spark waits ten seconds for a process, and says "Python worker failed
    to connect back" then: not enough on a machine with much else to do.

    Args:
        home: does not exist yet; `SPARK_HOME` when a session is made.
    """
    import pyspark

    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name not in ("python", "work"):
            (home / entry.name).symlink_to(entry)
    return home
