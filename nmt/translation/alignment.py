"""Which word of the source each word of a translation comes from, read off the attention."""

from collections.abc import Sequence

import numpy as np

from nmt.data.vocabulary import Vocabulary


def aligning_layer(layers: int) -> int:
    """The decoder layer, counted from 0, in which the heads' mean finds a word's translation best.

    Of six layers it is the last but one (Garg et al. 2019, "Jointly Learning to Align and Translate with Transformer Models").
    Of two and of three it is the last, by far, as tests/benchmarks/alignment.py measured; four and five have not been.
    """
    return layers - 2 if layers > 3 else layers - 1


def align(
    attention: np.ndarray, source: Sequence[int], target: Sequence[int], vocabulary: Vocabulary
) -> list[tuple[int, int]]:
    """(source word, target word) for each target word: the source word that its pieces looked at most.

    Words are what stands between spaces, counted from 0. `attention` [T + 1, S + 1] is that of force(); what went to the
    source's EOS belongs to no word.
    """
    rows, columns = words(source, vocabulary), words(target, vocabulary)
    if not rows or not columns:
        return []
    weights = attention[: len(target), : len(source)]
    by_source = np.stack([weights[:, of_word].sum(1) for of_word in rows], 1)
    return [(int(by_source[of_word].sum(0).argmax()), number) for number, of_word in enumerate(columns)]


def words(ids: Sequence[int], vocabulary: Vocabulary) -> list[list[int]]:
    """The places of each word's pieces; spaces alone are no word."""
    found: list[list[int]] = []
    between = True
    for place, piece in enumerate(vocabulary.pieces(ids)):
        if between or piece.startswith("\u2581"):
            found.append([])
        found[-1].append(place)
        between = piece.endswith("\u2581")
    return [places for places in found if vocabulary.decode([ids[place] for place in places]).strip(" ")]
