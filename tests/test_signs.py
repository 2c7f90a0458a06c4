"""Loops and numbers that differ: found wherever they are, and not where small numbers are spelled out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.signs import differ, numbers_of, repeats


@settings(max_examples=300)
@given(st.lists(st.integers(0, 2), max_size=60))
def test_repeats_finds_every_loop(ids: list[int]) -> None:
    """Compared with a search for every period at every place; one repetition fewer is no loop."""
    lengths = {period: max(8, 4 * period) for period in range(1, 9)}
    places = ((start, period) for period in lengths for start in range(len(ids)))
    expected = any(
        len(run := ids[start : start + lengths[period]]) == lengths[period]
        and run == [run[place % period] for place in range(len(run))]
        for start, period in places
    )
    assert repeats(ids) == expected
    for period in lengths:
        loop = [*range(period)] * max(4, 8 // period)
        assert repeats([50, 51, *loop, 52])
        assert not repeats([50, 51, *loop[:-1], 52])


@pytest.mark.parametrize(
    ("source", "target", "differs"),
    [
        ("Room 231.", "Zimmer 231.", False),
        ("Room 231.", "Zimmer 213.", True),
        ("12 of 12", "12", False),  # a small number may be spelled out
        ("5 men, 7 women", "fünf Männer, 7 Frauen", False),
        ("1,000.50 and 12,345,678", "1.000,50 und 12 345 678", False),
        ("1,000", "10000", True),
        ("On 12.05.2017 the 1st", "Am 12. 5. 2017 der 1.", False),
        ("٢٠١٧ and १५", "2017 und 15", False),
    ],
)
def test_numbers_that_differ(source: str, target: str, differs: bool) -> None:
    """F3: by value, in any order, with any separators of thousands and decimals, in any script's digits."""
    assert differ(numbers_of([source]), numbers_of([target])) == differs
