"""Sampling: in the model's own proportions, from the pieces asked for, and the same for a sentence in any batch."""

from collections import Counter
from pathlib import Path

import pytest
import torch

from nmt.ids import BOS, EOS, FIRST_PIECE
from nmt.translation.engine import TorchEngine
from nmt.translation.hypothesis import SearchOptions, length_penalty
from nmt.translation.sampling import sample
from tests.conftest import call, refusal
from tests.translation.test_search import SIZE, ToySteps, forced_score, sentences, small_model


class Alike(ToySteps):
    """All sentences have the first one's probabilities."""

    def logits(self, sentence: int, tokens: tuple[int, ...]) -> torch.Tensor:
        return super().logits(0, tokens)


@pytest.mark.parametrize("k", [2, 3, 50])
def test_pieces_come_in_the_models_proportions(k: int) -> None:
    """The first pieces of 20,000 draws: each within five standard deviations of its probability among the K likeliest."""
    count, toy = 20_000, ToySteps(5, 1)
    sources = [[FIRST_PIECE + number] for number in range(count)]
    found = sample(Alike(5, count), sources, [1] * count, SearchOptions(sample=k))
    first = Counter(drawn.ids[0] for [drawn] in found)
    expected = toy.logits(0, (BOS,))[FIRST_PIECE:].topk(min(k, SIZE - FIRST_PIECE))
    assert {*first} == {FIRST_PIECE + place for place in expected.indices.tolist()}
    for place, p in zip(expected.indices.tolist(), expected.values.softmax(0).tolist(), strict=True):
        assert abs(first[FIRST_PIECE + place] / count - p) < 5 * (p * (1 - p) / count) ** 0.5


def test_one_piece_to_draw_from_is_greedy_search() -> None:
    model = small_model(2)
    sources = sentences(2, count=20)
    drawn = TorchEngine(model).search(sources, SearchOptions(sample=1, extra=8))
    greedy = TorchEngine(model).search(sources, SearchOptions(beam=1, extra=8))
    assert [best.ids for [best] in drawn] == [best.ids for [best] in greedy]


@pytest.mark.parametrize("architecture", ["transformer", "decoder-only", "rnn"])
def test_a_sentence_alone_is_drawn_as_in_a_batch(architecture: str) -> None:
    """Whatever is beside it; another seed draws another translation, whose log-probability is the model's own."""
    model = small_model(1, architecture=architecture, layers=1)
    engine, sources = TorchEngine(model), sentences(3, count=24)
    options = SearchOptions(sample=10, seed=4, extra=6)
    batched = engine.search(sources, options)
    for source, [found] in zip(sources, batched, strict=True):
        [[alone]] = engine.search([source], options)
        assert alone.ids == found.ids
        assert EOS not in found.ids
        assert min(found.ids) >= FIRST_PIECE
        assert found.log_probability == pytest.approx(forced_score(model, source, found.ids), abs=1e-4)
        assert found.score == pytest.approx(found.log_probability / length_penalty(len(found.ids) + 1, 0.6))
    other = engine.search(sources, SearchOptions(sample=10, seed=5, extra=6))
    assert sum(one[0].ids != two[0].ids for one, two in zip(batched, other, strict=True)) > 20


def test_the_command_draws_a_line_a_line(straight: Path) -> None:
    """The same again with the same seed, whatever is beside a line; contradictions are refused."""
    lines = [b"Hello.", b"The old man.", b"", b"Hello."]
    options = ("translate", "-m", straight, "--sample", "10", "--seed", "7")
    drawn = call(*options, stdin=b"\n".join(lines) + b"\n").stdout_bytes.split(b"\n")
    assert len(drawn) == 5
    assert drawn[0] == drawn[3]
    assert drawn[2] == b""
    assert call(*options, stdin=b"The old man.\n").stdout_bytes == drawn[1] + b"\n"
    assert "--n-best" in refusal(call(*options, "--n-best", "2"))
    assert "--engine torch" in refusal(call(*options, "--engine", "ctranslate2"))
    assert "--sample" in call("translate", "-m", straight, "--sample", "0").stderr
