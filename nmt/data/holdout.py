"""Which training pairs are held out where a corpus has no validation or test text.

Those whose sources have the smallest digests: the choice depends on the text alone, and not on the order of its lines.
"""

import hashlib
from collections.abc import Iterable

from nmt.data.splits import Pair
from nmt.lines import is_blank

MAX_HELD_OUT = 1_000  # pairs per split, or 5% of all pairs if that is less
MIN_TRAINING_PAIRS = 1_000  # to hold any out


def hold_out(pairs: Iterable[Pair], splits: list[str]) -> tuple[dict[str, list[Pair]], set[str]]:
    """Choose pairs for these splits in one pass, in bounded memory; none if there are too few.

    Returns the pairs by split, in the order of the text, and the sources that training must not contain. Pairs with a blank
    side are not chosen. If a source has several translations, the first is held out and the others are dropped. At most half
    of the different sources is taken.
    """
    size = 2 * MAX_HELD_OUT * len(splits)  # twice as many as are wanted, to know half of the sources
    smallest: dict[bytes, tuple[int, Pair]] = {}  # the pair's number and the pair, by its source's digest
    count = 0
    for count, (source, target) in enumerate(pairs, 1):
        if not (is_blank(source) or is_blank(target)):
            digest = hashlib.blake2b(source.encode(), digest_size=12).digest()
            smallest.setdefault(digest, (count, (source, target)))
            if len(smallest) > 2 * size:
                smallest = dict(sorted(smallest.items())[:size])
    if count < MIN_TRAINING_PAIRS:
        return {}, set()
    chosen = [numbered for _, numbered in sorted(smallest.items())[:size]]
    chosen = chosen[: min(min(MAX_HELD_OUT, count // 20) * len(splits), len(chosen) // 2)]
    share = len(chosen) // len(splits)  # smaller where few sources recur often
    parts = {split: sorted(chosen[i * share : (i + 1) * share]) for i, split in enumerate(splits)}
    return {split: [pair for _, pair in part] for split, part in parts.items()}, {source for _, (source, _) in chosen}
