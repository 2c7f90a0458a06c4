"""The CTranslate2 engine compared with ours on the same weights, trained and random: same translations, same promises."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config import ModelConfig
from nmt.data.vocabulary import Vocabulary
from nmt.export import write
from nmt.ids import BOS, EOS, FIRST_PIECE
from nmt.lines import read_lines
from nmt.model.build import build
from nmt.model.network import Network
from nmt.model.transformer import Transformer
from nmt.saved_model import SavedModel
from nmt.translation.ctranslate2_engine import CTranslate2Engine, engine_for
from nmt.translation.engine import TorchEngine
from nmt.translation.hypothesis import Hypothesis, SearchOptions, length_penalty
from nmt.translation.translator import MAX_SOURCE_PIECES

pytest.importorskip("ctranslate2")

GREEDY = SearchOptions(beam=1)
Pair = tuple[Network, CTranslate2Engine]
KINDS: dict[str, dict[str, object]] = {
    "post": {},
    "like gpt2": {"norm": "pre", "positions": "learned", "max_positions": 150, "activation": "gelu"},
    "one stack": {"architecture": "decoder-only", "mask": "causal"},
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def exported(model: Network, vocabulary: Vocabulary, folder: Path) -> CTranslate2Engine:
    write(folder, model, vocabulary, None, {})
    return engine_for(model.config)(folder, vocabulary)


@pytest.fixture(scope="module")
def random_model(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """Makes a random model of that kind, and its export.

    No bias is 0 and no norm's gain is 1, so that leaving one out would show. EOS is likely enough that some hypotheses end
    by themselves and some would end before they began.
    """
    made: dict[str, Pair] = {}

    def make(kind: str) -> Pair:
        if kind not in made:
            torch.manual_seed(4)
            settings = {"layers": 2, "d_model": 32, "heads": 4, "d_ff": 48, "layer_norm_epsilon": 0.03} | KINDS[kind]
            model: Any = build(ModelConfig.model_validate(settings), len(vocabulary)).eval()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.1 * torch.randn_like(parameter))
                model.embedding.weight.mul_(2)
                model.embedding.weight[EOS].mul_(8)
            made[kind] = (model, exported(model, vocabulary, tmp_path_factory.mktemp("kind")))
        return made[kind]

    return make


def random_sources(vocabulary: Vocabulary, count: int, longest: int = 12) -> list[list[int]]:
    draw = random.Random(1)
    pieces = range(FIRST_PIECE, len(vocabulary))
    return [draw.choices(pieces, k=draw.randint(1, longest)) for _ in range(count)]


def ids(found: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[hypothesis.ids for hypothesis in hypotheses] for hypotheses in found]


def forced(model: Network, source: Sequence[int], ids: Sequence[int]) -> float:
    """The model's own log-probability of a translation, EOS included, from one pass."""
    with torch.no_grad():
        states = model.decode(torch.tensor([[BOS, *ids]]), model.encode(torch.tensor([[*source, EOS]])))
        log_p: Tensor = (states[0] @ model.output.T).log_softmax(-1)
    return float(log_p[range(len(ids) + 1), [*ids, EOS]].sum())


def assert_promises(model: Network, sources: list[list[int]], found: list[list[Hypothesis]], options: SearchOptions) -> None:
    """All that hypothesis.py promises of the results of an engine."""
    assert len(found) == len(sources)
    for source, hypotheses in zip(sources, found, strict=True):
        limit = len(source) + options.extra
        assert 1 <= len(hypotheses) <= options.n_best
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(hypothesis.ids) for hypothesis in hypotheses}) == len(hypotheses)
        for hypothesis in hypotheses:
            assert 1 <= len(hypothesis.ids) <= limit
            assert min(hypothesis.ids) >= FIRST_PIECE
            assert hypothesis.at_limit == (len(hypothesis.ids) == limit)
            assert hypothesis.log_probability == pytest.approx(forced(model, source, hypothesis.ids), abs=1e-3)
            penalty = length_penalty(len(hypothesis.ids) + 1, options.length_penalty)
            assert hypothesis.score == pytest.approx(hypothesis.log_probability / penalty, abs=1e-6)


@each_kind
@pytest.mark.parametrize("extra", [4, 50])
def test_greedy_search_is_ours(kind: str, extra: int, random_model: Callable[[str], Pair], vocabulary: Vocabulary) -> None:
    """Greedy ids and log-probabilities of a random model are ours, both for those ended by EOS and by the limit."""
    model, engine = random_model(kind)
    sources, options = random_sources(vocabulary, 60), SearchOptions(beam=1, extra=extra)
    ours, theirs = TorchEngine(model).search(sources, options), engine.search(sources, options)
    assert ids(theirs) == ids(ours)
    assert_promises(model, sources, theirs, options)
    assert {hypothesis.at_limit for [hypothesis] in ours} == {True, False}


@each_kind
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_n_best_lists_keep_the_promises(
    kind: str, alpha: float, random_model: Callable[[str], Pair], vocabulary: Vocabulary
) -> None:
    """A random model prefers forbidden ids, EOS first, and no end; also where the beam is wider than the vocabulary."""
    model, engine = random_model(kind)
    sources = random_sources(vocabulary, 30)
    options = SearchOptions(beam=4, length_penalty=alpha, n_best=4, extra=6)
    assert_promises(model, sources, engine.search(sources, options), options)
    wide = SearchOptions(beam=len(vocabulary) + 1, n_best=3, extra=2)
    assert_promises(model, sources[:1], engine.search(sources[:1], wide), wide)


@each_kind
@pytest.mark.parametrize("extra", [4, 50])
def test_the_first_of_several_is_the_one_found_alone(
    kind: str, extra: int, random_model: Callable[[str], Pair], vocabulary: Vocabulary
) -> None:
    """F5: however many are asked for, and although many sentences of a random model are searched again."""
    _, engine = random_model(kind)
    sources = random_sources(vocabulary, 60)
    one, two, four = (ids(engine.search(sources, SearchOptions(extra=extra, n_best=n_best))) for n_best in (1, 2, 4))
    assert [found[0] for found in two] == [found[0] for found in four] == [found for [found] in one]


def test_a_trained_model_is_searched_as_by_us(overfitted: Path, tmp_path: Path) -> None:
    """At least 99 of 100 sentences have our best translation, greedy or not, and 90 have our n-best list."""
    saved = SavedModel.open(overfitted)
    model, vocabulary = saved.network(), saved.vocabulary
    engine = exported(model, vocabulary, tmp_path)
    sources = [vocabulary.encode(line) for line in read_lines(overfitted / "heldout" / "valid.en.gz")]
    assert len(sources) == 100
    for options in (GREEDY, SearchOptions(n_best=4)):
        ours, theirs = TorchEngine(model).search(sources, options), engine.search(sources, options)
        assert_promises(model, sources, theirs, options)
        pairs = list(zip(ids(ours), ids(theirs), strict=True))
        assert sum(a[0] == b[0] for a, b in pairs) >= 99
        assert sum(a == b for a, b in pairs) >= 90


@pytest.mark.parametrize("threads", ["1", "3"])
def test_neighbours_and_parallel_batches_change_nothing(
    threads: str,
    random_model: Callable[[str], Pair],
    vocabulary: Vocabulary,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A source has the same translation alone, in a batch, and in batches side by side, whose reader may stop early."""
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    engine = exported(random_model("post")[0], vocabulary, tmp_path)
    sources, options = random_sources(vocabulary, 40), SearchOptions(extra=5)
    alone = [ids(engine.search([source], options))[0] for source in sources]
    assert ids(engine.search(sources, options)) == alone
    batches = [sources[start : start + 4] for start in range(0, len(sources), 4)]
    assert [found for batch in engine.search_all(batches, options) for found in ids(batch)] == alone
    assert ids(next(iter(engine.search_all(batches, options)))) == alone[:4]


def test_the_longest_source_fits(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """The table of positions is long enough for 512 source pieces and the 562 of a translation that never ends."""
    model = Transformer(ModelConfig(layers=1, d_model=16, heads=2, d_ff=16), len(vocabulary)).eval()
    with torch.no_grad():
        model.embedding.weight[EOS] = 0
    source = random_sources(vocabulary, 1, 1)[0] * MAX_SOURCE_PIECES
    [[hypothesis]] = exported(model, vocabulary, tmp_path).search([source], GREEDY)
    assert (len(hypothesis.ids), hypothesis.at_limit) == (MAX_SOURCE_PIECES + GREEDY.extra, True)
    assert hypothesis.log_probability == pytest.approx(forced(model, source, hypothesis.ids), rel=1e-5)
