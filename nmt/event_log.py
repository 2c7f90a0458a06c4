"""metrics.jsonl: one line per event of a run. What it holds follows from the run alone, so a resumed run rewrites its end."""

import json
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from nmt.storage import replace_text

Event = dict[str, Any]  # at least "event", its kind, and "step", the update it happened after


class EventLog:
    """The log of one run. Its file need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: Event) -> None:
        """Add an event, on a line of its own even where a full disk or a sudden end tore the last one. Raises OSError."""
        with self.path.open("ab+") as file:
            if file.tell():
                file.seek(-1, 2)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(json.dumps(event).encode() + b"\n")

    def read(self) -> list[Event]:
        """All events in order; torn lines, and lines that are no events, are left out."""
        events = []
        if self.path.exists():
            for line in self.path.read_bytes().split(b"\n"):
                with suppress(ValueError):
                    events.append(json.loads(line))
        return [event for event in events if _is_event(event)]

    def truncate(self, update: int, validated: Collection[int], finished: bool = False) -> None:
        """Drop what a run resumed after this update will log again: later events, validations of updates other than
        `validated`, and, unless the run is `finished`, its last event.
        """

        def repeats(kind: str, step: int) -> bool:
            return step > update or (kind == "validation" and step not in validated) or (kind == "average" and not finished)

        if self.path.exists():
            kept = [event for event in self.read() if not repeats(event["event"], event["step"])]
            replace_text(self.path, "".join(json.dumps(event) + "\n" for event in kept))


def _is_event(event: Any) -> bool:
    return isinstance(event, dict) and isinstance(event.get("event"), str) and type(event.get("step")) is int
