"""Lanes: work side by side, in order, that leaves the calling thread as it was."""

import threading
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
import torch

from nmt.lanes import Lanes
from nmt.translation.engine import TorchEngine
from nmt.translation.hypothesis import SearchOptions
from tests.conftest import Nmt, write_corpus
from tests.runs import Pairs, outcome, recipe
from tests.translation.test_search import sentences, small_model

CPU = torch.device("cpu")


@pytest.fixture
def _two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def threads() -> list[str]:
    """What PyTorch, OpenMP and MKL may use, each by its own account."""
    counts = torch.__config__.parallel_info().splitlines()
    return [line.strip() for line in counts if "get_num_threads" in line or "get_max_threads" in line]


@pytest.mark.usefixtures("_two_threads")
@pytest.mark.parametrize("details", [False, True])
def test_batches_side_by_side_are_searched_as_one_by_one(details: bool) -> None:
    """In their order, with the same translations and what the model says of them, the matrices packed and the mode kept."""
    model = small_model(1)
    batches = [sentences(seed, count=4) for seed in range(6)]
    options = SearchOptions(extra=8, details=details)
    engine = TorchEngine(model)
    expected = [engine.search(batch, options) for batch in batches]
    assert engine.lanes.count == 2
    engine.pack()
    for one, other in zip(chain(*engine.search_all(batches, options)), chain(*expected), strict=True):
        assert [h.ids for h in one] == [h.ids for h in other]
        assert one[0].log_probability == pytest.approx(other[0].log_probability, abs=1e-4)
        if details:
            assert one[0].forced is not None
            assert other[0].forced is not None
            assert one[0].forced.log_probabilities == pytest.approx(other[0].forced.log_probabilities, abs=1e-4)
            assert one[0].forced.attention == pytest.approx(other[0].forced.attention, abs=1e-4)
    assert not model.training


@pytest.mark.usefixtures("_two_threads")
def test_lanes_share_the_threads_and_leave_the_caller_its_own() -> None:
    """Each lane has one of two; validation, on the calling thread, has both, as before."""
    before = threads()
    lanes = Lanes(CPU)
    assert lanes.count == 2
    together = threading.Barrier(2, timeout=60)

    def work(number: int) -> tuple[int, int]:
        together.wait()  # so that neither lane does it all
        product = torch.ones(64, 64) @ torch.ones(64, 64)
        assert product.sum() == 64**3
        return number, torch.get_num_threads()

    assert list(lanes.map(work, range(4))) == [(number, 1) for number in range(4)]
    assert torch.get_num_threads() == 2
    assert threads() == before


def test_one_thread_is_one_lane() -> None:
    """The calling thread itself."""
    lanes = Lanes(CPU)
    assert lanes.count == 1
    assert list(lanes.map(lambda _: threading.get_ident(), range(2))) == [threading.get_ident()] * 2


@pytest.mark.usefixtures("_two_threads")
def test_a_failure_in_a_lane_is_the_caller_s() -> None:
    def fail(number: int) -> None:
        raise torch.OutOfMemoryError(str(number))

    with pytest.raises(torch.OutOfMemoryError, match="0"):
        list(Lanes(CPU).map(fail, range(3)))


@pytest.mark.slow
def test_runs_with_two_lanes_agree_to_the_last_byte(nmt: Nmt, tmp_path: Path, demo_pairs: Pairs) -> None:
    """Two processes of two threads each, several micro-batches an update: the same weights and log but for its clocks."""
    data = write_corpus(tmp_path / "corpus", train=demo_pairs[:120], valid=demo_pairs[120:123], test=[])
    words = ["--data", data, "--preset", "tiny", "--config", recipe(tmp_path, steps=8), "--micro-batch-tokens", "64"]
    for name in ("one", "other"):
        done = nmt("train", *words, "-m", tmp_path / name, OMP_NUM_THREADS="2")
        assert done.returncode == 0, done.stderr
        assert b"CPU, 2 threads" in done.stderr
    assert outcome(tmp_path / "one") == outcome(tmp_path / "other")
