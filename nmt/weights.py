"""A weights file: a model's named tensors in safetensors, with a digest of them and the kind of model they belong to."""

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor

from nmt.errors import UsageError
from nmt.storage import replace_bytes

KIND, DIGEST = "made for", "content"  # keys of the file's metadata


def save_weights(path: Path, weights: dict[str, Tensor], kind: str = "") -> None:
    """Write the weights, to a temporary file that is then renamed. `kind` is `Description.kind` of their model."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    label = {KIND: kind, DIGEST: _digest(tensors)}
    # A single entry, because safetensors writes several in random order. Its save_file makes files only their owner can read.
    replace_bytes(path, serialize(tensors, {"nmt": json.dumps(label)}))


def load_weights(path: Path, kind: str = "") -> dict[str, Tensor]:
    """The named tensors of a weights file, all in fp32.

    Raises UsageError if the file is missing or damaged, or belongs to another kind of model than a given `kind`.
    """
    try:
        with safe_open(path, "pt") as file:  # opened once: training may replace the file at any time
            label = json.loads((file.metadata() or {}).get("nmt", "{}"))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if not all(tensor.dtype == torch.float32 and bool(tensor.isfinite().all()) for tensor in weights.values()):
            raise ValueError("not all of it is finite fp32 numbers")
        if label.get(DIGEST, "") not in ("", _digest(weights)):
            raise ValueError("it is not what was written")
    except (SafetensorError, OSError, ValueError, AttributeError) as error:
        raise UsageError(f"{path}: missing, damaged or not a weights file ({error}); restore it from a copy") from None
    if kind and label.get(KIND, "") not in ("", kind):
        raise UsageError(f"{path}: made for a model of other languages, vocabulary or architecture; restore the model's own")
    return weights


def _digest(weights: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
