"""nmt: the encoder-decoder Transformer of 2017 as a tool: train it, translate with it, score it."""

import os
from typing import TYPE_CHECKING

from nmt.cores import SPINS

if TYPE_CHECKING:
    from nmt.translation.translator import Translator

__version__ = "0.1.0"

os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # here, for whoever imports a part of nmt has not loaded OpenMP yet


def load(model: str = "model", device: str = "auto", engine: str = "torch") -> "Translator":
    """The translator of a model directory or checkpoint folder: `nmt.load("model").translate(["Hello."], beam=4)`.

    `engine` is torch, or ctranslate2 for what `nmt export` has written. Raises UsageError where the folder is no model, or is
    incomplete.
    """
    from pathlib import Path

    from nmt.translation.loading import load_translator  # here, so that `import nmt` does not import torch

    return load_translator(Path(model), device, engine=engine)
