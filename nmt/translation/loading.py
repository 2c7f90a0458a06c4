"""From a model directory on disk to a translator that is ready."""

from pathlib import Path

from nmt.devices import find_device, find_translation_precision
from nmt.model_directory import ModelDirectory
from nmt.training.checkpoint import WEIGHTS
from nmt.translation.engine import TorchEngine
from nmt.translation.translator import BATCH_TOKENS, Translator


def load_translator(
    path: Path, device: str = "auto", precision: str = "auto", batch_tokens: int | None = None
) -> Translator:
    """The translator of a model directory, or of a checkpoint folder inside one with that checkpoint's weights.

    Raises UsageError where a file is missing or damaged, or the device is not there.
    """
    directory = ModelDirectory.containing(path)
    where = find_device(device)
    model = directory.read_model(path / WEIGHTS).to(where)
    engine = TorchEngine(model, find_translation_precision(precision, where))
    language = directory.read_config()["source"]
    return Translator(engine, directory.read_vocabulary(), language, batch_tokens or BATCH_TOKENS)
