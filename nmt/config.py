"""Every setting of the model and of its training, and the presets: complete recipes.

The command line and TOML files both name the fields of these two classes, so help texts, ranges and defaults are written once.
"""

import difflib
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nmt.errors import UsageError

STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
Count = Annotated[int, Field(ge=1, le=10**12)]  # a larger number is a slip of the keyboard, or a damaged file


class ModelConfig(BaseModel):
    """The architecture (paper, section 3 and table 3). The vocabulary's size comes from the vocabulary itself."""

    model_config = STRICT

    architecture: Literal["transformer", "decoder-only", "rnn"] = Field(
        "transformer", description="The encoder-decoder of 2017, one stack as in GPT-2, or a recurrent network of 2015."
    )
    layers: int = Field(6, ge=1, le=100, description="Layers in the encoder, and in the decoder (N).")
    d_model: int = Field(512, ge=2, le=65_536, description="Width of the model's states (d_model).")
    heads: int = Field(8, ge=1, description="Attention heads (h).")
    d_ff: int = Field(2048, ge=1, le=1_000_000, description="Width of the feed-forward layers (d_ff).")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout on sub-layer outputs and embeddings (P_drop).")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="Dropout on attention weights (the paper has none).")
    relu_dropout: float = Field(0.0, ge=0, lt=1, description="Dropout in the feed-forward layers (the paper has none).")
    norm: Literal["post", "pre"] = Field("post", description="LayerNorm after each sub-layer, as in the paper, or before.")
    layer_norm_epsilon: float = Field(1e-6, gt=0, description="Epsilon of LayerNorm (the authors' code: 1e-6).")
    positions: Literal["sinusoids", "learned"] = Field("sinusoids", description="Positional encodings.")
    max_positions: int = Field(1_024, ge=2, le=1_000_000, description="Rows of the table of learned positions.")
    activation: Literal["relu", "gelu"] = Field(
        "relu", description="Of the feed-forward layers; gelu is GPT-2's, approximated by tanh."
    )
    initialisation: Literal["xavier", "gpt2"] = Field(
        "xavier", description="Xavier's, or N(0, 0.02) with the last layers before each residual sum scaled down."
    )
    mask: Literal["prefix", "causal"] = Field(
        "prefix", description="Decoder-only: whether a source position sees the whole source, or what comes before it."
    )

    def positions_for(self, source: int, target: int) -> int:
        """The positions that a pair of so many pieces takes: a side with BOS or EOS, or in one stack both and BOS between."""
        return source + target + 1 if self.architecture == "decoder-only" else max(source, target) + 1

    def can_number(self, source: int, target: int) -> bool:
        """Whether a pair of so many pieces fits the table of learned positions; sinusoids have no end."""
        limited = self.positions == "learned" and self.architecture != "rnn"
        return not limited or self.positions_for(source, target) <= self.max_positions

    def model_post_init(self, _context: Any) -> None:
        if self.d_model % self.heads or self.d_model % 2:
            raise ValueError(f"d_model must be even and a multiple of heads (got {self.d_model} and {self.heads})")
        if self.architecture == "rnn" and self.layers != 1:
            raise ValueError(f"the rnn has one layer on each side (got layers = {self.layers})")


class TrainingConfig(BaseModel):
    """The recipe (paper, section 5): vocabulary, cleaning, updates, optimiser, schedule, validation."""

    model_config = STRICT

    steps: Count = Field(100_000, description="Number of updates.")
    tokens_per_update: Count = Field(25_000, description="Target tokens per update, on any number of devices.")
    micro_batch_tokens: Count | None = Field(
        None, description="Tokens per side, with padding, that a device processes at once. [default: by device]"
    )
    warmup: Count = Field(4_000, description="Updates during which the learning rate rises.")
    factor: float = Field(1.0, gt=0, description="Multiplies the paper's learning rate.")
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="Adam's beta 1.")
    adam_beta2: float = Field(0.98, ge=0, lt=1, description="Adam's beta 2.")
    adam_epsilon: float = Field(1e-9, gt=0, description="Adam's epsilon.")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="Probability spread evenly over the vocabulary.")
    bpe_dropout: float = Field(0.0, ge=0, lt=1, description="Share of the merges that segmentation skips, anew each epoch.")
    word_dropout: float = Field(0.0, ge=0, lt=1, description="Share of the pieces that are read as unknown, on both sides.")
    r_drop: float = Field(0.0, ge=0, description="Weight of R-Drop: two passes with other dropout should agree (alpha).")
    upper_case: float = Field(0.0, ge=0, lt=1, description="Share of the pairs in upper case, anew each epoch.")
    title_case: float = Field(0.0, ge=0, lt=1, description="Share of the pairs in title case, anew each epoch.")
    typos: float = Field(0.0, ge=0, lt=1, description="Share of the sources with typing errors, anew each epoch.")
    synthetic_share: float = Field(0.5, gt=0, lt=1, description="Share of --synthetic text in the tokens of every update.")
    source_loss: bool = Field(False, description="Decoder-only, causal: learn to predict the source's next tokens too.")
    vocab_size: int = Field(37_000, ge=1, le=1_000_000, description="Maximum size of the shared BPE vocabulary.")
    max_pieces: Count = Field(256, description="Drop training pairs with more pieces on a side.")
    max_ratio: float = Field(3.0, ge=1, description="Drop training pairs whose lengths differ by a larger factor.")
    drop_duplicates: bool = Field(False, description="Drop training pairs that occurred before.")
    drop_identical: bool = Field(False, description="Drop training pairs whose two sides are equal.")
    clean: bool = Field(False, description="Drop training pairs that look wrong: another language, numbers, length, and so on.")
    seed: int = Field(1, ge=0, lt=2**63, description="Random seed for weights, order, dropout and vocabulary.")
    validate_every: Count = Field(1_500, description="Updates between checkpoints; each one is validated.")
    patience: Count | None = Field(None, description="Stop after this many validations without a better BLEU.")
    average: Count = Field(5, description="Number of last checkpoints averaged into the final weights.")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Device to compute on.")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="Number format. auto: bf16 if the hardware has it, but fp32 to translate on a CPU."
    )


# The settings that may change when a run is resumed. All others are the run's identity.
RUNTIME = frozenset({"micro_batch_tokens", "device", "precision"})
EXTENT = frozenset({"steps", "validate_every", "patience", "average"})
DEFAULT_MICRO_BATCH = 4_096  # padded tokens per side that a CPU computes at once


@dataclass(frozen=True)
class Preset:
    """A complete recipe, and one sentence on where its numbers come from."""

    model: ModelConfig
    training: TrainingConfig
    source: str
    micro_batch_tokens: int = DEFAULT_MICRO_BATCH  # on a CPU; a GPU is probed for what it holds


PRESETS: dict[str, Preset] = {
    "demo": Preset(
        ModelConfig(layers=2, d_model=128, heads=4, d_ff=256, dropout=0.05),
        TrainingConfig(
            steps=1_000, tokens_per_update=2_048, warmup=300, vocab_size=2_000,
            validate_every=200, average=3, precision="fp32",
        ),
        "measured on the embedded corpus: the quickest found to 95 BLEU on two CPU cores, where fp32 is faster at this width",
        micro_batch_tokens=2_560,
    ),
    "tiny": Preset(
        ModelConfig(layers=3, d_model=256, heads=4, d_ff=512, dropout=0.2),
        TrainingConfig(
            steps=12_000, tokens_per_update=2_048, warmup=600, vocab_size=4_000,
            validate_every=250, average=3,
        ),
        "measured on Multi30k with two CPU cores: a size that 25 minutes can train, and an hour and a half better",
        micro_batch_tokens=1_280,
    ),
    "small": Preset(
        ModelConfig(layers=4, d_model=256, heads=4, d_ff=1024),
        TrainingConfig(
            steps=30_000, tokens_per_update=4_096, warmup=2_000, vocab_size=8_000,
            validate_every=1_000, patience=8,
        ),
        "chosen between tiny and base: half the paper's width, four of its six layers; tried on Tatoeba for 90 minutes",
        micro_batch_tokens=2_048,
    ),
    "base": Preset(
        ModelConfig(),
        TrainingConfig(),
        "the paper's base model: table 3 and section 5 (five checkpoints, ten minutes or 1,500 updates apart)",
    ),
    "big": Preset(
        ModelConfig(d_model=1024, heads=16, d_ff=4096, dropout=0.3),
        TrainingConfig(steps=300_000, average=20),
        "the paper's big model: table 3 and section 6.1 (twenty checkpoints)",
    ),
    "gpt2": Preset(
        ModelConfig(
            architecture="decoder-only", layers=12, d_model=768, heads=12, d_ff=3072, attention_dropout=0.1, norm="pre",
            layer_norm_epsilon=1e-5, positions="learned", activation="gelu", initialisation="gpt2", mask="causal",
        ),
        TrainingConfig(vocab_size=50_257),
        "the shape of GPT-2 small (Radford et al. 2019), trained like the paper's base model",
    ),
}  # fmt: skip


def preset_for(pairs: int) -> str:
    """The preset for a corpus of that many training pairs, where the user names none."""
    return "tiny" if pairs < 100_000 else "small" if pairs < 1_000_000 else "base"


def rebuilt(model: ModelConfig, architecture: str) -> ModelConfig:
    """The model of a preset in another architecture: one stack has the layers of both, a recurrent network just one."""
    if architecture == model.architecture:
        return model
    layers = 2 * model.layers if model.architecture == "transformer" else model.layers
    layers = {"transformer": (layers + 1) // 2, "decoder-only": layers, "rnn": 1}.get(architecture, layers)
    return model.model_copy(update={"architecture": architecture, "layers": layers})


def fine_tuning(trained_as: str, model: ModelConfig, training: TrainingConfig) -> Preset:
    """The recipe for training a model further on other text: its own settings, but few updates at a low rate.

    With this warm-up and factor the rate peaks at 3e-4 for D 512, where the paper's base model peaks at 7e-4 and ends at
    1.4e-4. `trained_as` is the preset that the model was trained with.
    """
    gently = {"steps": 2_000, "warmup": 200, "factor": 0.1, "validate_every": 100, "patience": 5, "average": 3}
    gently["tokens_per_update"] = min(training.tokens_per_update, 4_096)
    recipe = training.model_copy(update=gently | {"micro_batch_tokens": None, "device": "auto", "precision": "auto"})
    source = "the model's own settings, but few updates, soon warmed up to a low rate"
    return Preset(model, recipe, source, PRESETS.get(trained_as, PRESETS["base"]).micro_batch_tokens)


def find_preset(name: str) -> Preset:
    """The named preset. Raises UsageError with the nearest name."""
    if name not in PRESETS:
        raise UsageError(f"there is no preset '{name}', but there are {', '.join(PRESETS)}{_nearest(name, PRESETS)}")
    return PRESETS[name]


def read_toml(path: Path) -> dict[str, dict[str, Any]]:
    """The tables of a TOML file of settings. Raises UsageError."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--config {path}: cannot be read as TOML: {getattr(error, 'strerror', None) or error}") from None
    for table, content in tables.items():
        if table not in ("model", "training") or not isinstance(content, dict):
            raise UsageError(f"{path}: '{table}' is no table of nmt; there are [model] and [training]")
    return tables


def settle(preset: Preset, tables: dict[str, dict[str, Any]], flags: dict[str, Any]) -> Preset:
    """The preset under the settings of a TOML file, and over them flags by the field they set, None where not given.

    Raises UsageError that lists every unknown or impossible value with its place.
    """
    faults: list[str] = []
    settled: dict[str, Any] = {}
    architecture = flags.get("architecture") or tables.get("model", {}).get("architecture", preset.model.architecture)
    for table, base in (("model", rebuilt(preset.model, architecture)), ("training", preset.training)):
        fields = type(base).model_fields
        given = {name: value for name, value in flags.items() if name in fields and value is not None}
        try:
            settled[table] = type(base).model_validate(base.model_dump() | tables.get(table, {}) | given)
        except ValidationError as error:
            faults += [_explain(f"--config [{table}]", fields, given, problem) for problem in error.errors()]
    if faults:
        raise UsageError("; ".join(faults))
    return replace(preset, **settled)


def _explain(table: str, fields: Iterable[str], flags: Iterable[str], problem: Any) -> str:
    message = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:  # a conflict of several settings, which the message names
        return message
    name = problem["loc"][0]
    if problem["type"] == "extra_forbidden":
        return f"{table} has no setting '{name}'{_nearest(name, fields)}"
    where = f"--{name.replace('_', '-')}" if name in flags else f"{table} {name}"
    return f"{where}: {message} (got {problem['input']})"


def _nearest(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean '{close[0]}'?" if close else ""
