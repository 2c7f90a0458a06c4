"""`nmt score`: scores files against references, or a model on its held-out test set."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from nmt.errors import UsageError
from nmt.formatting import blank_lines, check_format, counted
from nmt.lines import bare_name, decode_lines, read_lines, standard_input
from nmt.looks import doubts
from nmt.reporting import Reporter
from nmt.saved_model import SavedModel
from nmt.scoring import display, metrics, paper
from nmt.scoring.metrics import METRICS, MIN_CONFIDENCE_LINES, Evaluation, Text, make_metric

PAPER = "paper"
SLOW_TER_CHARACTERS = 50_000  # about where TER begins to take seconds


@dataclass(frozen=True)
class ScoreOptions:
    """The options of `nmt score`. Raises UsageError for impossible values and combinations."""

    metric: str = "bleu"
    lowercase: bool = False
    confidence: bool = False
    form: str = "text"
    sentences: bool = False
    examples: int = 0  # how many of the worst and of the best sentences to show

    def __post_init__(self) -> None:
        check_format(self.form)
        is_paper = self.metric == PAPER
        if not {*self.metrics} <= {*METRICS, PAPER}:
            raise UsageError(f"--metric {self.metric}: must be bleu, chrf, ter, all or paper")
        if self.sentences and (is_paper or self.confidence or self.examples):
            raise UsageError("--sentences: leave out --confidence, --examples and --metric paper, which are of many lines")
        if self.examples and (is_paper or self.form == "json"):
            raise UsageError("--examples: leave out --format json and --metric paper; it shows single sentences as text")
        if is_paper and not find_spec("sacremoses"):
            raise UsageError("--metric paper: run `pip install -e '.[moses]'` first")

    @property
    def metrics(self) -> tuple[str, ...]:
        """Some of METRICS, or PAPER alone."""
        return METRICS if self.metric == "all" else (self.metric,)


def score_files(hypotheses: Sequence[str], references: Sequence[Path], options: ScoreOptions, reporter: Reporter) -> list[str]:
    """Scores the hypothesis files (`-` is stdin), one per system, against the references. Returns the lines to print."""
    if not references:
        raise UsageError("name what to score against with -r REFERENCE")
    language = _language_of(references) if options.metric == PAPER else ""
    systems = [read_hypotheses(name) for name in hypotheses]
    named = [(str(path), list(read_lines(path))) for path in references]
    against = "against " + ", ".join(path.name for path in references)
    title = f"{systems[0][0]} {against}" if len(systems) == 1 else against
    evaluation = Evaluation(systems, named)
    for doubt in doubts(dict([*systems, *named]), "its scores do not compare with those of raw text"):
        reporter.warn(doubt)
    return _score(evaluation, title, language, options, reporter)


def score_model(path: Path, references: Sequence[Path], options: ScoreOptions, device: str, reporter: Reporter) -> list[str]:
    """Translates the model's held-out test set and scores that. Returns the lines to print."""
    from nmt.translation.translator import load_translator

    if references:
        raise UsageError("-r REFERENCE: needs a HYPOTHESIS file to score; leave it out to score the model's test set")
    model = SavedModel.open(path)
    test = model.heldout("test")
    if test is None:
        raise UsageError(f"{path}: the corpus had no test set; score files with `nmt score HYPOTHESIS -r REFERENCE`")
    source, reference = test
    source_language, target_language = model.description.languages
    translator = load_translator(model, device)
    reporter.say(f"translating {counted(len(source), 'test line')}, {source_language} to {target_language}")
    evaluation = Evaluation([(str(path), translator.translate(source))], [("the test set", reference)], source)
    title = f"{model.description.data.name} test, {source_language}-{target_language}"
    return _score(evaluation, title, target_language, options, reporter)


def read_hypotheses(name: str) -> Text:
    """The lines of a file, or of stdin if the name is `-`."""
    if name == "-":
        return "standard input", list(decode_lines(standard_input(), "standard input"))
    return name, list(read_lines(Path(name)))


def _language_of(references: Sequence[Path]) -> str:
    """The language code at the end of the file names, before any .gz; it selects Moses' list of abbreviations."""
    code, *others = {bare_name(path).rpartition(".")[2] for path in references}
    if others or not re.fullmatch("[a-z]{2}", code):
        raise UsageError(f"{references[0]}: for --metric paper, end the name with the language, as in ref.de")
    return code


def _score(evaluation: Evaluation, title: str, language: str, options: ScoreOptions, reporter: Reporter) -> list[str]:
    _warn(evaluation, options, reporter)
    by_name = partial(make_metric, references=evaluation.references, lowercase=options.lowercase)
    if options.sentences:
        by_metric = [metrics.sentence_scores(evaluation, by_name(name, for_sentences=True)) for name in options.metrics]
        return display.sentences(evaluation, by_metric)
    if options.metric == PAPER:
        columns = [paper.paper_scores(evaluation, language, options.lowercase, options.confidence)]
    else:
        columns = [metrics.corpus_scores(evaluation, by_name(name), options.confidence) for name in options.metrics]
    if any(score.value == 0 and score.metric.startswith("BLEU") for score in chain(*columns)):
        reporter.warn("BLEU is 0, as always where no line has four words; use --metric chrf for such text")
    if options.form == "json":
        return [display.as_json(evaluation, columns, options.confidence)]
    lines = display.as_text(evaluation, title, columns)
    if options.examples:
        scores = metrics.sentence_scores(evaluation, by_name(options.metrics[0], for_sentences=True))
        for system, own in zip(evaluation.systems, scores, strict=True):
            lines += display.examples(evaluation, system, own, options.examples)
    return lines


def _warn(evaluation: Evaluation, options: ScoreOptions, reporter: Reporter) -> None:
    """Says what makes the scores misleading, impossible or slow."""
    for place, (name, _) in enumerate(evaluation.references):
        if numbers := [number for number, blank in enumerate(evaluation.blank, 1) if blank[place]]:
            found = blank_lines(numbers, evaluation.lines)
            reporter.warn(f"{name}: {found}; without any other reference, every word there counts as wrong")
    if "ter" in options.metrics and sum(map(len, chain(*dict(evaluation.systems).values()))) >= SLOW_TER_CHARACTERS:
        reporter.say("TER tries every shift of words, which takes long for so much text")
    if options.confidence and evaluation.lines < MIN_CONFIDENCE_LINES:
        reporter.warn(f"--confidence: no interval and no p-value for fewer than {MIN_CONFIDENCE_LINES} lines")
