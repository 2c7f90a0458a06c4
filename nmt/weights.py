"""A weights file: the named tensors of a model in safetensors, with what they are made for and a digest of them."""

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor

from nmt.errors import UsageError
from nmt.lines import parse_json, replace_bytes

MADE_FOR, CONTENT = "made for", "content"  # in the file's metadata: a model's kind, and the digest


def save_weights(path: Path, weights: dict[str, Tensor], made_for: str = "") -> None:
    """Write weights beside and rename, with what they are made for and a digest of them."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    told = {MADE_FOR: made_for, CONTENT: _digest(tensors)}
    # One entry, for of several the order would be left to chance; and not by safetensors' own save_file, whose files only
    # their owner can read.
    replace_bytes(path, serialize(tensors, {"nmt": json.dumps(told)}))


def load_weights(path: Path, made_for: str = "") -> dict[str, Tensor]:
    """The named tensors of a weights file. Raises UsageError if it is missing or damaged, or made for another kind of model,
    where the kind is given.
    """
    try:
        # All from one opening: while the model trains, the next one may find another file.
        with safe_open(path, "pt") as file:
            told = parse_json((file.metadata() or {}).get("nmt", "{}"))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if not all(tensor.dtype == torch.float32 and bool(tensor.isfinite().all()) for tensor in weights.values()):
            raise ValueError("it holds what is no fp32 number")
        written, kind = told.get(CONTENT), told.get(MADE_FOR)
        if written and written != _digest(weights):
            raise ValueError("it is not what was written")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: not a weights file, or damaged ({error}); restore it from a copy") from None
    if made_for and kind and kind != made_for:
        raise UsageError(
            f"{path}: made for a model of other languages, vocabulary or architecture; restore the model's own"
        )
    return weights


def _digest(weights: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
