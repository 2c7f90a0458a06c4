"""Joining sentences: the k best of all choices, a translation's numbers, and when it is flagged."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.vocabulary import Vocabulary
from nmt.translation.hypothesis import Hypothesis
from nmt.translation.joining import Line, Segment, Translation, join, k_best


def ranked(scores: list[int]) -> list[Hypothesis]:
    """Hypotheses in the order of a search: best first."""
    return [Hypothesis([], 0.0, float(score), False) for score in sorted(scores, reverse=True)]


@given(
    lists=st.lists(st.lists(st.integers(-20, 0), min_size=1, max_size=4).map(ranked), max_size=4),
    k=st.integers(1, 6),
)
def test_k_best_are_the_best_of_all_choices(lists: list[list[Hypothesis]], k: int) -> None:
    """Compared with all choices: the same sums, one hypothesis from each list, and no choice twice."""
    found = k_best(lists, k)
    every = list(itertools.product(*lists))
    sums = [sum(hypothesis.score for hypothesis in choice) for choice in found]
    assert sums == sorted((sum(one.score for one in choice) for choice in every), reverse=True)[:k]
    chosen = [tuple(map(id, choice)) for choice in found]
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= {tuple(map(id, choice)) for choice in every}


@pytest.fixture
def line(vocabulary: Vocabulary) -> Line:
    """Two sentences with two hypotheses each, and white space around them."""
    pairs = (("Der Hund", "Ein Hund"), ("die Katze", "eine Katze"))
    parts = [Segment(vocabulary.encode("the"), False) for _ in pairs]
    for part, texts, worse in zip(parts, pairs, (-0.75, -3.0), strict=True):
        ids = [vocabulary.encode(text) for text in texts]
        part.hypotheses = [Hypothesis(ids[0], -2.0, -0.5, False), Hypothesis(ids[1], -4.0, worse, False)]
    return [(" ", " "), parts[0], ("\u00a0 ", "\u00a0 "), parts[1]]


def test_sums_and_ranks(line: Line, vocabulary: Vocabulary) -> None:
    """Score, log-probability and tokens (with each sentence's EOS) are sums; the best joins the best of each."""
    found = join(line, vocabulary, 3)
    assert [translation.text for translation in found] == [
        " Der Hund\u00a0 die Katze",
        " Ein Hund\u00a0 die Katze",
        " Der Hund\u00a0 eine Katze",
    ]
    assert [translation.score for translation in found] == [-1.0, -1.25, -3.5]
    assert [translation.log_probability for translation in found] == [-4.0, -6.0, -6.0]
    texts = ("Der Hund", "die Katze")
    assert found[0].tokens == sum(len(vocabulary.encode(text)) for text in texts) + 2
    assert join(line, vocabulary, 1) == found[:1]
    assert len(join(line, vocabulary, 9)) == 4
    assert join([(" - ", " - ")], vocabulary, 4) == [Translation(" - ", 0.0, 0.0, 0, [])]  # a copied line has a single one


def test_flags_belong_to_each_translation(line: Line, vocabulary: Vocabulary) -> None:
    """All share `cut`, which depends on the source; `limit` and `repetition` depend on the hypotheses."""
    first, second = (piece for piece in line if isinstance(piece, Segment))
    loop = vocabulary.encode("Hund") * 8
    first.hypotheses[1] = Hypothesis(loop, -4.0, -0.75, True)
    assert [translation.flags for translation in join(line, vocabulary, 2)] == [[], ["limit", "repetition"]]
    second.is_part = True
    assert [translation.flags for translation in join(line, vocabulary, 2)] == [["cut"], ["cut", "limit", "repetition"]]
    first.ids = loop  # a source that repeats is no fault of its translation
    assert [translation.flags for translation in join(line, vocabulary, 2)] == [["cut"], ["cut", "limit"]]


def test_a_translation_with_other_numbers_is_flagged(vocabulary: Vocabulary) -> None:
    """F3: each translation of an n-best list by itself, unless the model is one that does not copy numbers."""
    part = Segment(vocabulary.encode("Room 231"), False)
    part.hypotheses = [Hypothesis(vocabulary.encode(text), -1.0, -1.0, False) for text in ("Zimmer 231", "Zimmer 213")]
    line: Line = [("99 ", "99 "), part]
    assert [one.flags for one in join(line, vocabulary, 2)] == [[], ["numbers"]]
    assert [one.flags for one in join(line, vocabulary, 2, keeps_numbers=False)] == [[], []]


def test_a_text_spelled_twice_is_one_translation(vocabulary: Vocabulary) -> None:
    """F8: with the score of its best spelling; the list may be shorter than asked for."""
    pieces = vocabulary.pieces(range(len(vocabulary)))
    bytewise = [pieces.index(piece) for piece in ("\u2581", "<0x48>", "<0x75>", "<0x6E>", "<0x64>")]
    part = Segment(vocabulary.encode("dog"), False)
    part.hypotheses = [
        Hypothesis(ids, score, score, False)
        for ids, score in ((vocabulary.encode("Hund"), -1.0), (bytewise, -2.0), (vocabulary.encode("Katze"), -3.0))
    ]
    found = join([part], vocabulary, 3)
    assert [(one.text, one.score) for one in found] == [("Hund", -1.0), ("Katze", -3.0)]
    assert len({one.text for one in join([part, (" ", " "), part], vocabulary, 9)}) == 4
