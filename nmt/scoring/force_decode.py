"""`nmt score --force-decode`: how likely a model finds given translations."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from nmt.errors import UsageError
from nmt.formatting import counted
from nmt.lines import read_lines
from nmt.reporting import Reporter
from nmt.saved_model import SavedModel
from nmt.scoring.commands import ScoreOptions, read_hypotheses
from nmt.scoring.metrics import check_aligned


def force_decode(
    path: Path,
    hypotheses: Sequence[str],
    source: Path,
    references: Sequence[Path],
    options: ScoreOptions,
    device: str,
    reporter: Reporter,
) -> Iterator[str]:
    """Yields a line per translation of the source file, and says the total on stderr.

    Text is line number, log-probability, tokens and translation, separated by tabs; JSON is that of
    `nmt translate --format json --details`.
    """
    from nmt.translation import likelihood, loading, output

    if len(hypotheses) != 1 or references or options != ScoreOptions(form=options.form):
        excluded = "-r, --metric, --lowercase, --confidence, --sentences, --examples"
        raise UsageError(f"--force-decode: takes one HYPOTHESIS, and none of {excluded}")
    sources = list(read_lines(source))
    translations = read_hypotheses(hypotheses[0])
    check_aligned(translations, (str(source), sources))
    model = SavedModel.open(path)
    engine = loading.load_torch_engine(model, device, "auto")
    pairs = list(zip(sources, translations[1], strict=True))
    copies = model.description.data.copies_letterless
    log_probability, tokens = 0.0, 0
    for number, found in enumerate(likelihood.force_decode(engine, model.vocabulary, pairs, copies), 1):
        log_probability += found.log_probability
        tokens += found.tokens
        if options.form == "json":
            yield output.as_json(number, sources[number - 1], [found])
        else:
            yield f"{number}\t{found.log_probability:.4f}\t{found.tokens}\t{found.text}"
    if tokens:
        mean = log_probability / tokens
        size = f"{counted(len(sources), 'line')}, {counted(tokens, 'token')}"
        total = f"log-probability {log_probability:,.2f}, {mean:.4f} per token"
        reporter.say(f"{size}: {total}, perplexity {math.exp(-mean):.2f}")
