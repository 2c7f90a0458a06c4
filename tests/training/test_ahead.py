"""Work done ahead: in order, up to a limit, and stopped when nobody asks for more."""

import itertools
import threading
from collections.abc import Iterator

import pytest

from nmt.training.ahead import ahead


def endless(taken: list[int]) -> Iterator[int]:
    """0, 1, 2 ..., each noted when it is taken."""
    for number in itertools.count():
        taken.append(number)
        yield number


@pytest.mark.parametrize("depth", [0, 1, 5])
def test_only_depth_further_items_are_taken(depth: int) -> None:
    """None is taken before the first is asked for. When it ends early, no thread is left."""
    before, taken = threading.active_count(), list[int]()
    items = ahead(endless(taken), str, depth)
    assert taken == []
    for number in range(10):
        assert next(items) == (number, str(number))
        assert len(taken) <= number + depth + 1
    items.close()
    assert threading.active_count() == before


def test_a_failure_arrives_with_its_item() -> None:
    """The results before it arrive, and no thread is left."""
    before = threading.active_count()
    items = ahead(endless([]), lambda item: 1 // (2 - item))
    assert [next(items) for _ in range(2)] == [(0, 0), (1, 1)]
    with pytest.raises(ZeroDivisionError):
        next(items)
    assert next(items, None) is None
    assert threading.active_count() == before
