"""Settings: presets, what overrides what, and errors that name every mistake and the nearest right name."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from nmt.config import PRESETS, ModelConfig, TrainingConfig, find_preset, preset_for, settle
from nmt.errors import UsageError
from tests.conftest import call, refusal


def settled(folder: Path, toml: str, **flags: Any) -> tuple[ModelConfig, TrainingConfig]:
    """The base preset under this TOML text and these flags."""
    path = folder / "settings.toml"
    path.write_text(toml, encoding="utf-8")
    return settle(PRESETS["base"], path, flags)


def complaint(folder: Path, toml: str, **flags: Any) -> str:
    """The one line that such settings are refused with."""
    with pytest.raises(UsageError) as error:
        settled(folder, toml, **flags)
    assert "\n" not in str(error.value)
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
    """A flag wins over the TOML file, the file over the preset, and a flag that was not given over nothing."""
    toml = "[model]\nlayers = 3\ndropout = 0.3\n[training]\nsteps = 50\nseed = 9\n"
    model, training = settled(tmp_path, toml, dropout=0.2, steps=7, seed=None, norm="pre", warmup=None)
    base = PRESETS["base"]
    assert model == base.model.model_copy(update={"layers": 3, "dropout": 0.2, "norm": "pre"})
    assert training == base.training.model_copy(update={"steps": 7, "seed": 9})


def test_a_zero_flag_is_a_given_flag(tmp_path: Path) -> None:
    """`--dropout 0` and `--seed 0` override, though they are false to Python."""
    model, training = settled(tmp_path, "[model]\ndropout = 0.3\n[training]\nseed = 9\n", dropout=0.0, seed=0)
    assert (model.dropout, training.seed) == (0, 0)


def test_without_file_and_flags_the_preset_stands() -> None:
    """Each preset passes its own checks and comes out as it is written."""
    for preset in PRESETS.values():
        assert settle(preset, None, {}) == (preset.model, preset.training)


@pytest.mark.parametrize(
    ("toml", "unknown", "nearest"),
    [
        ("[model]\nlayer = 6\n", "layer", "layers"),
        ("[model]\ndmodel = 6\n", "dmodel", "d_model"),
        ("[training]\ntokens_per_udpate = 6\n", "tokens_per_udpate", "tokens_per_update"),
    ],
)
def test_unknown_setting_names_the_nearest(tmp_path: Path, toml: str, unknown: str, nearest: str) -> None:
    """A misspelt setting is refused with the file, its name, and the name it was probably meant to be."""
    message = complaint(tmp_path, toml)
    assert f"'{unknown}'" in message
    assert f"did you mean '{nearest}'?" in message
    assert "settings.toml" in message


def test_a_setting_in_the_wrong_table_is_unknown(tmp_path: Path) -> None:
    """A model setting under [training] is refused, not silently applied or ignored."""
    assert "[training] has no setting 'layers'; [model] has" in complaint(tmp_path, "[training]\nlayers = 2\n")


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("[modle]\nlayers = 6\n", "[modle]"),
        ("layers = 6\n", "layers"),
        ("model = 3\n", "write [model]"),
        ("[[training]]\nsteps = 3\n", "write [training]"),
        ("[model\nlayers = 6\n", "not TOML"),
        ("[training]\nsteps = " + "9" * 5_000 + "\n", "not TOML"),
        ("a = " + "[" * 50_000, "not TOML"),
        ("[model]\nlayers = 6\nlayers = 7\n", "not TOML"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, toml: str, said: str) -> None:
    """An unknown table, a table that is none and text that is no TOML are refused with the file and the fault."""
    message = complaint(tmp_path, toml)
    assert said in message
    assert "settings.toml" in message


def test_a_byte_order_mark_is_no_setting(tmp_path: Path) -> None:
    """What Windows begins a file with."""
    (tmp_path / "mine.toml").write_bytes(b"\xef\xbb\xbf[training]\nsteps = 3\n")
    assert settle(PRESETS["tiny"], tmp_path / "mine.toml", {})[1].steps == 3


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """A missing file, a directory and a file that is not UTF-8 are the user's errors."""
    (tmp_path / "latin1.toml").write_bytes(b"# caf\xe9\n")
    for name in ("missing.toml", "", "latin1.toml"):
        with pytest.raises(UsageError, match=str(tmp_path / name)):
            settle(PRESETS["base"], tmp_path / name, {})


@pytest.mark.parametrize(
    ("toml", "flags", "named"),
    [
        ("[model]\nlayers = 0\ndropout = 1.5\n", {}, ["layers", "dropout", "1.5"]),
        ("[model]\nlayers = 0\n[training]\nsteps = 0\nwarmup = -3\n", {}, ["layers", "steps", "warmup", "-3"]),
        ("[model]\nheads = 0\n", {"device": "tpu", "seed": -1}, ["heads", "device", "tpu", "seed", "-1"]),
        ("[model]\nlayer = 1\nhead = 2\n[training]\nstep = 3\n", {}, ["'layer'", "'head'", "'step'"]),
        ("[model]\nlayer = 1\n[training]\nsteps = 0\n", {}, ["'layer'", "[training] steps"]),
    ],
)
def test_all_mistakes_are_named_at_once(tmp_path: Path, toml: str, flags: dict[str, Any], named: list[str]) -> None:
    """Every unknown or impossible setting, of both tables and the flags, is in the one message."""
    message = complaint(tmp_path, toml, **flags)
    assert [word for word in named if word not in message] == []


@pytest.mark.parametrize("name", ["dropout", "label_smoothing", "factor", "max_ratio", "adam_epsilon"])
def test_not_a_number_is_refused(tmp_path: Path, name: str) -> None:
    """TOML can spell nan, which no setting may be."""
    table = "model" if name in ModelConfig.model_fields else "training"
    assert f"[{table}] {name}: " in complaint(tmp_path, f"[{table}]\n{name} = nan\n")


def test_width_must_be_shared_by_the_heads(tmp_path: Path) -> None:
    """A d_model that is no multiple of the heads is refused with the two numbers, and with nothing else of the model."""
    message = complaint(tmp_path, "[model]\nd_model = 510\n")
    assert "d_model must be even and a multiple of heads (got 510 and 8)" in message
    assert "2048" not in message


def test_width_must_be_even(tmp_path: Path) -> None:
    """An odd d_model has no sine for its last cosine, so it is refused whatever the heads."""
    assert "d_model" in complaint(tmp_path, "[model]\nd_model = 9\nheads = 3\n")


def test_an_unknown_preset_names_the_nearest_and_all() -> None:
    """`--preset bse` is refused with `base` as the probable one and the list of those there are."""
    with pytest.raises(UsageError, match="did you mean 'base'") as error:
        find_preset("bse")
    assert all(name in str(error.value) for name in PRESETS)


def test_the_preset_follows_the_number_of_pairs() -> None:
    """Other data gets the tiny recipe below 100,000 pairs, the small one below a million, the paper's from there."""
    sizes = (1, 99_999, 100_000, 999_999, 1_000_000)
    assert [preset_for(pairs) for pairs in sizes] == ["tiny", "tiny", "small", "small", "base"]


def test_settings_cannot_be_changed() -> None:
    """A configuration is fixed once made, so what config.json records is what ran."""
    with pytest.raises(ValidationError):
        PRESETS["base"].training.steps = 1  # type: ignore[misc]


def test_the_command_refuses_a_misspelt_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`nmt train --config` exits 2 with one sentence before any data is read or directory made."""
    (tmp_path / "mine.toml").write_text("[training]\nstep = 3\n")
    monkeypatch.chdir(tmp_path)
    message = refusal(call("train", "--config", "mine.toml", "--data", "nowhere", "-m", "model"))
    assert message == "nmt: mine.toml: [training] has no setting 'step'; did you mean 'steps'?\n"
    assert not (tmp_path / "model").exists()
