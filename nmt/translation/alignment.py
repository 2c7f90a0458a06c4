"""Word alignment from attention: which source word each target word is translated from."""

from collections.abc import Sequence

import numpy as np

from nmt.data.vocabulary import Vocabulary


def aligning_layer(layers: int) -> int:
    """The decoder layer, counted from 0, whose attention, averaged over its heads, aligns words best.

    Of six layers it is the last but one (Garg et al. 2019, "Jointly Learning to Align and Translate with Transformer Models").
    Of two or three it is the last, by far, as tests/benchmarks/alignment.py measured; four and five are not measured.
    """
    return layers - 2 if layers > 3 else layers - 1


def align(attention: np.ndarray, source: Sequence[int], target: Sequence[int], vocabulary: Vocabulary) -> list[tuple[int, int]]:
    """Pairs (source word, target word): for each target word the source word that its pieces attend to most.

    Words are separated by spaces and counted from 0. `attention` [T + 1, S + 1] is that of `Forced`; the part that goes to
    the source's EOS counts for no word.
    """
    source_words, target_words = words(source, vocabulary), words(target, vocabulary)
    if not source_words or not target_words:
        return []
    weights = attention[: len(target), : len(source)]
    by_source_word = np.stack([weights[:, places].sum(1) for places in source_words], 1)
    return [(int(by_source_word[places].sum(0).argmax()), number) for number, places in enumerate(target_words)]


def words(ids: Sequence[int], vocabulary: Vocabulary) -> list[list[int]]:
    """The positions of each word's pieces. Spaces alone are no word."""
    found: list[list[int]] = []
    after_space = True
    for place, piece in enumerate(vocabulary.pieces(ids)):
        if after_space or piece.startswith("\u2581"):
            found.append([])
        found[-1].append(place)
        after_space = piece.endswith("\u2581")
    return [places for places in found if vocabulary.decode([ids[place] for place in places]).strip(" ")]
