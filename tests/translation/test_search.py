"""Beam search compared with brute force, with itself without a cache, and with teacher forcing."""

import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.errors import NmtError
from nmt.ids import BOS, EOS, FIRST_PIECE
from nmt.model.attention import MultiHeadAttention
from nmt.model.build import build
from nmt.model.transformer import Memory, Transformer
from nmt.translation.engine import NetworkSteps, TorchEngine
from nmt.translation.hypothesis import Hypothesis, SearchOptions, length_penalty
from nmt.translation.search import _top_k, beam_search

OTHERS: dict[str, dict[str, Any]] = {
    "learned": {"positions": "learned", "norm": "pre", "max_positions": 100},
    "prefix": {"architecture": "decoder-only"},
    "causal": {"architecture": "decoder-only", "mask": "causal", "positions": "learned", "max_positions": 200},
    "rnn": {"architecture": "rnn", "layers": 1},
}
WORDS = 3  # pieces of the toy models besides the special ids
SIZE = FIRST_PIECE + WORDS


class ToySteps:
    """A table as a model: each sentence's next token depends on all tokens before it. `end` is added to EOS's logit."""

    def __init__(self, seed: int, sentences: int, end: float = 0.0) -> None:
        self.seed, self.end = seed, end
        self.rows: list[list[tuple[int, tuple[int, ...]]]] = [[(sentence, ())] for sentence in range(sentences)]

    def logits(self, sentence: int, tokens: tuple[int, ...]) -> Tensor:
        generator = torch.Generator().manual_seed(hash((self.seed, sentence, tokens)) % 2**31)
        logits = torch.randn(SIZE, generator=generator) * 1.5
        logits[EOS] += self.end
        return logits

    def step(self, tokens: Tensor) -> Tensor:
        added = iter(tokens.tolist())
        self.rows = [[(s, (*before, next(added))) for s, before in hypotheses] for hypotheses in self.rows]
        return torch.stack([self.logits(*row) for hypotheses in self.rows for row in hypotheses])

    def keep(self, sentences: Tensor) -> None:
        self.rows = [self.rows[sentence] for sentence in sentences.tolist()]

    def reorder(self, beams: Tensor) -> None:
        self.rows = [[held[i] for i in chosen] for held, chosen in zip(self.rows, beams.tolist(), strict=True)]


def every_string(toy: ToySteps, sentence: int, limit: int, alpha: float) -> list[Hypothesis]:
    """All strings of 1 to `limit` pieces with their exact scores, best first."""
    found = []
    for length in range(1, limit + 1):
        for pieces in itertools.product(range(FIRST_PIECE, SIZE), repeat=length):
            tokens = (BOS, *pieces)
            log_p = sum(
                toy.logits(sentence, tokens[:i]).log_softmax(0)[token].item() for i, token in enumerate((*pieces, EOS), 1)
            )
            found.append(Hypothesis(list(pieces), log_p, log_p / ((5 + length + 1) / 6) ** alpha, length == limit))
    return sorted(found, key=lambda hypothesis: -hypothesis.score)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
@pytest.mark.parametrize("seed", range(3))
def test_wide_beam_finds_the_best_of_all_strings(seed: int, alpha: float) -> None:
    """A beam with room for every string finds the true n-best list, in order, for sentences with different limits."""
    limits = [4, 2, 3]
    options = SearchOptions(beam=(WORDS + 1) * WORDS**4, length_penalty=alpha, n_best=5)
    results = beam_search(ToySteps(seed, 3), limits, options)
    for sentence, (hypotheses, limit) in enumerate(zip(results, limits, strict=True)):
        expected = every_string(ToySteps(seed, 3), sentence, limit, alpha)[:5]
        assert [h.ids for h in hypotheses] == [h.ids for h in expected]
        assert [h.at_limit for h in hypotheses] == [h.at_limit for h in expected]
        for found, true in zip(hypotheses, expected, strict=True):
            assert math.isclose(found.score, true.score, abs_tol=1e-4)
            assert math.isclose(found.log_probability, true.log_probability, abs_tol=1e-4)


@pytest.mark.parametrize("kind", ["transformer", *OTHERS])
@torch.no_grad()
def test_wide_beam_over_a_network_finds_the_best_of_all_strings(kind: str) -> None:
    """The same over real networks, whose own probabilities are those of teacher forcing."""
    model = small_model(1, SIZE, **OTHERS.get(kind, {}))
    source = [FIRST_PIECE, FIRST_PIECE + 2, FIRST_PIECE + 1]
    strings = [list(pieces) for n in (1, 2, 3) for pieces in itertools.product(range(FIRST_PIECE, SIZE), repeat=n)]
    scores = [forced_score(model, source, ids) / length_penalty(len(ids) + 1, 0.6) for ids in strings]
    best = sorted(range(len(strings)), key=lambda place: -scores[place])[:5]
    options = SearchOptions(beam=(WORDS + 1) * WORDS**3, n_best=5, extra=0)
    [found] = TorchEngine(model).search([source], options)
    assert [hypothesis.ids for hypothesis in found] == [strings[place] for place in best]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([scores[place] for place in best], abs=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_beam_of_one_is_greedy(seed: int) -> None:
    """The likeliest permitted token at each step, EOS not first, until EOS is the likeliest or the limit is reached."""
    limit = 12
    toy = ToySteps(seed, 1)
    tokens: tuple[int, ...] = (BOS,)
    while len(tokens) <= limit:
        logits = toy.logits(0, tokens)
        permitted = [*([EOS] if len(tokens) > 1 else []), *range(FIRST_PIECE, SIZE)]
        token = max(permitted, key=lambda id: logits[id].item())
        if token == EOS:
            break
        tokens += (token,)
    [[hypothesis]] = beam_search(ToySteps(seed, 1), [limit], SearchOptions(beam=1))
    assert hypothesis.ids == list(tokens[1:])


@pytest.mark.parametrize(("length", "expected"), [(5, 1.3587), (20, 2.3543), (80, 4.9064)])
def test_length_penalty_is_wu_et_als(length: int, expected: float) -> None:
    """((5 + L) / 6)^0.6; the L^0.6 of other tools would be 2.63, 6.03 and 13.86."""
    assert math.isclose(length_penalty(length, 0.6), expected, abs_tol=1e-4)


def small_model(seed: int, size: int = 40, **settings: Any) -> Any:
    """A random model with outputs sharp enough that some sentences end early and others late."""
    torch.manual_seed(seed)
    model: Any = build(ModelConfig(**{"layers": 2, "d_model": 32, "heads": 4, "d_ff": 64} | settings), size).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(1.5)
        model.embedding.weight[EOS] /= 1.5
    return model


def sentences(seed: int, count: int = 8, size: int = 40) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 40, (count,), generator=generator).tolist()
    return [torch.randint(FIRST_PIECE, size, (length,), generator=generator).tolist() for length in lengths]


class UncachedSteps(NetworkSteps):
    """The same model without a cache: every prefix is decoded from scratch."""

    prefix: Tensor | None = None
    beam = 1

    def step(self, tokens: Tensor) -> Tensor:
        self.prefix = tokens[:, None] if self.prefix is None else torch.cat([self.prefix, tokens[:, None]], 1)
        return self.projection(self.model.decode(self.prefix, self.memory)[:, -1])

    def keep(self, sentences: Tensor) -> None:
        assert self.prefix is not None
        self.prefix = self.prefix.unflatten(0, (-1, self.beam))[sentences].flatten(0, 1)
        self.memory.keep(sentences)

    def reorder(self, beams: Tensor) -> None:
        assert self.prefix is not None
        held = self.prefix.unflatten(0, (len(beams), -1))
        self.beam = beams.size(1)
        self.prefix = held.gather(1, beams.unsqueeze(2).expand(-1, -1, held.size(2))).flatten(0, 1)


def forced_score(model: Transformer, source: list[int], ids: list[int]) -> float:
    """log p(ids, EOS | source) from one teacher-forced pass."""
    states = model.decode(torch.tensor([[BOS, *ids]]), model.encode(torch.tensor([[*source, EOS]])))
    log_p = F.linear(states, model.output).log_softmax(-1)[0]
    return log_p.gather(1, torch.tensor([*ids, EOS])[:, None]).sum().item()


@pytest.mark.parametrize("beam", [1, 4, 8])
@pytest.mark.parametrize(("kind", "seed"), [*(("transformer", seed) for seed in range(5)), *((kind, 5) for kind in OTHERS)])
@torch.no_grad()
def test_cache_changes_no_token_and_scores_are_the_models_own(kind: str, seed: int, beam: int) -> None:
    """Search equals search without a cache, and its scores equal teacher forcing, while sentences leave the batch."""
    model, sources = small_model(seed, **OTHERS.get(kind, {})), sentences(seed)
    options = SearchOptions(beam=beam, n_best=min(beam, 2), extra=12)
    found = TorchEngine(model).search(sources, options)
    padded = torch.nn.utils.rnn.pad_sequence([torch.tensor([*s, EOS]) for s in sources], batch_first=True)
    steps = UncachedSteps(model, lambda states: F.linear(states, model.output), padded)
    uncached = beam_search(steps, [len(s) + 12 for s in sources], options)
    assert [[h.ids for h in best] for best in found] == [[h.ids for h in best] for best in uncached]
    assert len({len(best[0].ids) for best in found}) > 1, "the sentences should end at different steps"
    for source, best in zip(sources, found, strict=True):
        for hypothesis in best:
            forced = forced_score(model, source, hypothesis.ids)
            assert math.isclose(hypothesis.log_probability, forced, abs_tol=1e-4)
            penalty = ((5 + len(hypothesis.ids) + 1) / 6) ** 0.6
            assert math.isclose(hypothesis.score, forced / penalty, abs_tol=1e-4)


@pytest.mark.parametrize(("tokens", "count"), [(3, 4), (500, 1), (640, 4), (4_011, 8)])
def test_top_k_by_groups_is_topk(tokens: int, count: int) -> None:
    """`_top_k` equals topk: with and without a remainder after the groups, and where most values are -inf."""
    scores = torch.randn(50, tokens)
    scores[:10, : tokens - 2] = float("-inf")
    scores[10:20, -1] = 9
    best, places = _top_k(scores, count)
    assert torch.equal(best, scores.topk(min(count, tokens), 1).values)
    assert torch.equal(scores.gather(1, places), best)
    assert all(len(set(row)) == len(row) for row in places.tolist())


@pytest.mark.parametrize("seed", range(2))
def test_batch_equals_sentences_one_by_one(seed: int) -> None:
    model, sources = small_model(seed), sentences(seed, count=40)  # many are done before they leave the batch
    options = SearchOptions(extra=12)
    together = TorchEngine(model).search(sources, options)
    alone = [TorchEngine(model).search([source], options)[0] for source in sources]
    assert [best[0].ids for best in together] == [best[0].ids for best in alone]


def test_special_ids_are_never_emitted_and_lists_are_distinct() -> None:
    """Even by a model that prefers them."""
    model = small_model(3)
    with torch.no_grad():
        model.embedding.weight[:FIRST_PIECE] *= 3
    for best in TorchEngine(model).search(sentences(3, count=50), SearchOptions(n_best=4, extra=10)):
        assert all(id >= FIRST_PIECE for hypothesis in best for id in hypothesis.ids)
        assert all(hypothesis.ids for hypothesis in best)
        assert len({tuple(hypothesis.ids) for hypothesis in best}) == len(best) == 4
        assert [h.score for h in best] == sorted((h.score for h in best), reverse=True)


@pytest.mark.parametrize("seed", range(20))
def test_the_best_is_the_same_however_many_are_asked_for(seed: int) -> None:
    """F5: a hypothesis ended at the limit to fill a list never ranks above one that ended by itself."""
    plain, *others = (
        beam_search(ToySteps(seed, 20, end=-2), [3, 4] * 10, SearchOptions(beam=4, n_best=n_best)) for n_best in (1, 2, 4)
    )
    for several in others:
        assert [found[0].ids for found in several] == [found[0].ids for found in plain]


@pytest.mark.parametrize("beam", [1, 4])
def test_each_sentence_has_its_own_limit(beam: int) -> None:
    """Sentences of one batch that would never end stop at their own limits, and say so."""
    limits = [5, 9, 2]
    results = beam_search(ToySteps(0, 3, end=-30), limits, SearchOptions(beam=beam))
    assert [len(best[0].ids) for best in results] == limits
    assert all(best[0].at_limit for best in results)


def exhaustive_beam(toy: ToySteps, sentence: int, limit: int, beam: int, alpha: float) -> list[tuple[float, list[int]]]:
    """Beam search by its definition, up to the limit, without bound, batch or tensors. Best first."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, (BOS,))]
    ended: list[tuple[float, list[int]]] = []
    for length in range(1, limit + 2):
        candidates = [
            (log_p + p, (*tokens, id))
            for log_p, tokens in live
            for id, p in enumerate(toy.logits(sentence, tokens).log_softmax(0).tolist())
            if id >= FIRST_PIECE or (id == EOS and length > 1)
        ]
        candidates.sort(reverse=True)
        ended += [
            (log_p / ((5 + length) / 6) ** alpha, list(tokens[1:-1]))
            for log_p, tokens in candidates[:beam]
            if tokens[-1] == EOS
        ]
        live = [candidate for candidate in candidates if candidate[1][-1] != EOS][:beam]
    return sorted(ended, reverse=True)


@pytest.mark.parametrize("beam", [2, 4])
@pytest.mark.parametrize("seed", range(10))
def test_stopping_early_loses_nothing(seed: int, beam: int) -> None:
    """A narrow beam that stops at its bound finds the same n-best list as one that goes on to the limit."""
    limits = [12, 7, 10]
    results = beam_search(ToySteps(seed, 3), limits, SearchOptions(beam=beam, n_best=2))
    for sentence, (found, limit) in enumerate(zip(results, limits, strict=True)):
        expected = exhaustive_beam(ToySteps(seed, 3), sentence, limit, beam, 0.6)[:2]
        assert expected, "some string should end by itself"
        assert len(found) == 2
        assert [hypothesis.ids for hypothesis in found][: len(expected)] == [ids for _, ids in expected]


@pytest.mark.parametrize("beam", [1, 4])
def test_encoder_runs_once_and_decoder_once_a_token(beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each encoder layer runs once; each decoder layer sees one new position of each hypothesis a step."""
    model = small_model(0)
    calls: Counter[str] = Counter()
    positions = []
    for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for layer in stack:
            layer.register_forward_hook(lambda _layer, _inputs, _output, name=name: calls.update([name]))
    model.decoder[0].register_forward_hook(lambda _layer, inputs, _output: positions.append(inputs[0].size(1)))
    project = MultiHeadAttention.project_memory

    def counted(attention: MultiHeadAttention, states: Tensor) -> Tensor:
        calls.update(["project_memory"])
        return project(attention, states)

    monkeypatch.setattr(MultiHeadAttention, "project_memory", counted)
    [[hypothesis]] = TorchEngine(model, packed=False).search([[20, 21, 22]], SearchOptions(beam=beam, extra=10))
    steps = len(positions)
    assert calls == {"encoder": 2, "decoder": 2 * steps, "project_memory": 2}
    assert positions == [1, *[beam] * (steps - 1)]
    assert len(hypothesis.ids) + 1 <= steps <= 3 + 10 + 1
    if beam == 1:
        assert steps == len(hypothesis.ids) + 1


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_what_does_not_fit_is_computed_in_halves(error: RuntimeError, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same results. A single sentence that does not fit is an error that names its size."""
    engine, sources, options = TorchEngine(small_model(0)), sentences(0, count=9), SearchOptions(extra=5)
    expected = engine.search(sources, options)
    encode, most = Transformer.encode, 2
    rows = []

    def limited(model: Transformer, source: Tensor) -> Memory:
        if len(source) > most:
            raise error
        rows.append(len(source))
        return encode(model, source)

    monkeypatch.setattr(Transformer, "encode", limited)
    found = engine.search(sources, options)
    assert [[h.ids for h in best] for best in found] == [[h.ids for h in best] for best in expected]
    assert rows == [2, 2, 2, 1, 2]
    most = 0
    with pytest.raises(NmtError, match="out of memory with one sentence"):
        engine.search(sources, options)
