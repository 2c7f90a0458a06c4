"""Training pairs as ids: exactly what the vocabulary gives, never shortened, dropped at exact limits."""

import numpy as np
import pytest

from nmt.data import prepared as module
from nmt.data.cleaning import CleaningReport
from nmt.data.encoding import Encoder
from nmt.data.prepared import PreparedPairs, prepare
from nmt.data.splits import Pair
from nmt.data.vocabulary import Vocabulary


def prepared(
    pairs: list[Pair], vocabulary: Vocabulary, max_pieces: int = 256, max_ratio: float = 3.0
) -> tuple[PreparedPairs, CleaningReport]:
    report = CleaningReport(read=len(pairs))
    return prepare(pairs, Encoder(vocabulary, max_pieces, max_ratio), report), report


def of_pieces(count: int) -> str:
    """A text of so many pieces: the mark of a word, and signs that no corpus here holds two of."""
    return "~" * (count - 1)


@pytest.mark.parametrize("chunk", [1, 7, 10_000])
def test_ids_are_the_vocabularys(
    vocabulary: Vocabulary, demo_pairs: list[Pair], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kept sentence is there in order, as encode gives it, in however many chunks it was encoded."""
    monkeypatch.setattr(module, "CHUNK", chunk)
    pairs, report = prepared(demo_pairs[:100], vocabulary)
    assert len(pairs) == report.kept == 100
    for number, (source, target) in enumerate(demo_pairs[:100]):
        assert pairs.source[number].tolist() == vocabulary.encode(source)
        assert pairs.target[number].tolist() == vocabulary.encode(target)
    assert pairs.source.lengths.tolist() == [len(vocabulary.encode(source)) for source, _ in demo_pairs[:100]]
    assert pairs.target.starts.tolist() == np.cumsum([0, *pairs.target.lengths]).tolist()


def test_control_characters_are_spaces(vocabulary: Vocabulary) -> None:
    """Training text is cleaned as translate's input is."""
    pairs, _ = prepared([("a\tb\u2028c", "a b c")], vocabulary)
    assert pairs.source[0].tolist() == pairs.target[0].tolist()


@pytest.mark.parametrize(("source", "target", "kept"), [(256, 256, 1), (257, 256, 0), (256, 257, 0), (257, 257, 0)])
def test_the_length_limit_is_exact(vocabulary: Vocabulary, source: int, target: int, kept: int) -> None:
    """A side of 256 pieces is kept whole; with 257 on either side the pair is dropped, never cut."""
    assert len(vocabulary.encode(of_pieces(source))) == source
    pairs, report = prepared([(of_pieces(source), of_pieces(target))], vocabulary)
    assert len(pairs) == kept
    assert pairs.source.lengths.tolist() == [source] * kept
    assert pairs.target.lengths.tolist() == [target] * kept
    assert dict(report.dropped) == ({} if kept else {"over 256 pieces": 1})


def test_the_length_limit_is_a_setting(vocabulary: Vocabulary) -> None:
    """max_pieces moves the limit, and the reason names it."""
    pairs, report = prepared(
        [(of_pieces(20), of_pieces(20)), (of_pieces(21), of_pieces(20))], vocabulary, max_pieces=20
    )
    assert pairs.source.lengths.tolist() == [20]
    assert dict(report.dropped) == {"over 20 pieces": 1}


@pytest.mark.parametrize(
    ("short", "long", "kept"), [(4, 12, 1), (4, 13, 0), (10, 30, 1), (10, 31, 0), (1, 10, 1), (1, 11, 0), (3, 10, 1)]
)
@pytest.mark.parametrize("swapped", [False, True])
def test_the_ratio_limit_is_exact(vocabulary: Vocabulary, short: int, long: int, kept: int, swapped: bool) -> None:
    """Three times as long is kept, one piece more is dropped, either way round; up to 10 pieces any ratio is kept."""
    pair = of_pieces(short), of_pieces(long)
    pairs, report = prepared([pair[::-1] if swapped else pair], vocabulary)
    assert len(pairs) == kept
    assert dict(report.dropped) == ({} if kept else {"with a length ratio over 3": 1})


def test_dropping_is_of_the_pair(vocabulary: Vocabulary) -> None:
    """Behind a dropped pair, sources still stand beside their own targets."""
    pairs, _ = prepared([("a", "b"), (of_pieces(300), "c"), ("d", "e"), ("f", of_pieces(50)), ("g", "h")], vocabulary)
    texts = [[vocabulary.decode(side[i].tolist()) for i in range(3)] for side in (pairs.source, pairs.target)]
    assert texts == [["a", "d", "g"], ["b", "e", "h"]]


def test_nothing_gives_no_pairs(vocabulary: Vocabulary) -> None:
    """No pairs, or none that fit, are an empty set and no error."""
    assert [len(prepared(pairs, vocabulary)[0]) for pairs in ([], [(of_pieces(300), "a")])] == [0, 0]


@pytest.mark.parametrize(("size", "dtype"), [(65_536, np.uint16), (65_537, np.int32)])
def test_ids_take_two_bytes_where_they_fit(vocabulary: Vocabulary, size: int, dtype: type) -> None:
    """Up to 65,536 pieces an id takes two bytes, above it four; the largest id survives."""

    class Large(Vocabulary):
        def __len__(self) -> int:
            return size

        def encode_all(self, texts: object) -> list[list[int]]:
            return [[size - 1]]

    pairs, _ = prepared([("a", "b")], Large(vocabulary.model))
    assert pairs.source.ids.dtype == pairs.target.ids.dtype == dtype
    assert pairs.source[0].tolist() == [size - 1]
