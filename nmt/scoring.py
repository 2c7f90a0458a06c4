"""Scores to trust: sacreBLEU on detokenised text against raw references, always with its signature."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.errors import UsageError
from nmt.lines import decode_lines, read_lines, standard_input
from nmt.reporting import Reporter


@dataclass(frozen=True)
class Score:
    """A corpus score from 0 to 100, and everything needed to compute it again."""

    metric: str
    value: float
    signature: str
    lines: int

    def __str__(self) -> str:
        return f"{self.metric} {self.value:.2f} ({self.lines:,} lines) {self.signature}"


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    lowercase: bool = False,
    names: Sequence[str] = (),
) -> Score:
    """Corpus BLEU of detokenised lines against one or more reference sets, each with a line for every hypothesis.

    `names` tells what to call the hypothesis and the references in an error. Raises UsageError where line counts differ
    or there is nothing to score: sacreBLEU's own interface would score the shorter part, even with 100.
    """
    from sacrebleu.metrics import BLEU

    names = names or ["the hypothesis", *(f"reference {number + 1}" for number in range(len(references)))]
    for name, reference in zip(names[1:], references, strict=True):
        if len(reference) != len(hypotheses):
            raise UsageError(
                f"{names[0]} has {len(hypotheses):,} lines but {name} has {len(reference):,}: they must line up"
            )
    if not hypotheses:
        raise UsageError(f"{names[0]}: holds no lines to score")
    metric = BLEU(lowercase=lowercase)
    result = metric.corpus_score(list(hypotheses), [list(reference) for reference in references])
    return Score("BLEU", result.score, str(metric.get_signature()), len(hypotheses))


def score_files(hypotheses: Sequence[str], references: Sequence[Path], lowercase: bool) -> list[str]:
    """A line of text for each hypothesis file (`-` is stdin) against the reference files."""
    if not references:
        raise UsageError("name what to score against with -r REFERENCE")
    if hypotheses.count("-") > 1:
        raise UsageError("standard input can be scored once only")
    texts = [list(read_lines(path)) for path in references]
    against = ", ".join(path.name for path in references)
    lines = []
    for name in hypotheses:
        label = "standard input" if name == "-" else name
        hypothesis = list(decode_lines(standard_input(), label) if name == "-" else read_lines(Path(name)))
        score = bleu(hypothesis, texts, lowercase, [label, *map(str, references)])
        lines.append(f"{name} against {against}: {score}")
    return lines


def score_model(
    model: Path, references: Sequence[Path], lowercase: bool, device: str | None, reporter: Reporter
) -> list[str]:
    """A line of text: the model's translations of its held-out test set, scored."""
    from nmt.model_directory import ModelDirectory
    from nmt.translation.loading import load_translator

    if references:
        raise UsageError(
            "-r REFERENCE needs a HYPOTHESIS file to score; without one the model's own test set is scored"
        )
    translator = load_translator(model, device or "auto")
    directory = ModelDirectory.containing(model)
    test = directory.read_heldout("test")
    if test is None:
        raise UsageError(
            f"{model}: the model's corpus had no test set; score files with `nmt score HYPOTHESIS -r REFERENCE`"
        )
    source, reference = test
    config = directory.read_config()
    reporter.say(f"translating {len(source):,} test lines, {config['source']} to {config['target']}")
    score = bleu(translator.translate(source), [reference], lowercase)
    return [f"{config['data']['name']} test, {config['source']}-{config['target']}: {score}"]
