"""From a model directory on disk to a translator that is ready."""

from pathlib import Path
from typing import TYPE_CHECKING

from nmt.errors import UsageError
from nmt.model_directory import WEIGHTS, ModelDirectory
from nmt.translation.hypothesis import Engine
from nmt.translation.translator import Translator

if TYPE_CHECKING:
    from nmt.translation.engine import TorchEngine


def load_translator(
    path: Path,
    device: str = "auto",
    precision: str = "auto",
    batch_tokens: int | None = None,
    engine: str = "torch",
) -> Translator:
    """The translator of a model directory, or of a checkpoint folder inside one with that checkpoint's weights.

    `engine` is torch, or ctranslate2 for what `nmt export` has written; only the one asked for is imported. Raises UsageError
    where a file is missing or damaged, or the device is not there.
    """
    if batch_tokens is not None and batch_tokens < 1:
        raise UsageError(f"--batch-tokens {batch_tokens}: must be at least 1")
    directory = ModelDirectory.containing(path)
    told = directory.describe()  # first, for it tells best what is wrong
    vocabulary = directory.read_vocabulary()
    if engine == "torch":
        searching: Engine = load_torch_engine(path, device, precision)
    elif engine == "ctranslate2":
        from nmt.translation import ctranslate2_engine

        searching = ctranslate2_engine.load(path, vocabulary, device, precision)
    else:
        raise UsageError(f"--engine {engine}: must be torch or ctranslate2")
    form, copies = told.data.form, told.data.copies_letterless
    return Translator(searching, vocabulary, *told.languages, batch_tokens, form, copies)


def load_torch_engine(path: Path, device: str, precision: str) -> "TorchEngine":
    """The PyTorch engine of a model directory, or of a checkpoint folder inside one. Raises UsageError as above."""
    from nmt.devices import find_device, find_translation_precision, take_gpu
    from nmt.translation.engine import TorchEngine

    where = take_gpu(find_device(device))
    model = ModelDirectory.containing(path).read_model(path / WEIGHTS).to(where)
    engine = TorchEngine(model, find_translation_precision(precision, where))
    engine.pack()
    return engine


def changed(path: Path) -> list[int]:
    """When the weights of a model directory or checkpoint folder were written: other numbers mean other translations."""
    files = (path / WEIGHTS, path / "ctranslate2" / "model.bin")
    return [file.stat().st_mtime_ns for file in files if file.exists()]
