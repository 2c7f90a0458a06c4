"""The command line: parse, call, print. Everything heavy is imported inside the commands, so that --help answers at once."""

import os
import re
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from nmt import __version__
from nmt.config import PRESETS, ModelConfig, TrainingConfig
from nmt.cores import BATCHES, SENTENCES, spin
from nmt.errors import NmtError, UsageError, is_out_of_memory, stop_signals
from nmt.lines import clean
from nmt.reporting import Reporter, one_voice
from nmt.translation.hypothesis import SearchOptions

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)


def setting(name: str, *flags: str) -> Any:
    """An option that sets the field of that name in config.py, whose help it shows. Unset, the preset decides."""
    field = (ModelConfig.model_fields | TrainingConfig.model_fields)[name]
    choices = [choice for choice in get_args(field.annotation) if isinstance(choice, str)]  # of a Literal
    return typer.Option(*flags, help=field.description, metavar="|".join(choices) or None)


def at_home(value: Any) -> Any:
    """A path, or several, with ~ for the home folder: a shell leaves it as it is in --data=~/text."""
    if isinstance(value, (list, tuple)):
        return [at_home(one) for one in value]
    if value is None:
        return None
    if re.match("~(/|$)", path := os.path.expanduser(value)):
        raise typer.BadParameter(f"{path}: there is no home folder; set HOME")
    return type(value)(path)


path_option, path_argument = partial(typer.Option, callback=at_home), partial(typer.Argument, callback=at_home)
Model = Annotated[Path, path_option("--model", "-m", help="The model directory.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Write here instead of to stdout.",
        callback=lambda path: None if path == Path("-") else at_home(path),
    ),
]
Device = Annotated[str, setting("device")]
Precision = Annotated[str, setting("precision")]
Form = Annotated[str, typer.Option("--format", metavar="text|json", help="Text for people, or JSON for programs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on stderr but warnings and errors.")]


@contextmanager
def faults_reported() -> Iterator[None]:
    """End a command as the user expects: an error in one sentence, an interrupt or a closed pipe without a word."""

    def terminate(number: int, _frame: Any) -> None:
        raise SystemExit(128 + number)

    for number in stop_signals():
        signal.signal(number, terminate)
    interrupted = signal.getsignal(signal.SIGINT)
    if interrupted is signal.SIG_DFL:  # see __main__.py; a command has something to tidy up
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        try:
            os.getcwd()
        except FileNotFoundError:
            raise UsageError("the current directory is no longer there; cd to one that is") from None
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except NmtError as error:
        complain(str(error))
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that nothing complains at exit either
        raise SystemExit(0) from None
    except OSError as error:  # a full disk, a device that went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        complain(f"{error.filename or 'writing'}: {error.strerror or error}")
        raise SystemExit(1) from None
    except (MemoryError, RuntimeError, ImportError) as error:
        if "can't start new thread" in str(error):
            complain("no further thread can be started; the limit of processes is too low (`ulimit -u`)")
            raise SystemExit(1) from None
        if "failed to map segment" in str(error):
            complain(f"out of memory: a library finds no room ({error})")
            raise SystemExit(1) from None
        if not is_out_of_memory(error):
            raise
        complain("out of memory; smaller batches need less: --micro-batch-tokens to train, --batch-tokens to translate")
        raise SystemExit(1) from None
    finally:
        signal.signal(signal.SIGINT, interrupted)


def complain(sentence: str) -> None:
    """Print an error where it belongs, even if nobody reads it."""
    if sys.stderr is not None and sentence:
        with suppress(OSError):
            print(f"nmt: {clean(sentence)}", file=sys.stderr)


def version(asked: bool) -> None:
    if asked:
        print(f"nmt {__version__}")
        raise typer.Exit


@app.callback()
def about(
    _version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """The 2017 Transformer for translation: train it, translate with it, score it."""
    spin(BATCHES)


@app.command()
def train(
    data: Annotated[
        str,
        path_option(
            help="wmt14, demo, a folder with train.en and train.de, a .tsv or .jsonl, or owner/name[:config] on the hub."
        ),
    ] = "wmt14",
    source: Annotated[
        str | None,
        typer.Option(help="Language to translate from, as the files are named. [default: en, or that of --from]"),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Language to translate into. [default: de, or that of --from]")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help=f"Complete recipe: {', '.join(PRESETS)}. [default: by the corpus]")
    ] = None,
    origin: Annotated[
        Path | None, path_option("--from", help="Model directory to begin from: fine-tune it on other text.")
    ] = None,
    config: Annotated[Path | None, path_option(help="TOML file with [model] and [training] settings.")] = None,
    model: Model = Path("model"),
    steps: Annotated[int | None, setting("steps")] = None,
    tokens_per_update: Annotated[int | None, setting("tokens_per_update")] = None,
    micro_batch_tokens: Annotated[int | None, setting("micro_batch_tokens")] = None,
    vocab_size: Annotated[int | None, setting("vocab_size")] = None,
    dropout: Annotated[float | None, setting("dropout")] = None,
    norm: Annotated[str | None, setting("norm")] = None,
    seed: Annotated[int | None, setting("seed")] = None,
    device: Annotated[str | None, setting("device")] = None,
    precision: Annotated[str | None, setting("precision")] = None,
    validate_every: Annotated[int | None, setting("validate_every")] = None,
    patience: Annotated[int | None, setting("patience")] = None,
    average: Annotated[int | None, setting("average")] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Discard the run in the directory first.")] = False,
    quiet: Quiet = False,
) -> None:
    """Train a model on a parallel corpus, or go on with the run in the directory."""
    flags = {
        name: value
        for name, value in locals().items()
        if name in TrainingConfig.model_fields | ModelConfig.model_fields
    }
    with faults_reported():
        from nmt import runs
        from nmt.settings import Request

        request = Request(data, (source, target), preset, config, flags, origin, restart, command_line())
        runs.train(model, request, Reporter(quiet))


@app.command()
def translate(
    file: Annotated[str, path_argument(help="Text, one sentence a line; - is stdin.")] = "-",
    output: Output = None,
    model: Model = Path("model"),
    beam: Annotated[int, typer.Option(help="Live hypotheses a sentence; 1 is greedy search.")] = SearchOptions.beam,
    length_penalty: Annotated[float, typer.Option(help="Alpha of the length penalty.")] = (
        SearchOptions.length_penalty
    ),
    n_best: Annotated[
        int | None, typer.Option(help="Translations a line, each with its line number, rank and score before it.")
    ] = None,
    form: Form = "text",
    details: Annotated[
        bool, typer.Option("--details", help="In JSON: each piece's log-probability, and a word alignment.")
    ] = False,
    no_split: Annotated[
        bool, typer.Option("--no-split", help="Translate a line of several sentences at once, not one by one.")
    ] = False,
    batch_tokens: Annotated[int | None, typer.Option(help="Source pieces that are searched at once.")] = None,
    device: Device = "auto",
    precision: Precision = "auto",
    engine: Annotated[
        str, typer.Option(metavar="torch|ctranslate2", help="What computes; ctranslate2 needs `nmt export` first.")
    ] = "torch",
    quiet: Quiet = False,
) -> None:
    """Translate text, line by line."""
    if file == "-":
        spin(SENTENCES)
    reporter = Reporter(quiet)
    # Processes of a machine read the same files with the same options: what is wrong with these, one of them tells.
    with faults_reported(), one_voice(reporter, lambda error: isinstance(error, UsageError)):
        from nmt.translation import files, loading
        from nmt.translation.output import output_format
        from nmt.translation.translator import search_options

        options = search_options(beam, length_penalty, 1 if n_best is None else n_best, details)
        write = output_format(form, n_best, details)
        if details and engine == "ctranslate2":
            raise UsageError("--details: CTranslate2 does not tell them; use --engine torch")
        asked = model, device, precision, batch_tokens, engine
        # Another version may translate otherwise.
        job = __version__, *asked, loading.changed(model), options, no_split, form, n_best
        load = partial(loading.load_translator, *asked)
        files.translate(load, file, output, options, not no_split, write, job, reporter)


@app.command()
def score(
    hypotheses: Annotated[
        list[str] | None, path_argument(metavar="[HYPOTHESIS]...", help="Translations to score; - is stdin.")
    ] = None,
    reference: Annotated[
        list[Path] | None, path_option("--reference", "-r", help="What they should be; several are allowed.")
    ] = None,
    model: Model = Path("model"),
    metric: Annotated[
        str,
        typer.Option(metavar="bleu|chrf|ter|all|paper", help="paper: tokenised and split, as the paper's 27.3 was."),
    ] = "bleu",
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    confidence: Annotated[
        bool,
        typer.Option("--confidence", help="95% intervals, and of several systems how sure it is that they differ."),
    ] = False,
    sentences: Annotated[
        bool, typer.Option("--sentences", help="A JSON object for each sentence, with its own score.")
    ] = False,
    examples: Annotated[int, typer.Option(metavar="N", help="Show the N worst and N best sentences.")] = 0,
    force_decode: Annotated[
        Path | None,
        path_option(metavar="SOURCE", help="Instead, how likely the model finds HYPOTHESIS as its translation."),
    ] = None,
    form: Form = "text",
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Score translations against references, or the model on its held-out test set."""
    with faults_reported():
        from nmt.lines import standard_output
        from nmt.scoring import commands

        asked, reporter = hypotheses or [], Reporter(quiet)
        options = commands.score_options(metric, lowercase, confidence, form, sentences, examples)
        lines: Iterable[str]
        if force_decode:
            lines = commands.force_decode(model, asked, force_decode, reference or [], options, device, reporter)
        elif asked:
            lines = commands.score_files(asked, reference or [], options, reporter)
        else:
            lines = commands.score_model(model, reference or [], options, device, reporter)
        for line in lines:
            standard_output().write(f"{line}\n".encode(errors="surrogateescape"))


@app.command()
def attention(
    text: Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="One sentence; - is stdin.")] = None,
    output: Output = None,
    model: Model = Path("model"),
    svg: Annotated[bool, typer.Option("--svg", help="One picture instead: target to source, all heads' mean.")] = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Show what the model looks at as it translates a sentence: a page for a browser."""
    with faults_reported():
        from nmt.pages import attention as page

        page.write(model, " ".join(text or ["-"]), output, svg, device, Reporter(quiet))


@app.command()
def describe(
    preset: Annotated[str | None, typer.Argument(help=f"One of {', '.join(PRESETS)}; else the model of -m.")] = None,
    model: Model = Path("model"),
    form: Form = "text",
    _quiet: Quiet = False,  # there is nothing to be quiet about
) -> None:
    """Tell what a model is made of, what its recipe is, and what it takes."""
    with faults_reported():
        from nmt import card
        from nmt.lines import standard_output

        standard_output().write(card.describe(preset, model, form).encode())


@app.command()
def export(
    model: Model = Path("model"),
    quantization: Annotated[
        str | None, typer.Option(metavar="int8", help="Store the weights as 8-bit integers: smaller and faster.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write the model for CTranslate2, a faster engine without PyTorch, and check it."""
    with faults_reported():
        from nmt import export as exporting

        exporting.export(model, quantization, Reporter(quiet))


def command_line() -> str:
    """The command as it was typed, with paths cut to their last part: a model directory names no place on a machine."""
    # an option may be joined to its value: --data=/home/me/text, -m/home/me/model
    parts = [re.fullmatch(r"(--[\w-]+=|-\w)?(.*)", word, re.DOTALL) for word in sys.argv[1:]]
    words = [
        (part[1] or "") + (Path(part[2]).name if part[2].startswith(("/", ".", "~")) else part[2])
        for part in parts
        if part
    ]
    return shlex.join(["nmt", *words])
