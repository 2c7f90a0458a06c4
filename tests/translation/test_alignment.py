"""Words and their pieces, and which word attends to which."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data.vocabulary import Vocabulary
from nmt.translation.alignment import align, words


def test_a_word_aligns_with_the_one_its_pieces_attend_to_most(vocabulary: Vocabulary) -> None:
    """The pieces of a word count together, on both sides; EOS is no word, however much attention it gets."""
    source, target = (vocabulary.encode(text) for text in ("unbelievable old", "alten unglaublichen"))
    (long, short), (first, second) = words(source, vocabulary), words(target, vocabulary)
    assert len(long) > 1
    assert len(second) > 1
    attention = [[0.0] * (len(source) + 1) for _ in range(len(target) + 1)]
    for row in attention:
        row[-1] = 0.5
    for place in first:
        attention[place][short[0]] = 0.3
        attention[place][long[0]] = 0.2
    for place in second:
        for column in long:  # each alone gets less than the other word
            attention[place][column] = 0.3 / len(long)
        attention[place][short[0]] = 0.2
    assert align(np.array(attention), source, target, vocabulary) == [(1, 0), (0, 1)]
    assert align(np.ones((1, 1)), [], [], vocabulary) == []


@settings(max_examples=200)
@given(text=st.text(st.sampled_from("ab ä1.Ωß▁ 日"), max_size=30))
def test_words_are_what_stands_between_spaces(vocabulary: Vocabulary, text: str) -> None:
    """As many as a reader of the text counts, and no piece is in two of them."""
    ids = vocabulary.encode(text)
    found = words(ids, vocabulary)
    assert len(found) == len([word for word in vocabulary.decode(ids).split(" ") if word])
    places = [place for word in found for place in word]
    assert places == sorted(set(places))
