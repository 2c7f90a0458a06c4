"""What `nmt score` does: files against references, or a model on its own test set."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from nmt.errors import UsageError
from nmt.formatting import blank_lines, check_format, counted
from nmt.lines import bare_name, decode_lines, read_lines, standard_input
from nmt.looks import doubts
from nmt.reporting import Reporter
from nmt.scoring import display, paper
from nmt.scoring.metrics import (
    FEWEST,
    METRICS,
    Evaluation,
    Text,
    check_seed,
    corpus_scores,
    create,
    sentence_scores,
    too_short_for_bleu,
)

PAPER = "paper"
LONG = 50_000  # words of a line times words of its reference, all lines together: from here on TER takes seconds


@dataclass(frozen=True)
class ScoreOptions:
    """What is asked for, already checked."""

    metrics: tuple[str, ...]  # of METRICS, or PAPER alone
    lowercase: bool
    confidence: bool
    form: str  # text or json
    sentences: bool
    examples: int  # so many of the worst and of the best sentences


def score_options(
    metric: str, lowercase: bool, confidence: bool, form: str, sentences: bool, examples: int
) -> ScoreOptions:
    """The options of the command line. Raises UsageError for a value that is none, and for what does not go together."""
    chosen = METRICS if metric == "all" else (metric,)
    if not {*chosen} <= {*METRICS, PAPER}:
        raise UsageError(f"--metric {metric}: must be bleu, chrf, ter, all or paper")
    check_format(form)
    if examples < 0:
        raise UsageError(f"--examples {examples}: must be at least 0")
    if metric == PAPER:
        if sentences or examples:
            raise UsageError(
                f"{'--sentences' if sentences else '--examples'}: the paper's metric is not for single sentences "
                "(unsmoothed, it is 0 without four right words in a row); use --metric bleu"
            )
        paper.check_installed()
    if sentences and confidence:
        raise UsageError(
            "--sentences: the interval of --confidence is of all lines together, not of one; leave one out"
        )
    if confidence:
        check_seed()
    if examples and (sentences or form == "json"):
        raise UsageError(
            "--examples: are text to be read; leave out --sentences and --format json, or use --sentences alone"
        )
    return ScoreOptions(chosen, lowercase, confidence, form, sentences, examples)


def score_files(
    hypotheses: Sequence[str], references: Sequence[Path], options: ScoreOptions, reporter: Reporter
) -> list[str]:
    """Lines of output: the hypothesis files (`-` is stdin), each a system, against the reference files."""
    if not references:
        raise UsageError("name what to score against with -r REFERENCE")
    if hypotheses.count("-") > 1:
        raise UsageError("standard input can be scored once only")
    for name in hypotheses:
        if hypotheses.count(name) > 1:
            raise UsageError(f"{name}: named twice; each system is scored once")
    language = _language(references) if options.metrics == (PAPER,) else ""
    named = [(str(path), list(read_lines(path))) for path in references]
    systems = [_read(name) for name in hypotheses]
    against = "against " + ", ".join(path.name for path in references)
    title = f"{systems[0][0]} {against}" if len(systems) == 1 else against
    evaluation = Evaluation(systems, named)
    for doubt in doubts(dict([*systems, *named]), "scores of it compare with none of raw text"):
        reporter.warn(doubt)
    return _output(evaluation, title, language, options, reporter)


def score_model(
    model: Path, references: Sequence[Path], options: ScoreOptions, device: str, reporter: Reporter
) -> list[str]:
    """Lines of output: the model's translations of its held-out test set, scored."""
    from nmt.model_directory import ModelDirectory
    from nmt.translation.loading import load_translator

    if references:
        raise UsageError(
            "-r REFERENCE needs a HYPOTHESIS file to score; without one the model's own test set is scored"
        )
    directory = ModelDirectory.containing(model)
    test = directory.read_heldout("test")
    if test is None:
        raise UsageError(
            f"{model}: the model's corpus had no test set; score files with `nmt score HYPOTHESIS -r REFERENCE`"
        )
    source, reference = test
    told = directory.describe()
    title = f"{told.data.name} test, {'-'.join(told.languages)}"
    translator = load_translator(model, device)
    reporter.say(f"translating {counted(len(source), 'test line')}, {' to '.join(told.languages)}")
    evaluation = Evaluation([(str(model), translator.translate(source))], [("the test set", reference)], source)
    return _output(evaluation, title, told.target, options, reporter)


def force_decode(
    model: Path,
    hypotheses: Sequence[str],
    source: Path,
    references: Sequence[Path],
    options: ScoreOptions,
    device: str,
    reporter: Reporter,
) -> Iterator[str]:
    """Lines of output: what the model says of a file of translations of the source file, a line for each pair.

    As text: line number, log-probability, tokens and translation, with tabs between; as JSON what `nmt translate --format json
    --details` prints.
    """
    from nmt.model_directory import ModelDirectory
    from nmt.translation import likelihood
    from nmt.translation.loading import load_torch_engine
    from nmt.translation.output import as_json

    compared = {
        "-r": bool(references),
        "--metric": options.metrics != ("bleu",),
        "--lowercase": options.lowercase,
        "--confidence": options.confidence,
        "--sentences": options.sentences,
        "--examples": options.examples > 0,
    }
    for option, given in compared.items():
        if given:
            raise UsageError(
                f"{option}: is for a comparison with references, and --force-decode makes none; leave one out"
            )
    if len(hypotheses) != 1:
        raise UsageError(f"--force-decode: takes one HYPOTHESIS, a file or - for stdin, and not {len(hypotheses)}")
    sources = list(read_lines(source))
    hypothesis, lines = _read(hypotheses[0])
    Evaluation([(hypothesis, lines)], [(str(source), sources)])  # raises where they do not line up
    pairs = list(zip(sources, lines, strict=True))
    engine = load_torch_engine(model, device, "auto")
    directory = ModelDirectory.containing(model)
    vocabulary, copies = directory.read_vocabulary(), directory.describe().data.copies_letterless
    log_probability, tokens = 0.0, 0
    for number, translation in enumerate(likelihood.force_decode(engine, vocabulary, pairs, copies), 1):
        log_probability += translation.log_probability
        tokens += translation.tokens
        if options.form == "json":
            yield as_json(number, sources[number - 1], [translation])
        else:
            yield f"{number}\t{translation.log_probability:.4f}\t{translation.tokens}\t{translation.text}"
    if tokens:
        mean = log_probability / tokens
        reporter.say(
            f"{counted(len(sources), 'line')}, {counted(tokens, 'token')}: "
            f"log-probability {log_probability:,.2f}, {mean:.4f} a token, "
            f"perplexity {math.exp(-mean):.2f}"
        )


def _read(hypothesis: str) -> Text:
    if hypothesis == "-":
        return "standard input", list(decode_lines(standard_input(), "standard input"))
    return hypothesis, list(read_lines(Path(hypothesis)))


def _language(references: Sequence[Path]) -> str:
    """The code that the reference files' names end in, before any .gz: what Moses' rules of abbreviations depend on."""
    codes = {bare_name(path).rpartition(".")[2] for path in references}
    [code, *others] = codes
    if others or not re.fullmatch("[a-z]{2}", code):
        raise UsageError(
            f"{references[0]}: --metric paper has to know the language; give the reference a name that ends in it, like ref.de"
        )
    return code


def _output(evaluation: Evaluation, title: str, language: str, options: ScoreOptions, reporter: Reporter) -> list[str]:
    _warn_of_blank_lines(evaluation, reporter)
    with _watched(evaluation, options, reporter) as watched:
        return _scored(watched, title, language, options, reporter)


def _warn_of_blank_lines(evaluation: Evaluation, reporter: Reporter) -> None:
    def warn(name: str, places: Sequence[int], so: str) -> None:
        if places:
            reporter.warn(f"{name}: {blank_lines([place + 1 for place in places], evaluation.lines)}; {so}")

    names, nothing = ", ".join(name for name, _ in evaluation.references), evaluation.without_reference
    warn(names, nothing, "there is nothing to compare with there, and every word is a wrong one")
    for name, places in evaluation.with_fewer_references.items():
        warn(name, places, "it is no reference of these, and they are scored against the others alone")


class _Watched(list[str]):
    """Lines that tell how many of them have been handed out."""

    tell: Callable[[int], None]

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(super().__iter__()):
            self.tell(number)
            yield line


def _pairs_of_words(evaluation: Evaluation) -> int:
    """What the time for TER grows with; lines that are equal cost it nothing."""
    tokenizer = create("ter", evaluation.references).tokenizer
    return sum(
        len(tokenizer(line).split()) * len(tokenizer(expected).split())
        for _, lines in evaluation.systems
        for _, references in evaluation.references
        for line, expected in zip(lines, references, strict=True)
        if line != expected
    )


@contextmanager
def _watched(evaluation: Evaluation, options: ScoreOptions, reporter: Reporter) -> Iterator[Evaluation]:
    """The same to score. Where TER takes long that is said before, and on a terminal a bar shows how far it has come."""
    if "ter" not in options.metrics or _pairs_of_words(evaluation) < LONG:
        yield evaluation
        return
    reporter.say(f"TER of {counted(evaluation.lines, 'line')}: tries every shift of words, which takes long for these")
    task = reporter.bar.add_task("scoring", total=evaluation.lines, status="")
    systems = []
    for name, lines in evaluation.systems:
        watched = _Watched(lines)
        watched.tell = lambda number: reporter.bar.update(task, completed=number)
        systems.append((name, watched))
    with reporter:
        yield replace(evaluation, systems=systems)


def _scored(evaluation: Evaluation, title: str, language: str, options: ScoreOptions, reporter: Reporter) -> list[str]:
    if options.sentences:
        metrics = [
            create(metric, evaluation.references, options.lowercase, of_sentences=True) for metric in options.metrics
        ]
        return display.sentences(
            evaluation,
            [
                [sentence_scores(lines, evaluation.references, metric) for metric in metrics]
                for _, lines in evaluation.systems
            ],
        )
    if options.metrics == (PAPER,):
        columns = [paper.paper_scores(evaluation, language, options.lowercase, options.confidence)]
    else:
        metrics = [create(metric, evaluation.references, options.lowercase) for metric in options.metrics]
        columns = [corpus_scores(evaluation, metric, options.confidence) for metric in metrics]
    if {"bleu", PAPER} & {*options.metrics} and too_short_for_bleu(evaluation.references):
        reporter.warn(
            "no line of the reference has four words in a row, which BLEU counts: it is 0 even where all is right; use "
            "--metric chrf"
        )
    if options.confidence and evaluation.lines < FEWEST:
        p = " and no p" * (len(evaluation.systems) > 1)
        reporter.warn(
            f"--confidence: no interval{p} of {counted(evaluation.lines, 'line')}; that takes {FEWEST}, for resamples of "
            "fewer are too alike to tell what other text would score"
        )
    if options.form == "json":
        return [display.as_json(evaluation, columns, options.confidence)]
    lines = display.as_text(evaluation, title, columns)
    if options.examples:
        metric = create(options.metrics[0], evaluation.references, options.lowercase, of_sentences=True)
        for name, hypotheses in evaluation.systems:
            scores = sentence_scores(hypotheses, evaluation.references, metric)
            lines += display.examples(evaluation, name, hypotheses, scores, options.examples)
    return lines
