"""The log of a run in TensorBoard's format, if the extra `tensorboard` is installed."""

from contextlib import suppress
from pathlib import Path
from typing import Any


class TensorBoard:
    """Writes event files into a folder; nothing where the package is not installed."""

    def __init__(self, folder: Path, update: int) -> None:
        """Continue after this update: TensorBoard hides what an interrupted run logged for later ones. Raises OSError."""
        self._writer: Any = None
        with suppress(ImportError):
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder), purge_step=update + 1)

    def add(self, event: dict[str, Any]) -> None:
        """Write the numbers of an event of metrics.jsonl, as `training/loss` and so on. Raises OSError, then at every call."""
        if not self._writer:
            return
        numbers = event | {f"before_{key}": value for key, value in event.get("before", {}).items()}
        for key, value in numbers.items():
            if key != "step" and isinstance(value, int | float):
                self._writer.add_scalar(f"{event['event']}/{key}", value, event["step"])
        self._writer.flush()  # waits for the writer's thread, whose failure is raised here
