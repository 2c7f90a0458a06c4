"""The log of a run as TensorBoard reads it, where the extra `tensorboard` is installed."""

import math
from pathlib import Path
from typing import Any

# What is drawn: the name in TensorBoard, the kind of event, and the number's place in it.
SCALARS = (
    ("loss/training", "training", ("loss",)),
    ("loss/validation", "validation", ("valid_loss",)),
    ("validation/bleu", "validation", ("bleu",)),
    ("validation/perplexity", "validation", ("perplexity",)),
    ("before/bleu", "validation", ("before", "bleu")),
    ("before/perplexity", "validation", ("before", "perplexity")),
    ("training/epoch", "training", ("epoch",)),
    ("training/learning_rate", "training", ("lr",)),
    ("training/tokens_per_second", "training", ("tokens_per_second",)),
    ("training/tokens_per_update", "training", ("tokens_per_update",)),
    ("training/padding", "training", ("padding",)),
)


class TensorBoard:
    """Event files in a folder. Not `active`, and silent, where the package is not installed."""

    def __init__(self, folder: Path, update: int) -> None:
        """To go on after this update: what an interrupted run has logged of later ones is hidden. Raises OSError."""
        self.active = False
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        self._writer = SummaryWriter(str(folder), purge_step=update + 1)
        self.active = True

    def add(self, event: dict[str, Any]) -> None:
        """Write the numbers of an event of metrics.jsonl. Raises OSError where that fails, and then does nothing more."""
        if not self.active:
            return
        try:
            for name, kind, keys in SCALARS:
                value: Any = event if event["event"] == kind else None
                for key in keys:
                    value = value.get(key) if isinstance(value, dict) else None
                if isinstance(value, int | float) and math.isfinite(value):
                    self._writer.add_scalar(name, value, event["step"])
            self._writer.flush()  # waits for the writer's thread, so that its failure is known here
        except OSError:
            self.active = False
            raise
