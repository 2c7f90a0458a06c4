"""`nmt score --force-decode`: how likely a model finds given translations."""

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.errors import UsageError
from nmt.formatting import counted
from nmt.lines import clean, is_blank, needs_no_translation, read_lines
from nmt.reporting import Reporter
from nmt.saved_model import SavedModel
from nmt.scoring.commands import ScoreOptions, read_hypotheses
from nmt.scoring.metrics import check_aligned
from nmt.translation.hypothesis import Hypothesis, SearchOptions, length_penalty
from nmt.translation.joining import Copied, Line, Segment, Translation, join
from nmt.translation.output import as_json
from nmt.translation.splitting import trimmed
from nmt.translation.translator import batches

if TYPE_CHECKING:
    from nmt.translation.engine import TorchEngine

SORTED_PAIRS = 1_000  # pairs that are sorted by length together


def force_decode(
    path: Path,
    hypotheses: list[str],
    source: Path,
    references: list[Path],
    options: ScoreOptions,
    device: str,
    reporter: Reporter,
) -> Iterator[str]:
    """Yields a line per translation of the source file, and says the total on stderr.

    Text is line number, log-probability, tokens and translation, separated by tabs; JSON is that of
    `nmt translate --no-split --format json --details`.
    """
    from nmt.translation import engine as torch_engine

    if len(hypotheses) != 1 or references or options != ScoreOptions(form=options.form):
        excluded = "-r, --metric, --lowercase, --confidence, --sentences, --examples"
        raise UsageError(f"--force-decode: takes one HYPOTHESIS, and none of {excluded}")
    sources = list(read_lines(source))
    translations = read_hypotheses(hypotheses[0])
    check_aligned(translations, (str(source), sources))
    model = SavedModel.open(path)
    engine = torch_engine.load(model, device, "auto")
    pairs = list(zip(sources, translations[1], strict=True))
    network, encode = model.description.model, model.vocabulary.encode
    for number, (spoken, written) in enumerate(pairs if network.positions == "learned" else [], 1):
        if not network.can_number(len(encode(spoken)), len(encode(written))):
            raise UsageError(
                f"{source}, line {number}: has more pieces than the model has positions ({network.max_positions:,})"
            )
    groups = (pairs[start : start + SORTED_PAIRS] for start in range(0, len(pairs), SORTED_PAIRS))
    log_probability, tokens = 0.0, 0
    for number, found in enumerate(chain.from_iterable(_forced(engine, model, group) for group in groups), 1):
        log_probability += found.log_probability
        tokens += found.tokens
        if options.form == "json":
            yield as_json(number, sources[number - 1], [found])
        else:
            yield f"{number}\t{found.log_probability:.4f}\t{found.tokens}\t{found.text}"
    mean = log_probability / max(1, tokens)
    size = f"{counted(len(sources), 'line')}, {counted(tokens, 'token')}"
    reporter.say(f"{size}: log-probability {log_probability:,.2f}, {mean:.4f} per token, perplexity {math.exp(-mean):.2f}")


def _forced(engine: "TorchEngine", model: SavedModel, pairs: Sequence[tuple[str, str]]) -> list[Translation]:
    """The target of each pair as a translation of its source, which counts as one sentence of any length.

    The vocabulary cuts the text into pieces, which may differ from the pieces that a search found. Where the model copies lines
    without letters, a correct copy has score 0, as in `nmt translate`.
    """
    vocabulary, copies = model.vocabulary, model.description.data.copies_letterless
    lines: list[Line] = []
    to_score: list[tuple[int, Segment, list[int]]] = []  # the longer side's tokens, the source, and the ids of the target
    for (_, source, _), (before, target, after) in (map(_trimmed, pair) for pair in pairs):
        core: Segment | Copied = (source, target)
        if source != target or not needs_no_translation(source, copies):
            core, ids = Segment(vocabulary.encode(source), is_part=False), vocabulary.encode(target)
            to_score.append((max(len(core.ids), len(ids)) + 1, core, ids))
        lines.append([(before, before), core, (after, after)])
    length = itemgetter(0)
    for batch in batches(sorted(to_score, key=length, reverse=True), length, engine.batch_tokens):
        found = engine.force([(segment.ids, ids) for _, segment, ids in batch])
        for (_, segment, ids), forced in zip(batch, found, strict=True):
            log_probability = sum(forced.log_probabilities)
            score = log_probability / length_penalty(len(ids) + 1, SearchOptions.length_penalty)
            segment.hypotheses = [Hypothesis(ids, log_probability, score, False, forced)]
    return [join(line, vocabulary, 1, details=True, keeps_numbers=copies)[0] for line in lines]


def _trimmed(text: str) -> tuple[str, str, str]:
    text = clean(text)
    return ("", "", "") if is_blank(text) else trimmed(text)
