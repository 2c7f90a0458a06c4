"""Every setting of a model and of its training, with the presets that make up complete recipes.

Help texts, ranges and defaults stand here once: the command line and the TOML file both name fields of these two classes.
"""

import difflib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nmt.errors import UsageError

MOST = 10**12  # of anything that is counted: what goes beyond is a slip, or a damaged file


class ModelConfig(BaseModel):
    """The architecture (paper, section 3 and table 3). The vocabulary's size comes from the vocabulary itself."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    layers: int = Field(6, ge=1, le=100, description="Layers in the encoder, and as many in the decoder (N).")
    d_model: int = Field(512, ge=2, le=65_536, description="Width of every state (d_model).")
    heads: int = Field(8, ge=1, description="Attention heads (h).")
    d_ff: int = Field(2048, ge=1, le=1_000_000, description="Width of the feed-forward layers (d_ff).")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout on sub-layer outputs and embedding sums (P_drop).")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="Dropout on attention weights (none in the paper).")
    relu_dropout: float = Field(0.0, ge=0, lt=1, description="Dropout inside the feed-forward layers (none in it).")
    norm: Literal["post", "pre"] = Field("post", description="LayerNorm after each sub-layer (the paper) or before it.")
    layer_norm_epsilon: float = Field(1e-6, gt=0, description="Epsilon of LayerNorm (the authors' code: 1e-6).")

    def model_post_init(self, _context: Any) -> None:
        if self.d_model % self.heads or self.d_model % 2:
            raise ValueError(f"d_model must be even and a multiple of heads (got {self.d_model} and {self.heads})")


class TrainingConfig(BaseModel):
    """The recipe (paper, section 5): vocabulary, cleaning, updates, optimiser, schedule, validation."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    steps: int = Field(100_000, ge=1, le=MOST, description="Updates in all.")
    tokens_per_update: int = Field(
        25_000, ge=1, le=MOST, description="Target tokens in an update, whatever the device."
    )
    micro_batch_tokens: int | None = Field(
        None, ge=1, le=MOST, description="Padded tokens a side that a device takes at once. [default: what a GPU holds]"
    )
    warmup: int = Field(4_000, ge=1, le=MOST, description="Updates over which the learning rate rises.")
    factor: float = Field(1.0, gt=0, description="Multiplies the paper's learning rate.")
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="Adam's beta 1.")
    adam_beta2: float = Field(0.98, ge=0, lt=1, description="Adam's beta 2.")
    adam_epsilon: float = Field(1e-9, gt=0, description="Adam's epsilon.")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="Probability spread over the vocabulary.")
    vocab_size: int = Field(37_000, ge=1, le=1_000_000, description="Pieces in the shared BPE vocabulary, at most.")
    max_pieces: int = Field(256, ge=1, le=MOST, description="Training pairs with a longer side are dropped.")
    max_ratio: float = Field(3.0, ge=1, description="Pairs with one side so many times the other are dropped.")
    drop_duplicates: bool = Field(False, description="Drop training pairs that occurred before.")
    drop_identical: bool = Field(False, description="Drop training pairs whose sides are the same.")
    seed: int = Field(1, ge=0, lt=2**63, description="Fixes weights, order, dropout and vocabulary sample.")
    validate_every: int = Field(1_500, ge=1, le=MOST, description="Updates between checkpoints, each validated.")
    patience: int | None = Field(
        None, ge=1, le=MOST, description="Stop after so many validations without a better BLEU."
    )
    average: int = Field(5, ge=1, le=MOST, description="Last checkpoints averaged into the final weights.")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where to compute.")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="bf16 where the hardware has it, or fp32.")


# What may differ when a run is resumed. All other fields are the run's identity.
RUNTIME = frozenset({"micro_batch_tokens", "device", "precision"})
EXTENT = frozenset({"steps", "validate_every", "patience", "average"})
MICRO_BATCH = 4_096  # padded tokens a side that a CPU takes at once, unless the preset or the user knows better


Config = TypeVar("Config", ModelConfig, TrainingConfig)


@dataclass(frozen=True)
class Preset:
    """A complete recipe, and one sentence on where its numbers come from."""

    model: ModelConfig
    training: TrainingConfig
    source: str
    micro_batch_tokens: int = MICRO_BATCH  # on a CPU; a GPU is asked what it holds


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
}  # fmt: skip


def preset_for(pairs: int) -> str:
    """The preset's name for a corpus of that many training pairs, chosen where the user names none."""
    return "tiny" if pairs < 100_000 else "small" if pairs < 1_000_000 else "base"


def fine_tuning(model: ModelConfig, training: TrainingConfig, micro_batch_tokens: int) -> Preset:
    """The recipe for going on from a trained model with other text: its own settings, but few updates at a low rate.

    With this warm-up and factor the rate peaks at 3e-4 for D 512, where the paper's base model peaks at 7e-4 and ends at
    1.4e-4.
    """
    gently = {"steps": 2_000, "warmup": 200, "factor": 0.1, "validate_every": 100, "patience": 5, "average": 3}
    gently["tokens_per_update"] = min(training.tokens_per_update, 4_096)
    recipe = training.model_copy(update=gently | {"micro_batch_tokens": None, "device": "auto", "precision": "auto"})
    return Preset(
        model, recipe, "the model's own settings, but few updates, soon warmed up to a low rate", micro_batch_tokens
    )


def find_preset(name: str) -> Preset:
    """The named preset. Raises UsageError with the nearest name."""
    if name not in PRESETS:
        raise UsageError(f"there is no preset '{name}', but there are {', '.join(PRESETS)}{_nearest(name, PRESETS)}")
    return PRESETS[name]


def settle(preset: Preset, toml: Path | None, flags: dict[str, Any]) -> tuple[ModelConfig, TrainingConfig]:
    """The preset, overridden by the TOML file's [model] and [training], overridden by the flags that were given.

    Raises UsageError that lists every unknown or impossible value with its place.
    """
    tables = _read_toml(toml) if toml else {}
    given = {name: value for name, value in flags.items() if value is not None}
    faults: list[str] = []
    model = _override(preset.model, f"{toml}: [model]", tables.get("model", {}), given, faults)
    training = _override(preset.training, f"{toml}: [training]", tables.get("training", {}), given, faults)
    if faults:
        raise UsageError("; ".join(faults))
    return model, training


def _override(base: Config, table: str, values: dict[str, Any], flags: dict[str, Any], faults: list[str]) -> Config:
    """The configuration with these values; what is unknown or impossible among them is added to the faults."""
    fields = type(base).model_fields
    unknown = [key for key in values if key not in fields]
    faults += [f"{table} has no setting '{key}'{_elsewhere(key) or _nearest(key, fields)}" for key in unknown]
    known = {name: value for name, value in (values | flags).items() if name in fields}
    try:
        return type(base).model_validate(base.model_dump() | known)
    except ValidationError as error:
        faults += [_explain(table, flags, problem) for problem in error.errors()]
        return base


def _read_toml(path: Path) -> dict[str, dict[str, Any]]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not TOML in UTF-8: {error}") from None
    for table, content in tables.items():
        if table not in ("model", "training"):
            raise UsageError(f"{path}: [{table}] is no table of nmt; there are [model] and [training]")
        if not isinstance(content, dict):
            raise UsageError(f"{path}: '{table}' must be a table: write [{table}]")
    return tables


def _elsewhere(name: str) -> str:
    """Where else a setting of that name is, if it is."""
    tables = {"[model]": ModelConfig.model_fields, "[training]": TrainingConfig.model_fields}
    return next((f"; {table} has" for table, fields in tables.items() if name in fields), "")


def _nearest(name: str, names: Any) -> str:
    close = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean '{close[0]}'?" if close else ""


def _explain(table: str, flags: dict[str, Any], problem: Any) -> str:
    message = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:  # a fault of several settings together, which the message names
        return message
    name = str(problem["loc"][0])
    place = f"--{name.replace('_', '-')}" if name in flags else f"{table} {name}"
    return f"{place}: {message} (got {problem['input']})"
