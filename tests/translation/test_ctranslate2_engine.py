"""The CTranslate2 engine beside ours on the same weights, trained and random: the same translations, the same promises."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config import ModelConfig
from nmt.data.vocabulary import Vocabulary
from nmt.errors import is_out_of_memory
from nmt.export import write
from nmt.ids import BOS, EOS, FIRST_PIECE
from nmt.lines import read_lines
from nmt.model.transformer import Transformer
from nmt.model_directory import ModelDirectory
from nmt.translation import ctranslate2_engine
from nmt.translation.ctranslate2_engine import CTranslate2Engine
from nmt.translation.engine import TorchEngine
from nmt.translation.hypothesis import Hypothesis, SearchOptions, length_penalty
from nmt.translation.translator import LONGEST

pytest.importorskip("ctranslate2")

GREEDY = SearchOptions(beam=1)
Pair = tuple[Transformer, CTranslate2Engine]


def exported(model: Transformer, vocabulary: Vocabulary, folder: Path) -> CTranslate2Engine:
    write(folder, model, vocabulary, None, {})
    return CTranslate2Engine(folder, vocabulary)


@pytest.fixture(scope="module")
def random_model(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """A model of that `norm` that knows nothing, and its export.

    No parameter is what it would be if it were left out: no bias is 0, no norm's gain 1. EOS is likely enough that
    some of what comes out ends by itself, and some before it began.
    """
    made: dict[str, Pair] = {}

    def make(norm: str) -> Pair:
        if norm not in made:
            torch.manual_seed(4)
            settings = {"layers": 2, "d_model": 32, "heads": 4, "d_ff": 48, "norm": norm, "layer_norm_epsilon": 0.03}
            model = Transformer(ModelConfig.model_validate(settings), len(vocabulary)).eval()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.1 * torch.randn_like(parameter))
                model.embedding.weight.mul_(2)
                model.embedding.weight[EOS].mul_(8)
            made[norm] = (model, exported(model, vocabulary, tmp_path_factory.mktemp(norm)))
        return made[norm]

    return make


@pytest.fixture(scope="module")
def trained(overfitted: Path, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    directory = ModelDirectory(overfitted)
    model = directory.read_model(directory.weights_path)
    return model, exported(model, directory.read_vocabulary(), tmp_path_factory.mktemp("trained"))


def random_sources(vocabulary: Vocabulary, count: int, longest: int = 12) -> list[list[int]]:
    draw = random.Random(1)
    pieces = range(FIRST_PIECE, len(vocabulary))
    return [draw.choices(pieces, k=draw.randint(1, longest)) for _ in range(count)]


def forced(model: Transformer, source: Sequence[int], ids: Sequence[int]) -> float:
    """The model's own log-probability of a translation, EOS included, from one pass over the whole of it."""
    with torch.no_grad():
        states = model.decode(torch.tensor([[BOS, *ids]]), model.encode(torch.tensor([[*source, EOS]])))
        log_p: Tensor = (states[0] @ model.embedding.weight.T).log_softmax(-1)
    return float(log_p[range(len(ids) + 1), [*ids, EOS]].sum())


def assert_promises(
    model: Transformer, sources: list[list[int]], found: list[list[Hypothesis]], options: SearchOptions
) -> None:
    """All that hypothesis.py promises of what an engine returns."""
    assert len(found) == len(sources)
    for source, hypotheses in zip(sources, found, strict=True):
        limit = len(source) + options.extra
        assert 1 <= len(hypotheses) <= options.n_best
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(hypothesis.ids) for hypothesis in hypotheses}) == len(hypotheses)
        for hypothesis in hypotheses:
            ids = hypothesis.ids
            assert 1 <= len(ids) <= limit
            assert min(ids) >= FIRST_PIECE
            assert hypothesis.at_limit == (len(ids) == limit)
            assert hypothesis.log_probability == pytest.approx(forced(model, source, ids), abs=1e-3)
            penalty = length_penalty(len(ids) + 1, options.length_penalty)
            assert hypothesis.score == pytest.approx(hypothesis.log_probability / penalty, abs=1e-6)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("extra", [4, 50])
def test_greedy_search_is_ours(
    norm: str, extra: int, random_model: Callable[[str], Pair], vocabulary: Vocabulary
) -> None:
    """On a random model, of either norm, greedy ids and log-probabilities are ours, whether by EOS or by the limit ended."""
    model, engine = random_model(norm)
    sources, options = random_sources(vocabulary, 60), SearchOptions(beam=1, extra=extra)
    ours, theirs = TorchEngine(model).search(sources, options), engine.search(sources, options)
    assert [hypothesis.ids for [hypothesis] in theirs] == [hypothesis.ids for [hypothesis] in ours]
    assert_promises(model, sources, theirs, options)
    ended = [not hypothesis.at_limit for [hypothesis] in ours]
    assert any(ended)
    assert not all(ended)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_n_best_lists_keep_the_promises(
    norm: str, alpha: float, random_model: Callable[[str], Pair], vocabulary: Vocabulary
) -> None:
    """A random model wants what never stands for text, EOS at first, and no end: nothing of it comes out."""
    model, engine = random_model(norm)
    sources = random_sources(vocabulary, 30)
    options = SearchOptions(beam=4, length_penalty=alpha, n_best=4, extra=6)
    assert_promises(model, sources, engine.search(sources, options), options)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("extra", [4, 50])
def test_the_first_of_several_is_the_one_found_alone(
    norm: str, extra: int, random_model: Callable[[str], Pair], vocabulary: Vocabulary
) -> None:
    """F5: however many are asked for, of a random model too, whose sentences are often searched again."""
    _, engine = random_model(norm)
    sources = random_sources(vocabulary, 60)
    alone = [found[0].ids for found in engine.search(sources, SearchOptions(extra=extra))]
    for n_best in (2, 4):
        several = engine.search(sources, SearchOptions(extra=extra, n_best=n_best))
        assert [found[0].ids for found in several] == alone


def test_a_trained_model_is_searched_as_by_us(trained: Pair, overfitted: Path) -> None:
    """Of 100 sentences at least 99 have our best translation, with 4 beams as with one, and nearly our n-best lists."""
    model, engine = trained
    directory = ModelDirectory(overfitted)
    sources = [directory.read_vocabulary().encode(line) for line in read_lines(overfitted / "heldout" / "valid.en.gz")]
    assert len(sources) == 100
    for options in (GREEDY, SearchOptions(n_best=4)):
        ours, theirs = TorchEngine(model).search(sources, options), engine.search(sources, options)
        assert_promises(model, sources, theirs, options)
        assert sum(a[0].ids == b[0].ids for a, b in zip(ours, theirs, strict=True)) >= 99
        lists = [[[each.ids for each in hypotheses] for hypotheses in found] for found in (ours, theirs)]
        assert sum(a == b for a, b in zip(*lists, strict=True)) >= 90


def test_neighbours_do_not_change_a_translation(random_model: Callable[[str], Pair], vocabulary: Vocabulary) -> None:
    """Alone, or beside sources of other lengths with other limits, a source has the same translation."""
    _, engine = random_model("post")
    sources, options = random_sources(vocabulary, 20), SearchOptions(extra=5)
    together = [[each.ids for each in hypotheses] for hypotheses in engine.search(sources, options)]
    alone = [[each.ids for each in engine.search([source], options)[0]] for source in sources]
    assert together == alone


@pytest.mark.parametrize("threads", ["1", "3"])
def test_batches_side_by_side_come_in_order(
    threads: str,
    random_model: Callable[[str], Pair],
    vocabulary: Vocabulary,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several batches have the translations that each has alone, those searched again among them; one may stop listening."""
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    model, made = random_model("post")
    engine = exported(model, vocabulary, tmp_path)
    sources, options = random_sources(vocabulary, 40), SearchOptions(extra=5)
    batches = [sources[start : start + 4] for start in range(0, len(sources), 4)]
    alone = [[[each.ids for each in found] for found in made.search(batch, options)] for batch in batches]
    together = list(engine.search_all(batches, options))
    assert [[[each.ids for each in found] for found in batch] for batch in together] == alone
    assert next(iter(engine.search_all(batches, options))) == together[0]


def test_workers_share_the_threads(
    random_model: Callable[[str], Pair], vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two on a CPU; on a GPU one, and each of several processes has a GPU of its own."""
    exported(random_model("post")[0], vocabulary, tmp_path)
    made: list[dict[str, Any]] = []
    translator = ctranslate2_engine.library().Translator

    def make(folder: str, device: str, **options: Any) -> Any:
        made.append(options | {"device": device})
        return translator(folder, "cpu")

    fake = SimpleNamespace(Translator=make, get_cuda_device_count=lambda: 2)
    monkeypatch.setattr(ctranslate2_engine, "library", lambda: fake)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setenv("LOCAL_RANK", "3")  # as torchrun gives to the last of four processes
    for device in ("cpu", "cuda"):
        batch = [[FIRST_PIECE]]
        assert len(list(CTranslate2Engine(tmp_path, vocabulary, device).search_all([batch, batch], GREEDY))) == 2
    shares = [(each["device"], each["device_index"], each["inter_threads"], each["intra_threads"]) for each in made]
    assert shares == [("cpu", 0, 2, 2), ("cuda", 1, 1, 4)]


def test_the_longest_source_fits(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """512 pieces go in and 562 come out of a model that never ends: the table of positions is long enough for both."""
    model = Transformer(ModelConfig(layers=1, d_model=16, heads=2, d_ff=16), len(vocabulary)).eval()
    with torch.no_grad():
        model.embedding.weight[EOS] = 0
    [source] = [(random_sources(vocabulary, 1, 1)[0] * LONGEST)[:LONGEST]]
    [[hypothesis]] = exported(model, vocabulary, tmp_path).search([source], GREEDY)
    assert (len(hypothesis.ids), hypothesis.at_limit) == (LONGEST + GREEDY.extra, True)
    assert hypothesis.log_probability == pytest.approx(forced(model, source, hypothesis.ids), rel=1e-5)


def test_full_memory_is_told_as_such(random_model: Callable[[str], Pair], monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU without room is told from any other failure, as it is of the other engine."""
    _, engine = random_model("post")

    def failing(message: str) -> SimpleNamespace:
        def fail(*_: object, **__: object) -> None:
            raise RuntimeError(message)

        return SimpleNamespace(translate_batch=fail)

    for message, full in (("CUDA failed with error out of memory", True), ("cuBLAS failed", False)):
        monkeypatch.setattr(engine, "translator", failing(message))
        with pytest.raises(RuntimeError, match=message) as failure:
            engine.search([[FIRST_PIECE]], GREEDY)
        assert is_out_of_memory(failure.value) == full


def test_a_wide_beam_over_few_pieces(random_model: Callable[[str], Pair], vocabulary: Vocabulary) -> None:
    """More beams than the vocabulary has pieces are searched with as well as may be, and nothing made up comes out."""
    model, engine = random_model("post")
    options = SearchOptions(beam=len(vocabulary) + 1, n_best=3, extra=2)
    sources = random_sources(vocabulary, 1, 2)
    assert_promises(model, sources, engine.search(sources, options), options)
