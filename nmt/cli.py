"""The command line: parse, call, print. Everything heavy is imported inside the commands, so that --help answers at once."""

import inspect
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args

import typer

from nmt import __version__
from nmt.config import PRESETS, ModelConfig, TrainingConfig
from nmt.cores import BATCHES, SENTENCES, spin
from nmt.errors import NmtError, UsageError, is_out_of_memory, stop_signals
from nmt.lines import clean, standard_output
from nmt.process import this_process
from nmt.reporting import Reporter
from nmt.translation.hypothesis import SearchOptions

FIELDS = ModelConfig.model_fields | TrainingConfig.model_fields

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)


def option(help: str, *flags: str, **more: Any) -> Any:
    return typer.Option(*flags, help=help, **more)


def setting(name: str) -> Any:
    """An option that sets the field of this name in config.py and shows its help. Unset, the preset decides."""
    choices = [choice for choice in get_args(FIELDS[name].annotation) if isinstance(choice, str)]  # of a Literal
    return option(FIELDS[name].description or "", metavar="|".join(choices) or None)


def at_home(value: Any) -> Any:
    """Expand ~ in a path, or in each of several: a shell does not expand it in --data=~/text."""
    if not value:
        return value
    if isinstance(value, list):
        return [at_home(one) for one in value]
    if re.match("~(/|$)", path := os.path.expanduser(value)):
        raise typer.BadParameter(f"{path}: there is no home folder; set HOME")
    return type(value)(path)


def output_path(path: Path | None) -> Any:
    """The path of --output; "-" is stdout, as without the option."""
    return None if path == Path("-") else at_home(path)


path_option = partial(option, callback=at_home)

Model = Annotated[Path, path_option("Model directory.", "--model", "-m")]
Output = Annotated[Path | None, option("Write to this file instead of stdout.", "--output", "-o", callback=output_path)]
Device = Annotated[str, setting("device")]
Form = Annotated[str, option("Output format.", "--format", metavar="text|json")]
Quiet = Annotated[bool, option("Print only warnings and errors to stderr.", "--quiet", "-q")]


@contextmanager
def faults_reported() -> Iterator[None]:
    """End a command as the user expects: one sentence for an error, no message for an interrupt or a closed pipe."""
    for number in stop_signals():
        signal.signal(number, lambda number, _frame: end(128 + number))
    on_interrupt = signal.getsignal(signal.SIGINT)
    if on_interrupt is signal.SIG_DFL:  # set by __main__.py; a command, unlike its imports, has something to tidy up
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except NmtError as error:
        end(error.exit_code, this_process().message(error))
    except KeyboardInterrupt:
        end(130)
    except OSError as error:  # a full disk, a device that went away; or a reader that has seen enough, which is no error
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # otherwise the interpreter complains again as it exits
        if isinstance(error, BrokenPipeError):
            end(0)
        end(1, f"{error.filename or 'writing'}: {error.strerror or error}")
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        end(1, "out of memory; smaller batches need less: --micro-batch-tokens to train, --batch-tokens to translate")
    finally:
        signal.signal(signal.SIGINT, on_interrupt)


def end(code: int, sentence: str = "") -> NoReturn:
    """End the program with this exit code, and a sentence on stderr, which may be closed or full."""
    if sys.stderr is not None and sentence:
        with suppress(OSError):
            print(f"nmt: {clean(sentence)}", file=sys.stderr)
    raise SystemExit(code) from None


def command(function: Callable[..., None]) -> None:
    """Add a command whose faults are reported. Its help is the docstring, the examples at the end."""
    text, _, examples = (inspect.getdoc(function) or "").partition("\n\nExamples:\n")
    # \b keeps the lines of the examples apart.
    app.command(help=text, epilog=f"\b\nExamples:\n{examples}")(faults_reported()(function))


def version(asked: bool) -> None:
    if asked:
        print(f"nmt {__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version and exit.")]


@app.callback()
def about(_version: Version = False) -> None:
    """Train, run and score translation models: the Transformer of 2017, from raw text to BLEU."""
    spin(BATCHES)


DATA = "Folder with train.en and train.de; .tsv or .jsonl file; owner/name on the Hugging Face hub; demo; wmt14."


@command
def train(
    data: Annotated[list[str] | None, path_option(f"{DATA} May be repeated, also as NAME=WEIGHT. [default: wmt14]")] = None,
    synthetic: Annotated[str | None, path_option("Corpus whose sources a machine wrote; each is marked as such.")] = None,
    source: Annotated[str | None, option("Source language, as in file names. [default: en, or as --from]")] = None,
    target: Annotated[str | None, option("Target language. [default: de, or as --from]")] = None,
    preset: Annotated[str | None, option(f"Recipe: {', '.join(PRESETS)}. [default: by corpus size]")] = None,
    origin: Annotated[Path | None, path_option("Fine-tune the model in this directory.", "--from")] = None,
    config: Annotated[Path | None, path_option("TOML file of [model] and [training] settings.")] = None,
    model: Model = Path("model"),
    steps: Annotated[int | None, setting("steps")] = None,
    tokens_per_update: Annotated[int | None, setting("tokens_per_update")] = None,
    micro_batch_tokens: Annotated[int | None, setting("micro_batch_tokens")] = None,
    vocab_size: Annotated[int | None, setting("vocab_size")] = None,
    dropout: Annotated[float | None, setting("dropout")] = None,
    architecture: Annotated[str | None, setting("architecture")] = None,
    norm: Annotated[str | None, setting("norm")] = None,
    seed: Annotated[int | None, setting("seed")] = None,
    device: Annotated[str | None, setting("device")] = None,
    precision: Annotated[str | None, setting("precision")] = None,
    validate_every: Annotated[int | None, setting("validate_every")] = None,
    patience: Annotated[int | None, setting("patience")] = None,
    average: Annotated[int | None, setting("average")] = None,
    restart: Annotated[bool, option("Discard the run in the model directory and start again.", "--restart")] = False,
    quiet: Quiet = False,
) -> None:
    """Train a model on a parallel corpus. The same command again resumes an unfinished run.

    Examples:
      nmt train --data corpus --model german
      nmt train --data corpus --source de --target en --model english --patience 3
      nmt train --from german --data letters.tsv --model letters
    """
    from nmt import runs
    from nmt.settings import Request

    flags = {name: value for name, value in locals().items() if name in FIELDS}
    request = Request(data or ["wmt14"], synthetic, source, target, preset, config, flags, origin, restart, command_line())
    runs.train(model, request, Reporter(quiet))


N_BEST = "Print N translations a line, each after its line number, rank and score."
SAMPLE = "Draw each piece from the K likeliest instead of searching, for back-translation."
ENGINE = "Library to compute with; ctranslate2 needs `nmt export`."


@command
def translate(
    file: Annotated[str, typer.Argument(help="Text to translate line by line; - is stdin.", callback=at_home)] = "-",
    output: Output = None,
    model: Model = Path("model"),
    beam: Annotated[int, option("Beam size; 1 is greedy search.")] = SearchOptions.beam,
    length_penalty: Annotated[float, option("Exponent of the length penalty.")] = SearchOptions.length_penalty,
    n_best: Annotated[int | None, option(N_BEST, metavar="N")] = None,
    sample: Annotated[int | None, option(SAMPLE, metavar="K", min=1)] = None,
    seed: Annotated[int, option("Seed of --sample.", min=0)] = SearchOptions.seed,
    form: Form = "text",
    details: Annotated[bool, option("Add token log-probabilities and a word alignment to JSON.", "--details")] = False,
    no_split: Annotated[bool, option("Translate each line whole, not sentence by sentence.", "--no-split")] = False,
    batch_tokens: Annotated[int | None, option("Source tokens, with padding, searched at once.")] = None,
    device: Device = "auto",
    precision: Annotated[str, setting("precision")] = "auto",
    engine: Annotated[str, option(ENGINE, metavar="torch|ctranslate2")] = "torch",
    quiet: Quiet = False,
) -> None:
    """Translate text line by line.

    Examples:
      nmt translate letter.txt -o brief.txt --model german
      echo "Two men are playing football." | nmt translate --model german
      nmt translate letter.txt --n-best 3 --format json --model german
    """
    if file == "-":
        spin(SENTENCES)
    from nmt.translation import files
    from nmt.translation.output import output_format

    options = SearchOptions(
        beam, length_penalty, 1 if n_best is None else n_best, sample=sample or 0, seed=seed, details=details
    )
    write = output_format(form, n_best, details)
    if details and engine == "ctranslate2":
        raise UsageError("--details: CTranslate2 cannot provide them; use --engine torch")
    if sample and engine == "ctranslate2":
        raise UsageError("--sample: CTranslate2 would draw otherwise in every batch; use --engine torch")
    job = files.Job(model, options, not no_split, write, device, precision, batch_tokens, engine)
    files.translate(file, output, job, Reporter(quiet))


HYPOTHESES = "Translations to score; - is stdin. Without any, the model translates its test set."
Hypotheses = Annotated[list[str] | None, typer.Argument(metavar="[HYPOTHESIS]...", help=HYPOTHESES, callback=at_home)]
References = Annotated[list[Path] | None, path_option("Reference translations; may be repeated.", "--reference", "-r")]
METRIC = "What to compute; paper is the BLEU of tokenised text that the paper reports."
FORCE_DECODE = "Print the model's log-probability of HYPOTHESIS as a translation of SOURCE instead."


@command
def score(
    hypotheses: Hypotheses = None,
    reference: References = None,
    model: Model = Path("model"),
    metric: Annotated[str, option(METRIC, metavar="bleu|chrf|ter|all|paper")] = "bleu",
    lowercase: Annotated[bool, option("Ignore case.", "--lowercase")] = False,
    confidence: Annotated[bool, option("Add 95% intervals, and p-values between systems.", "--confidence")] = False,
    sentences: Annotated[bool, option("Print a JSON object for each sentence, with its score.", "--sentences")] = False,
    examples: Annotated[int, option("Show the N worst and N best sentences.", metavar="N", min=0)] = 0,
    force_decode: Annotated[Path | None, path_option(FORCE_DECODE, metavar="SOURCE")] = None,
    form: Form = "text",
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Score translations, or a model on its test set.

    Examples:
      nmt score --model german
      nmt score brief.txt -r reference.txt
      nmt score brief.txt other.txt -r reference.txt --metric all --confidence
    """
    from nmt.scoring import commands
    from nmt.scoring.force_decode import force_decode as force

    asked, references, reporter = hypotheses or [], reference or [], Reporter(quiet)
    options = commands.ScoreOptions(metric, lowercase, confidence, form, sentences, examples)
    if force_decode:
        lines: Iterable[str] = force(model, asked, force_decode, references, options, device, reporter)
    elif asked:
        lines = commands.score_files(asked, references, options, reporter)
    else:
        lines = commands.score_model(model, references, options, device, reporter)
    for line in lines:
        standard_output().write(f"{line}\n".encode(errors="surrogateescape"))  # names of files need not be UTF-8


@command
def attention(
    text: Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="One sentence; - is stdin.")] = None,
    output: Output = None,
    model: Model = Path("model"),
    svg: Annotated[bool, option("Draw attention to the source, the mean of all heads, instead.", "--svg")] = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Show what a model attends to as it translates. Writes a page for a browser, or a picture.

    Examples:
      nmt attention "I have seen the old man." -o page.html --model german
      nmt attention "I have seen the old man." -o map.svg --svg --model german
    """
    from nmt.pages import attention as page

    page.write(model, " ".join(text or ["-"]), output, svg, device, Reporter(quiet))


PRESETS_AND_MODELS = f"Presets ({', '.join(PRESETS)}) and model directories. [default: the model of -m]"
Names = Annotated[list[str] | None, typer.Argument(metavar="[MODEL]...", help=PRESETS_AND_MODELS, callback=at_home)]


@command
def describe(
    names: Names = None,
    model: Model = Path("model"),
    form: Form = "text",
    page: Annotated[Path | None, path_option("Also write a page that shows the models side by side.", "--page")] = None,
    quiet: Quiet = False,
) -> None:
    """Describe models and presets. Prints sizes, recipe, FLOPs and memory of one, or a comparison of several.

    Examples:
      nmt describe --model german
      nmt describe base
      nmt describe german other base --page compare.html
    """
    from nmt import describe as describing

    subjects = describing.find(names or [], model)
    described = describing.describe(subjects, form)
    if page:
        from nmt.pages import compare

        compare.write(subjects, page, Reporter(quiet))
    standard_output().write(described.encode(errors="surrogateescape"))


@command
def export(
    model: Model = Path("model"),
    quantization: Annotated[str | None, option("Store weights as 8-bit integers.", metavar="int8")] = None,
    quiet: Quiet = False,
) -> None:
    """Export a model to CTranslate2. It translates faster, and without PyTorch.

    Examples:
      nmt export --model german
      nmt export --quantization int8 --model german
    """
    from nmt import export as exporting

    exporting.export(model, quantization, Reporter(quiet))


def command_line() -> str:
    """The command as typed, with each path cut to its last part: a model directory reveals no place on a machine."""
    words = ["nmt"]
    for word in sys.argv[1:]:
        # an option may be joined to its value: --data=/home/me/text, -m/home/me/model
        option, value = re.fullmatch(r"(--[\w-]+=|-\w)?(.*)", word, re.DOTALL).groups("")  # type: ignore[union-attr]
        words.append(option + (Path(value).name if value.startswith(("/", ".", "~")) else value))
    return shlex.join(words)
