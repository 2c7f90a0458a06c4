"""Settings: presets, what overrides what, and errors that name every mistake and the nearest right name."""

from pathlib import Path
from typing import Any

import pytest

from nmt.config import PRESETS, ModelConfig, TrainingConfig, preset_for, read_toml, settle
from nmt.errors import UsageError


def settled(folder: Path, toml: str, **flags: Any) -> tuple[ModelConfig, TrainingConfig]:
    """The base preset under this TOML text and these flags."""
    path = folder / "settings.toml"
    path.write_text(toml, encoding="utf-8")
    found = settle(PRESETS["base"], read_toml(path), flags)
    return found.model, found.training


def complaint(folder: Path, toml: str, **flags: Any) -> str:
    """The one line that refuses such settings."""
    with pytest.raises(UsageError, match=r"^[^\n]+$") as error:
        settled(folder, toml, **flags)
    return str(error.value)


def test_base_is_the_papers_model_and_recipe() -> None:
    """The preset `base` holds the numbers of the paper's table 3 and section 5."""
    model, training = PRESETS["base"].model, PRESETS["base"].training
    assert (model.layers, model.d_model, model.heads, model.d_ff, model.dropout) == (6, 512, 8, 2048, 0.1)
    assert (model.attention_dropout, model.relu_dropout, model.norm) == (0, 0, "post")
    assert (training.adam_beta1, training.adam_beta2, training.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert (training.warmup, training.factor, training.label_smoothing) == (4_000, 1, 0.1)
    assert (training.steps, training.tokens_per_update, training.average) == (100_000, 25_000, 5)
    assert training.vocab_size == 37_000
    assert (training.max_pieces, training.max_ratio) == (256, 3)
    assert (training.drop_duplicates, training.drop_identical) == (False, False)


def test_flags_override_toml_overrides_preset(tmp_path: Path) -> None:
    """A flag wins over the file, also with 0, and the file over the preset; a flag that was not given changes nothing."""
    toml = "\ufeff[model]\nlayers = 3\ndropout = 0.3\n[training]\nsteps = 50\nseed = 9\nfactor = 2.0\n"  # BOM: Windows
    model, training = settled(tmp_path, toml, dropout=0.0, steps=7, seed=0, norm="pre", warmup=None)
    base = PRESETS["base"]
    assert model == base.model.model_copy(update={"layers": 3, "dropout": 0.0, "norm": "pre"})
    assert training == base.training.model_copy(update={"steps": 7, "seed": 0, "factor": 2.0})


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        ("[model]\nlayer = 6\n", ["'layer'", "did you mean 'layers'?"]),
        ("[training]\ntokens_per_udpate = 6\n", ["'tokens_per_udpate'", "did you mean 'tokens_per_update'?"]),
        ("layers = 6\n", ["layers"]),
        ("[model\nlayers = 6\n", ["settings.toml: cannot be read as TOML: "]),
        ("[model]\ndropout = nan\n[training]\nfactor = nan\n", ["[model] dropout: ", "[training] factor: "]),
        ("[model]\nlayers = 0\n[training]\nsteps = 0\nwarmup = -3\n", ["layers", "steps", "warmup", "-3"]),
        ("[model]\nlayer = 1\nhead = 2\n[training]\nstep = 3\nseed = -1\n", ["'layer'", "'head'", "'step'", "seed"]),
    ],
)
def test_all_mistakes_are_named_at_once(tmp_path: Path, toml: str, named: list[str]) -> None:
    """Every unknown or impossible setting is in one message, with its place and the nearest right name."""
    message = complaint(tmp_path, toml)
    assert [word for word in named if word not in message] == []


def test_the_preset_follows_the_number_of_pairs() -> None:
    sizes = (1, 99_999, 100_000, 999_999, 1_000_000)
    assert [preset_for(pairs) for pairs in sizes] == ["tiny", "tiny", "small", "small", "base"]
