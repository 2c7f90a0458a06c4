"""From a saved model to a translator."""

from typing import TYPE_CHECKING

from nmt.errors import UsageError
from nmt.saved_model import SavedModel
from nmt.translation.hypothesis import Engine
from nmt.translation.translator import Translator

if TYPE_CHECKING:
    from nmt.translation.engine import TorchEngine


def load_translator(
    model: SavedModel,
    device: str = "auto",
    precision: str = "auto",
    batch_tokens: int | None = None,
    engine: str = "torch",
) -> Translator:
    """The translator of a saved model, by `torch`, or by `ctranslate2` if `nmt export` has written its files.

    Imports the chosen engine only. Raises UsageError where an option is wrong, a file missing or damaged, or the device not
    available. `batch_tokens` is at least 1, or None for what suits the device.
    """
    if engine not in ("torch", "ctranslate2"):
        raise UsageError(f"--engine {engine}: must be torch or ctranslate2")
    searcher: Engine
    if engine == "torch":
        searcher = load_torch_engine(model, device, precision)
    else:
        from nmt.translation import ctranslate2_engine

        searcher = ctranslate2_engine.load(model, device, precision)
    languages, data = model.description.languages, model.description.data
    return Translator(searcher, model.vocabulary, *languages, batch_tokens, data.form, data.copies_letterless)


def load_torch_engine(model: SavedModel, device: str, precision: str) -> "TorchEngine":
    """The PyTorch engine of a saved model. Raises UsageError like `load_translator`."""
    from nmt.devices import find_device, find_translation_precision
    from nmt.translation.engine import TorchEngine

    torch_device = find_device(device)
    return TorchEngine(model.network().to(torch_device), find_translation_precision(precision, torch_device))
