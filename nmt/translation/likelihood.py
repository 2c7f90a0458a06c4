"""Forced decoding of text: the model's log-probabilities of given translations."""

from collections.abc import Iterator, Sequence

from nmt.data.vocabulary import Vocabulary
from nmt.lines import clean, is_blank, needs_no_translation
from nmt.translation.engine import TorchEngine
from nmt.translation.hypothesis import Forced, Hypothesis, SearchOptions, length_penalty
from nmt.translation.joining import Segment, Translation, join
from nmt.translation.splitting import trimmed
from nmt.translation.translator import batches

SORTED_PAIRS = 1_000  # pairs that are sorted by length together
Pair = tuple[str, str]  # a source and its translation


def force_decode(
    engine: TorchEngine, vocabulary: Vocabulary, pairs: Sequence[Pair], copies: bool = True
) -> Iterator[Translation]:
    """Each pair as `nmt translate --no-split --details` would report it, with its score.

    Each line counts as one sentence of any length. The vocabulary cuts the text into pieces, which may differ from the pieces
    that a search found. Where the model `copies` lines without letters, a correct copy has score 0, as in `nmt translate`.
    """
    for start in range(0, len(pairs), SORTED_PAIRS):
        yield from _force_group(engine, vocabulary, pairs[start : start + SORTED_PAIRS], copies)


def _force_group(engine: TorchEngine, vocabulary: Vocabulary, group: Sequence[Pair], copies: bool) -> list[Translation]:
    parts = [(_trimmed(source)[1], _trimmed(target)) for source, target in group]
    copied = [source == target and needs_no_translation(source, copies) for source, (_, target, _) in parts]
    ids = [(vocabulary.encode(source), vocabulary.encode(target)) for source, (_, target, _) in parts]
    forced = _force(engine, [pair for pair, copy in zip(ids, copied, strict=True) if not copy])
    translations = []
    for (_, (before, text, after)), (source_ids, target_ids), copy in zip(parts, ids, copied, strict=True):
        core: str | Segment = text if copy else Segment(source_ids, False, [_hypothesis(target_ids, next(forced))])
        translations += join([before, core, after], vocabulary, 1, details=True, keeps_numbers=copies)
    return translations


def _trimmed(text: str) -> tuple[str, str, str]:
    text = clean(text)
    return ("", "", "") if is_blank(text) else trimmed(text)


def _force(engine: TorchEngine, pairs: list[tuple[list[int], list[int]]]) -> Iterator[Forced]:
    """Compute batches of similar length; return the results in the order of the pairs."""
    lengths = [max(map(len, pair)) + 1 for pair in pairs]
    order = sorted(range(len(pairs)), key=lengths.__getitem__, reverse=True)
    found: dict[int, Forced] = {}
    for batch in batches(order, lengths.__getitem__, engine.batch_tokens):
        found |= zip(batch, engine.force([pairs[place] for place in batch]), strict=True)
    return (found[place] for place in range(len(pairs)))


def _hypothesis(ids: list[int], forced: Forced) -> Hypothesis:
    log_probability = sum(forced.log_probabilities)
    score = log_probability / length_penalty(len(ids) + 1, SearchOptions.length_penalty)
    return Hypothesis(ids, log_probability, score, False, forced)
