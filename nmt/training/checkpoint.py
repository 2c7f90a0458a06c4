"""Checkpoints: what a run needs to continue as if it had never stopped. No checkpoint is ever half written.

A checkpoint is a folder, checkpoints/step-000300, with the weights (model.safetensors, the shared matrix once), Adam's moments
(optimizer.pt) and the progress of the run (progress.json). It is written beside and renamed, and read with `weights_only=True`:
no code in it can run. Digests cover all of it: the weights file has its own, progress.json holds that of the moments and of
itself.
"""

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict, TypeAdapter
from torch import Tensor

from nmt.config import TrainingConfig
from nmt.description import Count
from nmt.errors import UsageError, first_line
from nmt.model_directory import PROGRESS, WEIGHTS, path_of, saved
from nmt.storage import remove, replace_text, replaced_folder, sha256_of
from nmt.weights import load_weights, save_weights

OPTIMIZER = "optimizer.pt"
DAMAGED = ".damaged"
DIGEST = "sha256"  # the key of progress.json that holds the digest of all others


@dataclass
class Progress:
    """How far a run has come. The order of the pairs, dropout and the rate follow from these numbers and the seed alone."""

    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")

    update: Count = 0  # updates done
    epoch: Count = 0
    position: Count = 0  # updates of this epoch done
    # (update, BLEU) of each validated checkpoint
    validations: list[tuple[Count, float | None]] = field(default_factory=list)
    minutes: float = field(default=0.0, compare=False)  # since the run's first start, without pauses
    micro_batch_tokens: Count = 0  # padded tokens per side that go through the model at once ...
    fitted_to: str = ""  # ... chosen for these devices
    last_loss: float | None = None  # in the last line of the log
    # Since that line:
    loss: float = 0.0  # summed over target tokens
    updates: Count = 0
    seconds: float = field(default=0.0, compare=False)  # in updates alone
    target_tokens: Count = 0
    tokens: Count = 0  # of both sides ...
    cells: Count = 0  # ... and with padding
    moments: str = field(default="", compare=False)  # the SHA-256 of the checkpoint's optimizer.pt

    @property
    def best(self) -> int | None:
        """The update whose checkpoint has the highest BLEU, the first of equals."""
        scored = [(bleu, -update) for update, bleu in self.validations if bleu is not None]
        return -max(scored)[1] if scored else None

    def stale(self, patience: int | None) -> bool:
        """Whether `patience` validations since the best were no better. Never without patience."""
        best = self.best
        later = [bleu for update, bleu in self.validations if bleu is not None and best is not None and update > best]
        return patience is not None and len(later) >= patience


def save(
    folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, progress: Progress, made_for: str = ""
) -> Path:
    """Write the checkpoint of this update, replacing one of the same update. `made_for` is Description.kind. Raises OSError."""
    final = path_of(folder, progress.update)
    with replaced_folder(final) as part:
        save_weights(part / WEIGHTS, model.state_dict(), made_for)
        try:
            with (part / OPTIMIZER).open("wb") as file:
                torch.save(optimizer.state_dict(), file)
        except RuntimeError as error:  # PyTorch's, in place of the disk's
            raise error.__context__ or error from None
        progress.moments = sha256_of(part / OPTIMIZER)
        record(part, progress)
    return final


def record(path: Path, progress: Progress) -> None:
    """Rewrite the progress of a checkpoint, as after its validation."""
    values = asdict(progress)
    replace_text(path / PROGRESS, json.dumps(values | {DIGEST: _digest(values)}, indent=1) + "\n")


def _read(path: Path) -> Progress:
    """The progress of a checkpoint. Raises OSError, or ValueError where it is not what was written."""
    values = json.loads((path / PROGRESS).read_bytes())
    digest = values.pop(DIGEST, None)  # the first versions wrote none
    if digest is not None and digest != _digest(values):
        raise ValueError(f"{PROGRESS} is not what was written")
    return TypeAdapter(Progress).validate_json(json.dumps(values))


def _digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def resume(
    folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, made_for: str = ""
) -> tuple[Progress | None, list[str]]:
    """Load the newest whole checkpoint into model and optimiser. Returns its progress, None where there is no checkpoint.

    A damaged one, as a failing disk leaves it, is renamed to *.damaged and listed, and the one before it is taken. Raises
    UsageError where all are damaged.
    """
    damaged: list[str] = []
    updates = saved(folder)
    for update in reversed(updates):
        path = path_of(folder, update)
        if not (path / OPTIMIZER).exists() and update != updates[-1]:
            continue  # kept for averaging, with its weights alone
        try:
            progress = restore(path, model, optimizer, made_for)
        except UsageError as error:
            damaged.append(str(error))
            continue
        for later in (path_of(folder, later) for later in updates if later > update):
            remove(later.with_suffix(DAMAGED))
            later.rename(later.with_suffix(DAMAGED))
        return progress, damaged
    if damaged:
        raise UsageError(f"no checkpoint here is whole: {'; '.join(damaged)}; start over with --restart")
    return None, []


def restore(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, made_for: str = "") -> Progress:
    """Load a checkpoint into model and optimiser. Raises UsageError if it is damaged, or not the one its name says."""
    weights = load_weights(path / WEIGHTS, made_for)
    try:
        progress = _read(path)
        if path_of(path.parent, progress.update) != path:
            raise ValueError(f"{PROGRESS} belongs to update {progress.update:,}")
        if progress.moments and progress.moments != sha256_of(path / OPTIMIZER):
            raise ValueError(f"{OPTIMIZER} is not what was written")
        moments = torch.load(path / OPTIMIZER, map_location="cpu", weights_only=True)["state"]
        own = optimizer.state_dict()  # with its settings, which stay the recipe's
        if _sizes(moments) != _sizes(own["state"]):  # which PyTorch does not check
            raise ValueError("the moments belong to another model")
        model.load_state_dict(weights)
        optimizer.load_state_dict(own | {"state": moments})
        return progress
    except Exception as error:  # torch.load raises half a dozen types for a torn file
        raise UsageError(f"{path}: not a training state of this version, or damaged ({first_line(error)})") from None


def _sizes(moments: dict[int, dict[str, Tensor]]) -> dict[int, dict[str, torch.Size]]:
    return {number: {name: tensor.shape for name, tensor in one.items()} for number, one in moments.items()}


def average(folder: Path, updates: list[int], made_for: str = "") -> tuple[list[int], dict[str, Tensor]]:
    """The mean of these checkpoints' weights (paper, section 6.1), summed in fp64 from the newest, and the updates in it.

    It begins after the last that is gone, damaged, or another model's.
    """
    total: dict[str, Tensor] = {}
    found: list[int] = []
    for update in reversed(updates):
        try:
            weights = load_weights(path_of(folder, update) / WEIGHTS, made_for)
        except UsageError:
            break
        found.insert(0, update)
        for name, tensor in weights.items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return found, {name: (tensor / len(found)).float() for name, tensor in total.items()}


def to_average(progress: Progress, config: TrainingConfig) -> list[int]:
    """The updates whose checkpoints make up the weights to use: the last validated, or after early stopping up to the best."""
    return averaged(progress, config.average, progress.best if progress.stale(config.patience) else None)


def averaged(progress: Progress, count: int, ending: int | None = None) -> list[int]:
    """The last `count` validated updates, up to `ending` where given, of the later half of the run.

    In a run stopped young, earlier checkpoints are much worse, and an average with them is worse than the newest alone.
    """
    updates = [update for update, _ in progress.validations if ending is None or update <= ending]
    return [update for update in updates[-count:] if 2 * update > updates[-1]]


def tidy(folder: Path, progress: Progress, count: int) -> None:
    """Delete what neither a resume nor an average needs.

    The newest two checkpoints and the best one stay whole; of those that the average may need, the weights stay.
    """
    for left in (*folder.glob("step-*.part"), *folder.glob(f"step-*{DAMAGED}")):
        with suppress(OSError):
            remove(left)
    complete = {*saved(folder)[-2:], progress.best}
    weights = {*averaged(progress, count), *averaged(progress, count, progress.best)}
    for update in saved(folder):
        path = path_of(folder, update)
        if update in weights - complete:
            (path / OPTIMIZER).unlink(missing_ok=True)
        elif update not in complete:
            remove(path)


def size(model: torch.nn.Module, count: int) -> int:
    """Bytes that a run's checkpoints take on disk at most, including the one being written."""
    weights = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    complete = 4  # the newest two, the best, and the one being written
    averages = 2 * count  # ending at the newest and at the best
    return weights * (3 * complete + averages + 2)  # the weights to use, twice while they are replaced
