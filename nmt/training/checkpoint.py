"""Checkpoints: what a run needs to go on as if it had never stopped, written so that none is ever half there.

A checkpoint is a folder, checkpoints/step-000300, with the weights (model.safetensors, the shared matrix once), Adam's moments
(optimizer.pt) and how far the run had come (progress.json). It is written beside and renamed. Nothing in it is pickled but
tensors, numbers, strings, lists and dicts, and it is read with `weights_only=True`.
"""

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from safetensors.torch import save as serialize
from torch import Tensor

from nmt.errors import UsageError
from nmt.lines import replace_bytes, replace_text
from nmt.model_directory import PROGRESS, WEIGHTS

OPTIMIZER = "optimizer.pt"
DAMAGED = ".damaged"


@dataclass
class Progress:
    """How far a run has come. Order, dropout and learning rate follow from these numbers and the seed alone."""

    update: int = 0  # updates done
    epoch: int = 0
    position: int = 0  # updates of this epoch done
    validations: list[tuple[int, float | None]] = field(
        default_factory=list
    )  # (update, BLEU) of each validated checkpoint
    minutes: float = field(default=0.0, compare=False)  # from the run's first beginning, stops not counted
    micro_batch_tokens: int = 0  # padded tokens a side that go through the model at once ...
    fitted_to: str = ""  # ... which was settled for these devices
    last_loss: float | None = None  # of the last line of the log
    # Since that line:
    loss: float = 0.0  # summed over target tokens
    updates: int = 0
    seconds: float = field(default=0.0, compare=False)  # in updates alone
    target_tokens: int = 0
    tokens: int = 0  # of both sides ...
    cells: int = 0  # ... and with padding

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


def path_of(folder: Path, update: int) -> Path:
    return folder / f"step-{update:06d}"


def saved(folder: Path) -> list[int]:
    """Updates that have a checkpoint here, in order."""
    names = (path.name.removeprefix("step-") for path in folder.glob("step-*") if path.is_dir())
    return sorted(int(name) for name in names if name.isdigit())


def save(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> Path:
    """Write the checkpoint of this update, replacing one of the same number."""
    final = path_of(folder, progress.update)
    part = final.with_name(final.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        save_weights(part / WEIGHTS, model.state_dict())
        with (part / OPTIMIZER).open("wb") as file:
            torch.save(optimizer.state_dict(), file)
            file.flush()
            os.fsync(file.fileno())
        record(part, progress)
    except Exception as error:  # a full disk, most likely, which needs the space
        shutil.rmtree(part, ignore_errors=True)
        raise (error.__context__ if isinstance(error.__context__, OSError) else error) from None  # torch.save wraps it
    shutil.rmtree(final, ignore_errors=True)
    part.rename(final)
    return final


def record(path: Path, progress: Progress) -> None:
    """Write the progress of a checkpoint anew, as when its validation is done."""
    replace_text(path / PROGRESS, json.dumps(asdict(progress), indent=1) + "\n")


def resume(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Progress | None, list[str]]:
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
            progress = restore(path, model, optimizer)
        except UsageError as error:
            torn.append(str(error))
            continue
        for later in [later for later in saved(folder) if later > update]:
            aside = path_of(folder, later).with_suffix(DAMAGED)
            shutil.rmtree(aside, ignore_errors=True)
            path_of(folder, later).rename(aside)
        return progress, torn
    if torn:
        raise UsageError(f"no checkpoint here is whole: {'; '.join(torn)}; begin anew with --restart")
    return None, []


def restore(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Load a checkpoint into model and optimiser. Raises UsageError if it is damaged."""
    weights = load_weights(path / WEIGHTS)
    try:
        moments = torch.load(path / OPTIMIZER, map_location="cpu", weights_only=True)
        progress = Progress(**json.loads((path / PROGRESS).read_text(encoding="utf-8")))
        progress.validations = [(update, bleu) for update, bleu in progress.validations]
        model.load_state_dict(weights)
        optimizer.load_state_dict(moments)
        return progress
    except Exception as error:  # torch.load raises half a dozen types for a torn file, some with pages of advice
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UsageError(f"{path}: not a training state of this version, or damaged ({reason})") from None


def save_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """Write weights beside and rename."""  # not by safetensors' own save_file, whose files only their owner can read
    replace_bytes(path, serialize({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}))


def load_weights(path: Path) -> dict[str, Tensor]:
    """The named tensors of a weights file. Raises UsageError if it is missing or damaged."""
    try:
        return dict(load_file(path))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise UsageError(f"{path}: not a weights file, or damaged ({error})") from None


def has_weights(path: Path) -> bool:
    """Whether the checkpoint is there and its weights are whole, so far as the file's header and length tell."""
    try:
        with safe_open(path / WEIGHTS, "pt"):
            return True
    except (SafetensorError, OSError):
        return False


def average(paths: list[Path]) -> dict[str, Tensor]:
    """The mean of the checkpoints' weights (paper, section 6.1), summed in fp64."""
    total: dict[str, Tensor] = {}
    for path in paths:
        for name, tensor in load_weights(path / WEIGHTS).items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(paths)).float() for name, tensor in total.items()}


def averaged(progress: Progress, count: int, ending: int | None = None) -> list[int]:
    """The updates of the last `count` validated checkpoints, up to `ending` where it is given."""
    updates = [update for update, _ in progress.validations if ending is None or update <= ending]
    return updates[-count:]


def tidy(folder: Path, progress: Progress, count: int) -> None:
    """Delete what no resume and no average needs: the newest two and the best keep all, averaged ones their weights."""
    for left in (*folder.glob("step-*.part"), *folder.glob(f"step-*{DAMAGED}")):
        shutil.rmtree(left, ignore_errors=True)
    best = progress.best
    complete = {*saved(folder)[-2:], *([] if best is None else [best])}
    weights = {*averaged(progress, count), *([] if best is None else averaged(progress, count, best))}
    for update in saved(folder):
        if update in complete:
            continue
        if update in weights:
            (path_of(folder, update) / OPTIMIZER).unlink(missing_ok=True)
        else:
            shutil.rmtree(path_of(folder, update))


def size(model: torch.nn.Module, count: int) -> int:
    """Bytes that a run's checkpoints take on disk at the most, one being written included."""
    weights = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    complete = 4  # the newest two, the best, and the one being written
    averages = 2 * count  # ending at the newest and at the best
    return weights * (3 * complete + averages + 2)  # and the weights to use, with those that will replace them
