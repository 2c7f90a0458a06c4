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
                    event = json.loads(line)
                    if isinstance(event, dict) and {"event", "step"} <= event.keys():
                        events.append(event)
        return events

    def truncate(self, update: int, validated: Collection[int], finished: bool = False) -> None:
        """Drop what a run resumed after this update will log again: later events, validations of updates other than
        `validated`, and, unless the run is `finished`, its last event.
        """
        kept = [event for event in self.read() if event["step"] <= update]
        kept = [event for event in kept if event["event"] != "validation" or event["step"] in validated]
        kept = [event for event in kept if event["event"] != "average" or finished]
        if self.path.exists():
            replace_text(self.path, "".join(json.dumps(event) + "\n" for event in kept))
