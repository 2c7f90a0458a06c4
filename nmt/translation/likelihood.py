"""What the model says of translations that are given: text in, log-probabilities out (forced decoding)."""

from collections.abc import Iterator, Sequence

from nmt.data.vocabulary import Vocabulary
from nmt.lines import clean, is_blank, needs_no_translation
from nmt.translation.engine import TorchEngine
from nmt.translation.hypothesis import Forced, Hypothesis, SearchOptions, length_penalty
from nmt.translation.joining import Segment, Translation, join
from nmt.translation.splitting import trimmed
from nmt.translation.translator import batches

GROUP = 1_000  # pairs that are sorted by length together
Pair = tuple[str, str]  # a source and its translation


def force_decode(
    engine: TorchEngine, vocabulary: Vocabulary, pairs: Sequence[Pair], copies: bool = True
) -> Iterator[Translation]:
    """The translation of each pair as `nmt translate --no-split --details` would have told it, with its score.

    A line is taken as one sentence, however many it holds, and as long as it is. The pieces are those into which the
    vocabulary cuts the text, which need not be the ones that a search put it together from. What was rightly copied, as
    lines without a letter are where the model `copies` them, has zeros, as it has in `nmt translate`.
    """
    for start in range(0, len(pairs), GROUP):
        yield from _force_group(engine, vocabulary, pairs[start : start + GROUP], copies)


def _force_group(engine: TorchEngine, vocabulary: Vocabulary, group: Sequence[Pair], copies: bool) -> list[Translation]:
    cut = [tuple(map(_cut, pair)) for pair in group]
    ids = [(vocabulary.encode(source), vocabulary.encode(target)) for (_, source, _), (_, target, _) in cut]
    copied = [source == target and needs_no_translation(source, copies) for (_, source, _), (_, target, _) in cut]
    forced = _force(engine, [pair for pair, copy in zip(ids, copied, strict=True) if not copy])
    translations = []
    for (_, (before, text, after)), (source_ids, target_ids), copy in zip(cut, ids, copied, strict=True):
        core: str | Segment = text if copy else Segment(source_ids, False, [_hypothesis(target_ids, next(forced))])
        translations += join([before, core, after], vocabulary, 1, details=True, keeps_numbers=copies)
    return translations


def _cut(text: str) -> tuple[str, str, str]:
    text = clean(text)
    return ("", "", "") if is_blank(text) else trimmed(text)


def _force(engine: TorchEngine, pairs: list[tuple[list[int], list[int]]]) -> Iterator[Forced]:
    """In batches of like length, and in the pairs' own order."""
    sizes = [max(map(len, pair)) + 1 for pair in pairs]
    order = sorted(range(len(pairs)), key=sizes.__getitem__, reverse=True)
    found: dict[int, Forced] = {}
    for batch in batches(order, sizes.__getitem__, engine.batch_tokens):
        found |= zip(batch, engine.force([pairs[place] for place in batch]), strict=True)
    return (found[place] for place in range(len(pairs)))


def _hypothesis(ids: list[int], forced: Forced) -> Hypothesis:
    log_probability = sum(forced.log_probabilities)
    score = log_probability / length_penalty(len(ids) + 1, SearchOptions.length_penalty)
    return Hypothesis(ids, log_probability, score, False, forced)
