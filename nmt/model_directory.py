"""The layout of a model directory: all of a trained model in one folder that can be moved, copied and opened without risk.

config.json         settings, data, versions         checkpoints/   step-NNNNNN/, see training/checkpoint.py
tokenizer.model     the vocabulary                   metrics.jsonl  one line per event of the run, see event_log.py
model.safetensors   the weights to use               heldout/       raw validation and test text
ctranslate2/        the CTranslate2 export, where `nmt export` wrote one
report.html         how the run went, for a browser  tensorboard/   the same for TensorBoard, where it is installed

This module knows paths and writes; saved_model.py opens and checks what is there.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmt.data.splits import Pair
from nmt.lines import write_gz
from nmt.storage import replace_text

FORMAT = 1
WEIGHTS = "model.safetensors"  # in the directory, and in every checkpoint's folder
PROGRESS = "progress.json"  # in every checkpoint's folder
BEFORE = "before"  # the held-out text of the model that a fine-tuned one started from


def path_of(checkpoints: Path, update: int) -> Path:
    """The folder of the checkpoint after this update."""
    return checkpoints / f"step-{update:06d}"


def update_of(checkpoint: Path) -> int | None:
    """The update of a checkpoint's folder, by its name; None for any other path."""
    found = re.fullmatch("step-([0-9]{6,18})", checkpoint.name)
    return int(found[1]) if found and path_of(checkpoint.parent, int(found[1])) == checkpoint else None


def saved(checkpoints: Path) -> list[int]:
    """The updates that have a checkpoint, in order."""
    updates = (update_of(path) for path in checkpoints.glob("step-*") if path.is_dir())
    return sorted(update for update in updates if update is not None)


class ModelDirectory:
    """The paths of one model directory. Creating this object reads nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.json"
        self.weights_path = path / WEIGHTS
        self.tokenizer_path = path / "tokenizer.model"
        self.checkpoints = path / "checkpoints"
        self.metrics_path = path / "metrics.jsonl"
        self.heldout = path / "heldout"
        self.ctranslate2 = path / "ctranslate2"
        self.report_path = path / "report.html"
        self.tensorboard = path / "tensorboard"
        self.lock_path = path / ".lock"

    def exists(self) -> bool:
        """Whether a run has started here: of what a run needs, config.json is written last."""
        return self.config_path.exists()

    def files(self) -> tuple[Path, ...]:
        """Everything a run writes, config.json last: while it is there, the others are known to belong to a run."""
        folders = (self.checkpoints, self.heldout, self.ctranslate2, self.tensorboard)
        return (*folders, self.weights_path, self.tokenizer_path, self.metrics_path, self.report_path, self.config_path)

    def heldout_paths(self, split: str, languages: tuple[str, str]) -> list[Path]:
        """The files of a held-out text: source, then target."""
        return [self.heldout / f"{split}.{language}.gz" for language in languages]

    def write_heldout(self, split: str, languages: tuple[str, str], pairs: Sequence[Pair]) -> None:
        """Write the raw lines of `valid`, `test` or BEFORE."""
        self.heldout.mkdir(exist_ok=True)
        for side, path in enumerate(self.heldout_paths(split, languages)):
            write_gz(path, (pair[side] for pair in pairs))

    def write_config(self, config: dict[str, Any]) -> None:
        """Write config.json, with the number of its format first."""
        replace_text(self.config_path, json.dumps({"format": FORMAT} | config, indent=2) + "\n")
