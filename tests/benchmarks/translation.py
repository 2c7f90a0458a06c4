"""How fast nmt translates beside its peers: the same weights, the same batches, in turn, on the same machine.

    .venv/bin/python -m tests.benchmarks.translation --model german --peers peers/bin/python --json translation.json

The peers need the environment that training.py describes. Contenders are nmt's own search, its `--engine ctranslate2`,
CTranslate2 called directly, Hugging Face's MarianMT `generate` and Joey NMT's search, each in a process of its own, and all
take turns (turns.py). The weights are a model directory's, copied into every one of them; the text is its test set. Before
anything is measured, every contender that computes in fp32 must give nmt's greedy translations, or it is not the same model.

- Searches are greedy and beam 4, of sentences alone and of full batches. All get the same batches: sorted by length, the
  longest first, as many sentences as fit the budget of source pieces, padding included. Sentences alone are an even sample.
- What is timed is ids to ids: no contender cuts text into pieces, and none loads its model.
- A translation may be 50 pieces longer than its source; in the peers, than the longest source of its batch, and it is cut
  afterwards. What nmt never emits (padding, unknown, BOS, reserved) is not forbidden to the peers but for Joey NMT's unknown:
  a trained model does not want it.
- Beams differ. nmt and Joey NMT divide by ((5 + L) / 6)^0.6, the two others by L^0.6. nmt stops where nothing live can win;
  `generate` (early_stopping=False, its default) where nothing live could win at its present length; CTranslate2 and Joey NMT
  at four ended hypotheses. `tokens/sentence` and BLEU tell what that does, and how many translations are nmt's in fp32.
- nmt's engines search two batches side by side where there are several. CTranslate2 called directly is given its best as well:
  a worker for each thread, which serves a sentence alone best too, and all batches at once. The others have no such mode.
- Target tokens are those of the translations, EOS counted, padding not.
- Memory is what a process has held at most so far, the imports included. Points come in the order of what they need.
- BLEU is sacreBLEU's of the lines translated at that point: only full batches have the whole test set.

Last come batches of 1, 4, 16 and 64 sentences through nmt alone: larger ones must be faster (fault S2). And every engine and
precision of nmt translates the test set in small batches, in another order: the same text is promised for all lines in fp32
and for 99.5% in less.
"""

import json
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch

from nmt.config import PRESETS
from nmt.data.corpus import demo_folder
from nmt.data.vocabulary import Vocabulary, learn
from nmt.errors import NmtError
from nmt.export import export
from nmt.ids import EOS, FIRST_PIECE
from nmt.lines import read_lines
from nmt.model.transformer import Transformer
from nmt.model_directory import ModelDirectory
from nmt.reporting import Reporter
from nmt.saved_model import SavedModel
from nmt.scoring.metrics import bleu
from nmt.translation.hypothesis import BATCH_TOKENS
from nmt.translation.translator import MAX_SOURCE_PIECES
from nmt.weights import save_weights
from tests.benchmarks import translators, turns
from tests.benchmarks.turns import Contender, Row

OWN = ("nmt", "fp32")
REFERENCE = ("Hugging Face MarianMT", "fp32")
FIELD = [  # OWN first: it is what the others must be equal to
    OWN, ("nmt", "bf16"),
    ("nmt --engine ctranslate2", "fp32"), ("nmt --engine ctranslate2", "int8"),
    ("CTranslate2", "fp32"), ("CTranslate2", "int8"),
    REFERENCE, ("Hugging Face MarianMT", "bf16"),
    ("Joey NMT", "fp32"),
]  # fmt: skip
OURS = ("nmt", "nmt --engine ctranslate2")
PEERS = ("Hugging Face MarianMT", "Joey NMT")
SAME = 0.97  # of greedy translations that must be nmt's own; the rest is for ties and for lengths cut
BATCH_SIZES = (1, 4, 16, 64)  # sentences a batch
SMALL = 4  # sentences a batch, drawn from all lengths


@dataclass(frozen=True)
class Point:
    """Work that every contender does in turn."""

    name: str
    beam: int
    batches: list[list[int]]  # sentence numbers

    @property
    def numbers(self) -> list[int]:
        return [number for batch in self.batches for number in batch]

    def request(self, batches: int | None = None) -> dict[str, Any]:
        """All of it, or so many batches; sentences that are batches of their own come one by one, as from a person."""
        return {"beam": self.beam, "batches": self.batches[:batches], "alone": max(map(len, self.batches)) == 1}


class Text:
    """The test set of a model: ids to translate, and what they are scored against."""

    def __init__(self, directory: ModelDirectory, most: int) -> None:
        model = SavedModel.open(directory.path)
        heldout = model.heldout("test")
        if heldout is None:
            raise SystemExit(f"{directory.path}: the model's corpus had no test set to translate")
        self.vocabulary: Vocabulary = model.vocabulary
        encoded = list(zip(map(self.vocabulary.encode, heldout[0]), heldout[1], strict=True))
        kept = [(ids, reference) for ids, reference in encoded if 0 < len(ids) <= MAX_SOURCE_PIECES][:most]
        self.sources, self.references = [ids for ids, _ in kept], [reference for _, reference in kept]

    def sample(self, count: int) -> list[int]:
        """So many sentences, evenly spread."""
        count = min(count, len(self.sources))
        return [number * len(self.sources) // count for number in range(count)]

    def batches(self, numbers: Sequence[int], size: int | None = None, budget: int = BATCH_TOKENS["cpu"]) -> list[list[int]]:
        """The longest first: so many sentences a batch, or as many as the budget of source pieces takes."""
        left = sorted(numbers, key=lambda number: len(self.sources[number]), reverse=True)
        batches = []
        while left:
            rows = size or max(1, budget // len(self.sources[left[0]]))
            batches.append(left[:rows])
            left = left[rows:]
        return batches

    def shuffled(self, numbers: Sequence[int], size: int) -> list[list[int]]:
        """So many sentences a batch, whatever their lengths; those of a batch as `batches` has them."""
        drawn = random.Random(1).sample(numbers, len(numbers))
        return [self.batches(drawn[start : start + size], size)[0] for start in range(0, len(drawn), size)]

    def bleu(self, point: Point, translations: list[list[int]]) -> float:
        references = [self.references[number] for number in point.numbers]
        return bleu([self.vocabulary.decode(ids) for ids in translations], [references]).value


def make_miniature(path: Path) -> ModelDirectory:
    """A model directory with random weights and a few lines of test text."""
    folder, directory = demo_folder(), ModelDirectory(path)
    pairs = list(islice(zip(*(read_lines(folder / f"test.{side}") for side in ("en", "de")), strict=True), 24))
    vocabulary = learn(pairs, len(pairs), 400, seed=1)
    config = PRESETS["tiny"].model.model_copy(update={"layers": 1, "d_model": 32, "d_ff": 64})
    model = Transformer(config, len(vocabulary))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))  # biases and norms too: zeros and ones would prove little
        model.embedding.weight[:FIRST_PIECE] = 0  # what only nmt forbids is wanted nowhere ...
        model.embedding.weight[EOS] = 1.5 * torch.randn(config.d_model)  # ... and an end is
    path.mkdir()
    vocabulary.save(directory.tokenizer_path)
    save_weights(directory.weights_path, model.state_dict())
    directory.write_heldout("test", ("en", "de"), pairs)
    data = {"name": "demo", "lines": {"test": len(pairs)}, "sha256": {}}
    directory.write_config(
        {
            "model": config.model_dump(), "training": PRESETS["tiny"].training.model_dump(), "preset": "tiny", "data": data,
            "source": "en", "target": "de", "vocabulary": {"size": len(vocabulary), "sha256": vocabulary.sha256},
        }
    )  # fmt: skip
    return directory


def make_workload(directory: ModelDirectory, text: Text, precisions: Sequence[str], folder: Path) -> dict[str, Any]:
    """Write what the contenders read. Returns the model's sizes."""
    config = SavedModel.open(directory.path).description.model
    if config.norm != "post":
        raise SystemExit(f"{directory.path}: the peers are given post-LN models only")
    workload = {
        "model": str(directory.path.resolve()), "sizes": config.model_dump(), "vocabulary_size": len(text.vocabulary),
        "sources": text.sources, "exports": {precision: exported(directory, precision, folder) for precision in precisions},
    }  # fmt: skip
    (folder / "workload.json").write_text(json.dumps(workload))
    return config.model_dump()


def exported(directory: ModelDirectory, precision: str, folder: Path) -> dict[str, str]:
    """A copy of the model directory with an export in it, or why there is none."""
    copy = folder / precision
    shutil.copytree(directory.path, copy, ignore=shutil.ignore_patterns("checkpoints", "tensorboard", "ctranslate2"))
    try:
        export(copy, precision if precision != "fp32" else None, Reporter())
    except NmtError as error:
        return {"lost": str(error)}
    return {"model": str(copy)}


def check_equality(field: list[Contender], point: Point) -> None:
    """Translate greedily with each contender, and refuse to go on with one in fp32 that is not nmt's model.

    Their processes end. Those that could not be built are marked as lost.
    """
    expected: list[list[int]] = []
    for contender in field:
        found = contender.prepare(point.request()).get("translations", [])
        contender.finish()
        expected = expected or found
        if contender.lost:
            if contender is field[0]:
                raise SystemExit(f"{contender}: {contender.facts['lost']}")
            print(f"{contender}: lost: {contender.facts['lost']}", file=sys.stderr)
            continue
        same = sum(one == other for one, other in zip(found, expected, strict=True))
        print(f"{contender}: {same} of {len(expected)} greedy translations as nmt's in fp32", file=sys.stderr)
        if contender.precision == "fp32" and same < SAME * len(expected):
            raise SystemExit(f"{contender} gives other greedy translations than nmt: not the same model")


def measure(entries: list[tuple[Contender, Point]], rounds: int, text: Text, reference: int = 0) -> list[Row]:
    """A row for each. Ratios are to the entry of this number; `equal` tells how many translations are the first one's."""
    for contender, point in entries:
        contender.turn(point.request(2))  # a warm-up
    answers = turns.race([(contender, point.request()) for contender, point in entries], rounds)
    seconds = [[answer["seconds"] for answer in found] for found in answers]
    first: dict[int, list[int]] = {}
    rows = []
    for (contender, point), found, own in zip(entries, answers, seconds, strict=True):
        row = {"search": point.name, "contender": contender.name, "precision": contender.precision} | contender.facts
        if not contender.lost:
            translations = found[-1]["translations"]
            of_number = dict(zip(point.numbers, translations, strict=True))
            if contender is entries[0][0]:
                first = first or of_number
            row |= speeds(translations, own) | {"bleu": text.bleu(point, translations)}
            if not entries[reference][0].lost:
                row |= turns.ratio(seconds[reference], own)
            if first:
                row["equal"] = sum(of_number[number] == ids for number, ids in first.items()) / len(first)
        rows.append(row)
    return rows


def speeds(translations: list[list[int]], seconds: list[float]) -> dict[str, Any]:
    tokens = sum(len(ids) + 1 for ids in translations)
    return {
        "sentences": len(translations), "tokens": tokens, "seconds": seconds,
        "sentences_per_second": median(len(translations) / each for each in seconds),
        "tokens_per_second": median(tokens / each for each in seconds),
    }  # fmt: skip


def table(rows: list[Row], compared: str, equal: str) -> str:
    return turns.table(
        rows,
        ("search", "contender", "precision"),
        {
            "sentences/s": lambda row: f"{row['sentences_per_second']:,.1f}",
            "target tokens/s": lambda row: f"{row['tokens_per_second']:,.0f}",
            f"x {compared} (least-greatest)": turns.compared,
            "tokens/sentence": lambda row: f"{row['tokens'] / row['sentences']:.1f}",
            f"as {equal}": lambda row: f"{row['equal']:.1%}" if "equal" in row else "",
            "BLEU": lambda row: f"{row['bleu']:.2f}",
            "peak memory, MiB": lambda row: f"{row['memory']:,.0f}",
        },
    )


def plan(text: Text, singles: int, batch_tokens: int) -> list[Point]:
    """What is measured, in the order of the memory it needs."""
    everything = range(len(text.sources))
    cuts = {
        "batch of 1": text.batches(text.sample(singles), 1),
        "full batches": text.batches(everything, None, batch_tokens),
    }
    searches = {"greedy": 1, "beam 4": 4}
    return [Point(f"{search}, {cut}", searches[search], cuts[cut]) for cut in cuts for search in searches]


def describe(text: Text, points: Sequence[Point], sizes: dict[str, Any], threads: int) -> str:
    """The conditions, in three lines."""
    pieces = sum(map(len, text.sources)) / len(text.sources)
    counts = "; ".join(f"{point.name}: {len(point.numbers):,} lines in {len(point.batches):,}" for point in points)
    return (
        f"{sizes['layers']}+{sizes['layers']} layers, D {sizes['d_model']}, FFN {sizes['d_ff']}, H {sizes['heads']}, "
        f"V {len(text.vocabulary):,}; {pieces:.1f} pieces a line.\n{turns.machine(threads)}, PyTorch {torch.__version__}.\n"
        f"{counts}."
    )


def main(arguments: list[str] | None = None) -> None:
    parser = turns.command_line("Translation speed of nmt beside its peers, with the same weights.", rounds=5)
    parser.add_argument("--model", "-m", type=Path, default=Path("model"), help="the model directory (default: model)")
    parser.add_argument("--sentences", type=int, default=1_000, help="of the test set at the most (default: 1000)")
    parser.add_argument("--singles", type=int, default=50, help="of them translated alone (default: 50)")
    parser.add_argument("--sized", type=int, default=512, help="of them in batches of several sizes (default: 512)")
    parser.add_argument("--checked", type=int, default=200, help="of them compared before measuring (default: 200)")
    parser.add_argument("--batch-tokens", type=int, default=BATCH_TOKENS["cpu"], help="a full batch (default: %(default)s)")
    options = parser.parse_args(arguments)
    names = [names for names in FIELD if names[1] == "fp32" or not options.smoke]
    if options.smoke:
        options.rounds, options.singles, options.sized, options.batch_tokens = 2, 4, 8, 100
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        directory = make_miniature(folder / "miniature") if options.smoke else ModelDirectory(options.model)
        text = Text(directory, options.sentences)
        precisions = {precision for name, precision in names if "ctranslate2" in name.lower()}
        sizes = make_workload(directory, text, sorted(precisions), folder)

        def launch(name: str, precision: str) -> Contender:
            python = options.peers if name in PEERS else sys.executable
            command = [python, "-m", translators.__name__, name, precision, root]
            return Contender(name, precision, command, folder, options.threads)

        field = [launch(*each) for each in names]
        check_equality(field, Point("check", 1, text.batches(text.sample(options.checked), None, options.batch_tokens)))
        field = [contender if contender.lost else launch(contender.name, contender.precision) for contender in field]
        points = plan(text, options.singles, options.batch_tokens)
        for contender in field:
            if not contender.lost:
                contender.prepare(points[0].request(1))
        compared = next((n for n, c in enumerate(field) if (c.name, c.precision) == REFERENCE and not c.lost), 0)
        rows = []
        for point in points:
            rows += measure([(contender, point) for contender in field], options.rounds, text, compared)
        own, sample, full = field[0], text.sample(options.sized), points[-1]
        sized = [Point(f"beam 4, batches of {size}", 4, text.batches(sample, size)) for size in BATCH_SIZES]
        sizes_rows = measure([(own, point) for point in sized], options.rounds, text)
        small = Point(f"beam 4, batches of {SMALL}, shuffled", 4, text.shuffled(full.numbers, SMALL))
        ours = [contender for contender in field if contender.name in OURS and not contender.lost]
        same = [measure([(contender, full), (contender, small)], 1, text)[1] for contender in ours]
        for contender in field:
            contender.finish()
    print(describe(text, [*points, *sized], sizes, options.threads))
    print(f"\n{table(rows, str(field[compared]), 'nmt in fp32')}\n")
    print(f"{table(sizes_rows, sized[0].name, sized[0].name)}\n\n{table(same, full.name, full.name)}")
    if options.json:
        facts = {"threads": options.threads, "batch_tokens": options.batch_tokens, "reference": str(field[compared])}
        facts |= {"rows": rows, "batch_sizes": sizes_rows, "same": same}
        options.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
