"""Every decoder gives a value or its typed error, whatever it is given."""

from __future__ import annotations

import pytest

from tests.fuzz.decoders import DECODERS
from tests.fuzz.fuzzer import fuzz


@pytest.mark.parametrize("name", DECODERS)
def test_sample_is_taken(name: str) -> None:
    """Damage to what is refused anyway would find nothing."""
    for sample in DECODERS[name].samples:
        DECODERS[name].read(sample)


@pytest.mark.parametrize(
    "count", [100, pytest.param(20_000, marks=pytest.mark.campaign)], ids=["some", "many"]
)
@pytest.mark.parametrize("name", DECODERS)
def test_damaged_input_is_a_value_or_the_typed_error(name: str, count: int) -> None:
    """From one seed: `make fuzz` takes others."""
    tally, finding = fuzz(name, count, seed=0)
    assert finding is None, str(finding)
    assert tally.inputs == count
