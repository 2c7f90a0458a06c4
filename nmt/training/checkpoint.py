"""Checkpoints: what a run needs to go on as if it had never stopped, written so that none is ever half there.

A checkpoint is a folder, checkpoints/step-000300, with the weights (model.safetensors, the shared matrix once), Adam's moments
(optimizer.pt) and how far the run had come (progress.json). It is written beside and renamed. Nothing in it is pickled but
tensors, numbers, strings, lists and dicts, and it is read with `weights_only=True`. A digest covers all of it: the weights have
their own, and progress.json has one of the moments and one of itself.
"""

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict, TypeAdapter
from torch import Tensor

from nmt.description import Count
from nmt.errors import UsageError
from nmt.lines import parse_json, remove, replace_text, replaced_folder, sha256_of
from nmt.model_directory import PROGRESS, WEIGHTS, path_of, saved
from nmt.weights import load_weights, save_weights

OPTIMIZER = "optimizer.pt"
DAMAGED = ".damaged"
DIGEST = "sha256"  # in progress.json: of all else in it


@dataclass
class Progress:
    """How far a run has come. Order, dropout and learning rate follow from these numbers and the seed alone."""

    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")

    update: Count = 0  # updates done
    epoch: Count = 0
    position: Count = 0  # updates of this epoch done
    # (update, BLEU) of each validated checkpoint
    validations: list[tuple[Count, float | None]] = field(default_factory=list)
    minutes: float = field(default=0.0, compare=False)  # from the run's first beginning, stops not counted
    micro_batch_tokens: Count = 0  # padded tokens a side that go through the model at once ...
    fitted_to: str = ""  # ... which was settled for these devices
    last_loss: float | None = None  # of the last line of the log
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
        """The update whose checkpoint scored the highest BLEU, the first of equals."""
        scored = [(bleu, -update) for update, bleu in self.validations if bleu is not None]
        return -max(scored)[1] if scored else None

    def stale(self, patience: int | None) -> bool:
        """Whether so many validations, since the best, have brought nothing better. Never without patience."""
        best = self.best
        later = [bleu for update, bleu in self.validations if bleu is not None and best is not None and update > best]
        return patience is not None and len(later) >= patience


def save(
    folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, progress: Progress, made_for: str = ""
) -> Path:
    """Write the checkpoint of this update, replacing one of the same number. `made_for`: Description.kind."""
    final = path_of(folder, progress.update)
    with replaced_folder(final) as part:
        try:
            save_weights(part / WEIGHTS, model.state_dict(), made_for)
            with (part / OPTIMIZER).open("wb") as file:
                torch.save(optimizer.state_dict(), file)
            progress.moments = sha256_of(part / OPTIMIZER)
            record(part, progress)
        except Exception as error:  # torch.save wraps what the disk said
            raise (error.__context__ if isinstance(error.__context__, OSError) else error) from None
    return final


def record(path: Path, progress: Progress) -> None:
    """Write the progress of a checkpoint anew, as when its validation is done."""
    told = asdict(progress)
    replace_text(path / PROGRESS, json.dumps(told | {DIGEST: _digest(told)}, indent=1) + "\n")


def _read(path: Path) -> Progress:
    """The progress of a checkpoint. Raises OSError, and ValueError where it is not what was written."""
    told = parse_json((path / PROGRESS).read_bytes())
    digest = told.pop(DIGEST, None)  # an earlier nmt wrote none
    if digest is not None and digest != _digest(told):
        raise ValueError(f"{PROGRESS} is not what was written")
    return TypeAdapter(Progress).validate_json(json.dumps(told))


def _digest(told: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def resume(
    folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, made_for: str = ""
) -> tuple[Progress | None, list[str]]:
    """Load the newest checkpoint that is whole into model and optimiser; None where there is no checkpoint at all.

    A damaged one, as a failing disk leaves it, is renamed to *.damaged and told of in the list, and the one before it is taken.
    Raises UsageError where all are damaged.
    """
    torn: list[str] = []
    for update in reversed(saved(folder)):
        path = path_of(folder, update)
        if not (path / OPTIMIZER).exists() and update not in saved(folder)[-1:]:
            continue  # kept for averaging, with its weights alone
        try:
            progress = restore(path, model, optimizer, made_for)
        except UsageError as error:
            torn.append(str(error))
            continue
        for later in [later for later in saved(folder) if later > update]:
            aside = path_of(folder, later).with_suffix(DAMAGED)
            remove(aside)
            path_of(folder, later).rename(aside)
        return progress, torn
    if torn:
        raise UsageError(f"no checkpoint here is whole: {'; '.join(torn)}; begin anew with --restart")
    return None, []


def restore(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, made_for: str = "") -> Progress:
    """Load a checkpoint into model and optimiser. Raises UsageError if it is damaged, or another's than its name says."""
    weights = load_weights(path / WEIGHTS, made_for)
    try:
        progress = _read(path)
        if path_of(path.parent, progress.update) != path:
            raise ValueError(f"{PROGRESS} is of update {progress.update:,}")
        if progress.moments and progress.moments != sha256_of(path / OPTIMIZER):
            raise ValueError(f"{OPTIMIZER} is not what was written")
        moments = torch.load(path / OPTIMIZER, map_location="cpu", weights_only=True)
        # Not its settings, which are the recipe's; and sizes are checked here, for PyTorch does not.
        moments = {
            "state": _checked(moments["state"], optimizer),
            "param_groups": optimizer.state_dict()["param_groups"],
        }
        model.load_state_dict(weights)
        optimizer.load_state_dict(moments)
        return progress
    except Exception as error:  # torch.load raises half a dozen types for a torn file, some with pages of advice
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UsageError(f"{path}: not a training state of this version, or damaged ({reason})") from None


def _checked(state: dict[int, dict[str, Tensor]], optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Tensor]]:
    """Adam's moments, if they are there for each parameter in its size. Raises ValueError."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    sizes = {number: (torch.Size(), one.shape, one.shape) for number, one in enumerate(parameters)}
    names = ("step", "exp_avg", "exp_avg_sq")
    if {number: tuple(one[name].shape for name in names) for number, one in state.items()} != sizes:
        raise ValueError("the moments are of another model")
    if any(one[name].dtype != torch.float32 or len(one) != len(names) for one in state.values() for name in names):
        raise ValueError("the moments are not Adam's, or not in fp32")
    if not all(bool(one[name].isfinite().all()) for one in state.values() for name in names):
        raise ValueError("the moments are no numbers")
    return state


def average(paths: Iterable[Path], made_for: str = "") -> tuple[dict[str, Tensor], int]:
    """The mean of these checkpoints' weights (paper, section 6.1), summed in fp64, and of how many it is: up to the first that
    is gone, damaged, or another model's.
    """
    total: dict[str, Tensor] = {}
    count = 0
    for path in paths:
        try:
            weights = load_weights(path / WEIGHTS, made_for)
        except UsageError:
            break
        count += 1
        for name, tensor in weights.items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / count).float() for name, tensor in total.items()}, count


def averaged(progress: Progress, count: int, ending: int | None = None) -> list[int]:
    """The updates of the last `count` validated checkpoints, up to `ending` where it is given, in the later half of a run.

    Of a run that is stopped young, those before are of a much worse model, and their mean with the newest is worse than that.
    """
    updates = [update for update, _ in progress.validations if ending is None or update <= ending]
    return [update for update in updates[-count:] if 2 * update > updates[-1]]


def tidy(folder: Path, progress: Progress, count: int) -> None:
    """Delete what no resume and no average needs: the newest two and the best keep all, averaged ones their weights."""
    for left in (*folder.glob("step-*.part"), *folder.glob(f"step-*{DAMAGED}")):
        with suppress(OSError):
            remove(left)
    best = progress.best
    complete = {*saved(folder)[-2:], *([] if best is None else [best])}
    weights = {*averaged(progress, count), *([] if best is None else averaged(progress, count, best))}
    for update in saved(folder):
        if update in complete:
            continue
        if update in weights:
            (path_of(folder, update) / OPTIMIZER).unlink(missing_ok=True)
        else:
            remove(path_of(folder, update))


def size(model: torch.nn.Module, count: int) -> int:
    """Bytes that a run's checkpoints take on disk at the most, one being written included."""
    weights = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    complete = 4  # the newest two, the best, and the one being written
    averages = 2 * count  # ending at the newest and at the best
    return weights * (3 * complete + averages + 2)  # and the weights to use, with those that will replace them
