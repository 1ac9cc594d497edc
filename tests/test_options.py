"""What holds for the options of every component: one field, one argument, one line of help."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from consumer_sdk import Consumer
from consumer_sdk.adapters import KafkaAdapter, KinesisAdapter, MemoryAdapter, PulsarAdapter
from consumer_sdk.adapters.kafka.options import KafkaOptions
from consumer_sdk.adapters.kafka.ranges import KafkaRanges
from consumer_sdk.adapters.kafka.ranges.options import RangeOptions as KafkaRangeOptions
from consumer_sdk.adapters.kinesis.options import KinesisOptions
from consumer_sdk.adapters.pulsar.options import PulsarOptions
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import (
    COUNT,
    SECONDS,
    SECRET,
    check_fields,
    given_fields,
    help_of,
    kinds_of,
    option,
    optional,
)
from consumer_sdk.runtime.options import Options, RunOptions
from consumer_sdk.testing.memory.options import Options as MemoryOptions

ROOT = Path(__file__).parent.parent
COMPONENTS: dict[Callable[..., Any], type] = {
    Consumer: Options,
    Consumer.run: RunOptions,
    KafkaAdapter: KafkaOptions,
    KafkaRanges: KafkaRangeOptions,
    KinesisAdapter: KinesisOptions,
    PulsarAdapter: PulsarOptions,
    MemoryAdapter: MemoryOptions,
}
"""What users call → the dataclass of its options."""
MORE = {
    "retry": {"None"},
    "clock": {"None"},
    "limits": {"None"},
    "start": {"StartName"},
    "ordering": {"OrderingName"},
}
"""What an argument takes that a field does not hold: a name, or None for a default that is made."""
NO_FIELDS = {
    *("bootstrap_servers", "service_url", "region_name", "faults"),
    *("store", "dead_letters", "around", "transactions"),
}
"""Arguments that are no options, or that something else is made of."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A dataclass of options.

    Attributes:
        wait: seconds until
            something happens.
        tries, secret: how often, and what.
    """

    name: str = "x"
    wait: float = option(SECONDS)
    tries: int | None = option(optional(COUNT), default=3)
    secret: str = option(SECRET, default="")
    steps: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_fields(self, "Sample")


def arguments_of(called: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The keyword arguments of a class or function, by name."""
    given = inspect.signature(called).parameters.values()
    return {each.name: each for each in given if each.kind is each.KEYWORD_ONLY}


@pytest.mark.parametrize("called", COMPONENTS, ids=lambda called: str(called.__name__))
def test_every_option_is_an_argument_of_the_same_type(called: Callable[..., Any]) -> None:
    """An option that nobody can give, or as another type, is a mistake."""
    found = arguments_of(called)
    types = {each.name: str(each.type) for each in fields(COMPONENTS[called])}
    options = kinds_of(COMPONENTS[called])
    assert options
    for name in options:
        taken = set(str(found[name].annotation).split(" | "))
        assert (
            set(types[name].split(" | "))
            <= taken
            <= {*types[name].split(" | "), *MORE.get(name, ())}
        )


@pytest.mark.parametrize("called", COMPONENTS, ids=lambda called: str(called.__name__))
def test_every_argument_is_an_option_or_a_connection(called: Callable[..., Any]) -> None:
    """An argument that is no field would be dropped without a word."""
    known = {each.name for each in fields(COMPONENTS[called])}
    assert arguments_of(called).keys() - known <= NO_FIELDS


@pytest.mark.parametrize("called", COMPONENTS, ids=lambda called: str(called.__name__))
def test_every_option_has_its_line_of_help(called: Callable[..., Any]) -> None:
    """The docstring of what users call tells what each option does."""
    assert not kinds_of(COMPONENTS[called]).keys() - help_of(called).keys()


def test_tables_of_the_documents_are_those_of_the_code() -> None:
    """``python scripts/option_tables.py`` writes them anew. Each table stands on one page."""
    script = run_path(str(ROOT / "scripts" / "option_tables.py"))
    texts = {page.name: page.read_text(encoding="utf-8") for page in script["pages"]()}

    assert [name for name, text in texts.items() if script["written"](text) != text] == []
    names = re.findall(r"<!-- options: (.+) -->", "".join(texts.values()))
    assert sorted(names) == sorted(script["TABLES"])


def test_an_option_out_of_bounds_names_itself_and_what_to_give() -> None:
    """The bounds are those of the field."""
    with pytest.raises(ConfigurationError, match=r"Sample\(wait=0\): give seconds, above 0"):
        Sample(wait=0)
    assert Sample(wait=1).tries == 3


def test_a_secret_is_not_in_the_repr_of_its_options() -> None:
    """Nobody has to remember it at each field."""
    assert "s3cret" not in repr(Sample(wait=1, secret="s3cret"))  # noqa: S106 - that is the point


def test_arguments_are_taken_by_the_names_of_fields() -> None:
    """None stands for a default that a function makes, and for itself elsewhere."""
    given = {"self": 1, "wait": 2.0, "steps": None, "tries": None}
    assert given_fields(Sample, given) == {"wait": 2.0, "tries": None}
    assert Sample(**given_fields(Sample, given)).steps == []


def test_help_is_one_line_for_each_option() -> None:
    """Options that share a line share its text."""
    assert help_of(Sample) == {
        "wait": "seconds until something happens.",
        "tries": "how often, and what.",
        "secret": "how often, and what.",
    }
    assert help_of(object()) == {}
