"""Work done ahead: in order, only so far, and gone when nobody asks for more."""

import threading
from collections.abc import Iterator

import pytest

from nmt.training.ahead import ahead


def counted(taken: list[int]) -> Iterator[int]:
    """0, 1, 2 ... without end, each noted as it is taken."""
    number = 0
    while True:
        taken.append(number)
        yield number
        number += 1


@pytest.mark.parametrize("depth", [0, 1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 20])
def test_each_item_comes_with_what_is_made_of_it_in_order(count: int, depth: int) -> None:
    assert list(ahead(range(count), lambda item: item * item, depth)) == [(item, item * item) for item in range(count)]


@pytest.mark.parametrize("depth", [0, 1, 2, 5])
def test_no_more_than_depth_items_are_taken_before_they_are_asked_for(depth: int) -> None:
    """And one more, which is the one that is given out; none at all before the first is asked for."""
    taken: list[int] = []
    items = ahead(counted(taken), str, depth)
    assert taken == []
    for number in range(10):
        assert next(items) == (number, str(number))
        # They are taken on the thread, in its own time.
        assert list(range(number + 1)) == taken[: number + 1]
        assert len(taken) <= number + depth + 1
    items.close()


def test_a_failure_arrives_with_its_item() -> None:
    """Those before it are whole, and it is the maker's own exception."""

    def make(item: int) -> int:
        if item == 3:
            raise ValueError("three")
        return item

    items = ahead(range(10), make)
    assert [next(items) for _ in range(3)] == [(0, 0), (1, 1), (2, 2)]
    with pytest.raises(ValueError, match="three"):
        next(items)
    assert next(items, None) is None


def test_the_work_is_done_on_another_thread() -> None:
    makers = {made for _, made in ahead(range(3), lambda _: threading.get_ident())}
    assert len(makers) == 1
    assert threading.get_ident() not in makers


@pytest.mark.parametrize("given", [0, 1, 4])
def test_closed_early_it_leaves_no_thread(given: int) -> None:
    before = threading.active_count()
    items = ahead(counted([]), lambda item: item)
    for _ in range(given):
        next(items)
    items.close()
    assert threading.active_count() == before


def test_a_failure_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        list(ahead(counted([]), lambda item: 1 // (2 - item)))
    assert threading.active_count() == before
