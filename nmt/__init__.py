"""nmt: the encoder-decoder Transformer of 2017 as a tool: train it, translate with it, score it."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cores import SENTENCES, spin
from nmt.errors import check_kind

if TYPE_CHECKING:
    from nmt.translation.translator import Translator

__version__ = "0.1.0"

spin(SENTENCES)  # in Python; the commands choose for themselves


def load(model: str | PathLike[str] = "model", device: str = "auto", engine: str = "torch") -> "Translator":
    """The translator of a model directory or checkpoint folder: `nmt.load("model").translate(["Hello."], beam=4)`.

    `engine` is torch, or ctranslate2 for what `nmt export` has written. What it returns serves the process that called it,
    and no fork of that. Raises UsageError where the folder is no model, or is incomplete, and TypeError for an argument of
    another kind.
    """
    from nmt.saved_model import SavedModel  # here, so that `import nmt` does not import torch
    from nmt.translation.translator import load_translator

    check_kind("model", model, (str, PathLike), "a path")
    check_kind("device", device, str, "a str")
    check_kind("engine", engine, str, "a str")
    return load_translator(SavedModel.open(Path(model).expanduser()), device, engine=engine)
