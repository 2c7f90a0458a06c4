"""How fast nmt trains beside its peers: the same batches, in turn, on the same machine.

    .venv/bin/python -m tests.benchmarks.training --peers peers/bin/python --data multi30k --shape 4+4 --json 4+4.json

The peers need an environment of their own, which two commands make:

    python3 -m venv peers
    peers/bin/pip install -r tests/benchmarks/requirements.txt

Contenders are nmt (`Trainer.update`: batches made, gradients accumulated, fused Adam), `torch.nn.Transformer` in the plain
loop that one would write around it, Hugging Face's MarianMT and Joey NMT, each in fp32 and in bf16 autocast, each in a
process of its own, and all take turns at the same few updates (turns.py). Before all that, nmt with dropout 0 and its weights
copied into `torch.nn.Transformer` must give the same loss.

Dropout is 0.3 everywhere, but where it falls is each contender's own: in nmt and MarianMT on embeddings and sub-layer
outputs; in the two others, which have one argument for all, on attention weights and inside the feed-forward layers too.

- Target tokens count EOS and no padding.
- FLOPs a target token are counted from the architecture, over the true lengths: two for each multiply-add of each matrix
  product (projections, scores, mixtures, feed-forward layers, output), forward, and twice that backward. A share of the
  peak is these FLOPs against the best 2,048 x 2,048 matrix product of the same precision seen in any round.
- Memory is what a process has held at most, the imports included; in brackets, before its first update.
- The loss is that of the first update's batches after all training, with dropout off: a contender that learned nothing
  would show. Joey NMT leaves out the entropy of the smoothed targets, a constant.
"""

import itertools
import json
import pickle
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from nmt.config import PRESETS, TrainingConfig
from nmt.data import corpus as corpora
from nmt.data.batching import Batch, Plan, micro_batches
from nmt.data.preparation import PreparedPairs, encode
from nmt.data.vocabulary import Vocabulary, learn
from nmt.model.transformer import Transformer
from tests.benchmarks import contenders, turns
from tests.benchmarks.contenders import CONTENDERS, PAD, TorchTransformer, cross_entropy
from tests.benchmarks.turns import Contender, Row

SHAPES: dict[str, dict[str, Any]] = {  # what differs from the preset `tiny`: 3+3 layers, D 256, FFN 512, H 4
    "tiny": {"dropout": 0.3},
    "4+4": {"layers": 4, "dropout": 0.3},
    "smoke": {"layers": 1, "d_model": 32, "d_ff": 64, "dropout": 0.3},
}
REFERENCE = "torch.nn.Transformer"
OWN = ("nmt", REFERENCE)  # contenders that need nothing of the peers' environment
MICRO_BATCH = 1_280  # padded tokens a side, as the preset has it on a CPU
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
CPU = torch.device("cpu")


def prepared(data: str, settings: TrainingConfig, most: int | None) -> tuple[Vocabulary, PreparedPairs]:
    """The vocabulary and the ids of the first pairs of a corpus, English to German, in memory."""
    texts = list(itertools.islice(corpora.load(data, "en", "de").usable(settings), most))
    vocabulary = learn(texts, len(texts), settings.vocab_size, settings.seed)
    return vocabulary, encode(texts, vocabulary, settings.max_pieces, settings.max_ratio)[0]


def make_workload(data: str, shape: str, count: int, folder: Path) -> dict[str, Any]:
    """Write what the contenders read: the first `count` updates of a plan, cut as nmt cuts them, and the pairs themselves."""
    preset, smoke = PRESETS["tiny"], shape == "smoke"
    settings = preset.training.model_copy(update={"tokens_per_update": 128, "vocab_size": 600} if smoke else {})
    vocabulary, pairs = prepared(data, settings, 500 if smoke else None)
    (folder / "pairs.pickle").write_bytes(pickle.dumps(pairs))
    plan = Plan(pairs, settings.tokens_per_update, settings.seed)
    updates, began = [], time.perf_counter()
    for update in itertools.islice(itertools.chain.from_iterable(map(plan.epoch, itertools.count())), count):
        made = [Batch.of(pairs.take(update[cut])) for cut in micro_batches(pairs.take(update), MICRO_BATCH)]
        batches = [(batch.source, batch.target_in, batch.target_out) for batch in made]
        updates.append((batches, sum(int((target_out != PAD).sum()) for _, _, target_out in batches)))
    sizes = preset.model.model_copy(update=SHAPES[shape]).model_dump()
    workload = {
        "sizes": {name: sizes[name] for name in ("layers", "d_model", "heads", "d_ff", "dropout")},
        "recipe": {
            "tokens_per_update": settings.tokens_per_update, "micro_batch_tokens": MICRO_BATCH,
            "warmup": settings.warmup, "label_smoothing": settings.label_smoothing, "seed": settings.seed,
        },
        "vocabulary_size": len(vocabulary), "updates": updates, "seconds": time.perf_counter() - began,
    }  # fmt: skip
    torch.save(workload, folder / "workload.pt")
    return workload


def check_equality(workload: dict[str, Any]) -> float:
    """The greatest difference in loss, nats a token, between nmt and `torch.nn.Transformer` with the same weights."""
    sizes = workload["sizes"] | {"dropout": 0.0}
    ours = Transformer(PRESETS["tiny"].model.model_copy(update=sizes), workload["vocabulary_size"])
    theirs = TorchTransformer(sizes, workload["vocabulary_size"])
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # biases and norms too: zeros and ones would prove little
        theirs.load_state_dict({_torch_name(name): weights for name, weights in ours.state_dict().items()})
        difference = 0.0
        for source, target_in, target_out in workload["updates"][0][0]:
            states = ours.decode(target_in, ours.encode(source))
            logits = torch.nn.functional.linear(states, ours.embedding.weight), theirs(source, target_in)
            one, other = (cross_entropy(each.double(), target_out, workload["recipe"]["label_smoothing"]) for each in logits)
            difference = max(difference, abs(one - other).item() / int((target_out != PAD).sum()))
    if difference > 1e-4:
        raise SystemExit(f"nmt and torch.nn.Transformer differ by {difference:.1e} nats a token: not the same model")
    return difference


def _torch_name(name: str) -> str:
    """nmt's name of a parameter -> `TorchTransformer`'s."""
    for ours, theirs in {
        "encoder.": "transformer.encoder.layers.", "decoder.": "transformer.decoder.layers.",
        "self_attention.": "self_attn.", "cross_attention.": "multihead_attn.", "in_": "in_proj_", "out.": "out_proj.",
        "feed_forward.inner": "linear1", "feed_forward.outer": "linear2",
        "add_norms.0.norm": "norm1", "add_norms.1.norm": "norm2", "add_norms.2.norm": "norm3",
    }.items():  # fmt: skip
        name = name.replace(ours, theirs)
    return name


def flops_per_token(workload: dict[str, Any]) -> float:
    """Of one training step, a target token (see above)."""
    layers, d, d_ff = (workload["sizes"][name] for name in ("layers", "d_model", "d_ff"))
    products = tokens = 0.0
    for source, _, target in (batch for batches, _ in workload["updates"] for batch in batches):
        s, t = ((ids != PAD).sum(1).double() for ids in (source, target))
        encoder = s * (4 * d * d + 2 * d * d_ff) + 2 * d * s * s
        decoder = t * (6 * d * d + 2 * d * d_ff) + 2 * d * t * t + s * 2 * d * d + 2 * d * s * t
        products += float((layers * (encoder + decoder) + t * workload["vocabulary_size"] * d).sum())
        tokens += float(t.sum())
    return 3 * 2 * products / tokens


def matmul_flops(precision: torch.dtype, size: int = 2_048, device: torch.device = CPU) -> float:
    """FLOPs a second of the best of three square products."""
    one, other = (torch.randn(size, size, device=device, dtype=precision) for _ in range(2))
    times = []
    for _ in range(3):
        synchronize(device)
        began = time.perf_counter()
        one @ other
        synchronize(device)
        times.append(time.perf_counter() - began)
    return 2 * size**3 / min(times)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def compete(
    field: list[Contender], workload: dict[str, Any], rounds: int, steps: int, warmup: int
) -> tuple[list[Row], dict[str, float]]:
    """What is measured of each contender, and the machine's best matrix product, a precision."""
    for contender in field:
        contender.prepare(warmup)
        if contender.lost and contender.name in OWN:
            raise SystemExit(f"{contender}: {contender.facts['lost']}")
    peak = dict.fromkeys(PRECISIONS, 0.0)

    def measure_peak() -> None:
        time.sleep(turns.PAUSE)
        for name, dtype in PRECISIONS.items():
            peak[name] = max(peak[name], matmul_flops(dtype))

    answers = turns.race([(contender, steps) for contender in field], rounds, measure_peak)
    counts = [tokens for _, tokens in workload["updates"][warmup:]]
    tokens = [sum(counts[start : start + steps]) for start in range(0, len(counts), steps)]
    seconds = [[answer["seconds"] for answer in found] for found in answers]
    [reference] = [number for number, c in enumerate(field) if (c.name, c.precision) == (REFERENCE, "fp32")]
    flops, rows = flops_per_token(workload), []
    for contender, own in zip(field, seconds, strict=True):
        row = {"contender": contender.name, "precision": contender.precision} | contender.facts | contender.finish()
        if not contender.lost:
            speed = statistics.median(n / each for n, each in zip(tokens, own, strict=True))
            row |= {"tokens_per_second": speed, "share_of_peak": flops * speed / peak[contender.precision]}
            row |= turns.ratio(seconds[reference], own) | {"seconds": own}
        rows.append(row)
    return rows, peak


def table(rows: list[Row]) -> str:
    return turns.table(
        rows,
        ("contender", "precision"),
        {
            "target tokens/s": lambda row: f"{row['tokens_per_second']:,.0f}",
            f"x {REFERENCE} fp32 (least-greatest)": turns.compared,
            "of the matmul peak": lambda row: f"{row['share_of_peak']:.0%}",
            "peak memory (before), MiB": lambda row: f"{row['memory']:,.0f} ({row['memory_before']:,.0f})",
            "parameters": lambda row: f"{row['parameters']:,}",
            "loss": lambda row: f"{row['loss']:.3f}",
        },
    )


def describe(workload: dict[str, Any], threads: int, peak: dict[str, float], rows: list[Row]) -> str:
    """The conditions, in four lines."""
    layers, d_model, heads, d_ff, dropout = workload["sizes"].values()
    batches = [batch for batches, _ in workload["updates"] for batch in batches]
    updates, tokens = len(workload["updates"]), sum(tokens for _, tokens in workload["updates"])
    cells = sum(source.numel() + target.numel() for source, target, _ in batches)
    padding = sum(int((ids == PAD).sum()) for source, _, target in batches for ids in (source, target)) / cells
    made, fastest = tokens / workload["seconds"], max(row.get("tokens_per_second", 0) for row in rows)
    peaks = ", ".join(f"{flops / 1e9:,.0f} GFLOP/s in {name}" for name, flops in peak.items())
    return (
        f"{layers}+{layers} layers, D {d_model}, FFN {d_ff}, H {heads}, V {workload['vocabulary_size']:,}, dropout {dropout}; "
        f"an update has {tokens / updates:,.0f} target tokens in {len(batches) / updates:.1f} micro-batches "
        f"with {padding:.0%} padding; {flops_per_token(workload) / 1e6:.1f} MFLOP a target token.\n"
        f"{turns.machine(threads)}, PyTorch {torch.__version__}; matmul peak {peaks}.\n"
        f"Batches alone are made {made / fastest:.0f} times as fast as the fastest contender consumes them (fault S2).\n"
        f"Between its turns no contender computed for more than {max(row.get('idle', 0) for row in rows):.3f} s."
    )


def main(arguments: list[str] | None = None) -> None:
    parser = turns.command_line("Training speed of nmt beside its peers, on the same batches.", rounds=10)
    parser.add_argument("--data", default="demo", help="as for nmt train, English to German (default: demo)")
    parser.add_argument("--shape", choices=SHAPES, default="tiny", help="the model's sizes (default: tiny)")
    parser.add_argument("--steps", type=int, default=4, help="updates a turn (default: 4)")
    parser.add_argument("--warmup", type=int, default=4, help="updates before the first timed turn (default: 4)")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.shape, options.data, options.rounds, options.steps, options.warmup = "smoke", "demo", 2, 1, 1
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        updates = options.warmup + options.rounds * options.steps
        workload = make_workload(options.data, options.shape, updates, Path(folder))
        difference = check_equality(workload)
        print(f"the same weights give the same loss to {difference:.0e} nats a token", file=sys.stderr)
        field = [
            Contender(
                name, precision,
                [sys.executable if name in OWN else options.peers, "-m", contenders.__name__, name, precision, folder],
                Path(folder), options.threads,
            )
            for name, precision in itertools.product(OWN if options.smoke else CONTENDERS, PRECISIONS)
        ]  # fmt: skip
        rows, peak = compete(field, workload, options.rounds, options.steps, options.warmup)
    print(f"{describe(workload, options.threads, peak, rows)}\n\n{table(rows)}")
    if options.json:
        facts = {"data": options.data, "shape": options.shape, "threads": options.threads, "matmul_peak": peak}
        facts |= {"flops_per_token": flops_per_token(workload), "rows": rows}
        options.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
