"""Training pairs as ids: exactly what the vocabulary gives, never shortened, dropped at exact limits."""

import numpy as np
import pytest

from nmt.data import prepared as module
from nmt.data.cleaning import CleaningReport
from nmt.data.prepared import Encoder, PreparedPairs, prepare
from nmt.data.splits import Pair
from nmt.data.vocabulary import Vocabulary


def prepared(pairs: list[Pair], vocabulary: Vocabulary, max_pieces: int = 256) -> tuple[PreparedPairs, dict[str, int]]:
    """The pairs, and how many were dropped for which reason."""
    report = CleaningReport(read=len(pairs))
    return prepare(pairs, Encoder(vocabulary, max_pieces, 3.0), report), dict(report.dropped)


def of_pieces(count: int) -> str:
    """A text of this many pieces: the mark of a word, and signs of which no corpus here holds two."""
    return "~" * (count - 1)


@pytest.mark.parametrize("chunk", [1, 7, 10_000])
def test_ids_are_the_vocabularys(
    vocabulary: Vocabulary, demo_pairs: list[Pair], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sentence is encoded as `encode` does it, in order, in any number of chunks."""
    monkeypatch.setattr(module, "CHUNK", chunk)
    texts = [*demo_pairs[:100], ("a\tb\u2028c", "a b c")]
    pairs, dropped = prepared(texts, vocabulary)
    assert (len(pairs), dropped) == (101, {})
    for number, (source, target) in enumerate(texts):
        assert pairs.source[number].tolist() == vocabulary.encode(source)
        assert pairs.target[number].tolist() == vocabulary.encode(target)
    assert pairs.source.lengths.tolist() == [len(vocabulary.encode(source)) for source, _ in texts]
    assert pairs.target.starts.tolist() == np.cumsum([0, *pairs.target.lengths]).tolist()


@pytest.mark.parametrize(("more_source", "more_target"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_the_length_limit_is_exact(vocabulary: Vocabulary, more_source: int, more_target: int) -> None:
    """A side of max_pieces pieces is kept whole; with one more on either side the pair is dropped, never cut."""
    limit = 20
    texts = of_pieces(limit + more_source), of_pieces(limit + more_target)
    assert len(vocabulary.encode(texts[0])) == limit + more_source
    pairs, dropped = prepared([texts], vocabulary, limit)
    kept = not (more_source or more_target)
    assert pairs.source.lengths.tolist() == pairs.target.lengths.tolist() == [limit] * kept
    assert dropped == ({} if kept else {f"over {limit} pieces": 1})


@pytest.mark.parametrize(("short", "long", "kept"), [(10, 30, 1), (10, 31, 0), (1, 10, 1), (1, 11, 0)])
@pytest.mark.parametrize("swapped", [False, True])
def test_the_ratio_limit_is_exact(vocabulary: Vocabulary, short: int, long: int, kept: int, swapped: bool) -> None:
    """Three times as long is kept, one piece more is dropped, either way round; up to 10 pieces any ratio is kept."""
    pair = of_pieces(short), of_pieces(long)
    pairs, dropped = prepared([pair[::-1] if swapped else pair], vocabulary)
    assert len(pairs) == kept
    assert dropped == ({} if kept else {"with a length ratio over 3": 1})


def test_dropping_is_of_the_pair(vocabulary: Vocabulary) -> None:
    """D3: after a dropped pair, sources still belong to their own targets. Nothing left is an empty set."""
    pairs, _ = prepared([("a", "b"), (of_pieces(300), "c"), ("d", "e"), ("f", of_pieces(50)), ("g", "h")], vocabulary)
    texts = [[vocabulary.decode(side[i].tolist()) for i in range(3)] for side in (pairs.source, pairs.target)]
    assert texts == [["a", "d", "g"], ["b", "e", "h"]]
    assert [len(prepared(pairs, vocabulary)[0]) for pairs in ([], [(of_pieces(300), "a")])] == [0, 0]
