"""Lanes: work side by side, in order, without a change for the calling thread."""

from collections.abc import Iterator
from itertools import chain

import pytest
import torch

from nmt.translation.engine import TorchEngine
from nmt.translation.hypothesis import SearchOptions
from tests.translation.test_search import sentences, small_model

CPU = torch.device("cpu")


@pytest.fixture
def _two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("_two_threads")
@pytest.mark.parametrize("details", [False, True])
def test_batches_side_by_side_are_searched_as_one_by_one(details: bool) -> None:
    """In order, with the same translations and scores, though their matrices are packed."""
    model = small_model(1)
    batches = [sentences(seed, count=4) for seed in range(6)]
    options = SearchOptions(extra=8, details=details)
    engine = TorchEngine(model)
    expected = [engine.search(batch, options) for batch in batches]
    assert engine.lanes.count == 2
    for one, other in zip(chain(*engine.search_all(batches, options)), chain(*expected), strict=True):
        assert [h.ids for h in one] == [h.ids for h in other]
        assert one[0].log_probability == pytest.approx(other[0].log_probability, abs=1e-4)
        if details:
            assert one[0].forced is not None
            assert other[0].forced is not None
            assert one[0].forced.log_probabilities == pytest.approx(other[0].forced.log_probabilities, abs=1e-4)
            assert one[0].forced.attention == pytest.approx(other[0].forced.attention, abs=1e-4)
    assert not model.training
