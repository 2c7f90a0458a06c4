"""The model directory: all of a trained model in one folder that can be moved, copied and opened without risk.

config.json         settings, data, versions        checkpoints/   step-NNNNNN/, see training/checkpoint.py
tokenizer.model     the vocabulary                  metrics.jsonl  one line an event of the run
model.safetensors   the weights to use              heldout/       raw valid and test text
ctranslate2/        the same for `nmt translate --engine ctranslate2`, where `nmt export` has written it
report.html         how the run went, for a browser  tensorboard/  the same for TensorBoard, where that is installed
"""

import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt import description
from nmt.data.splits import Pair, fingerprint
from nmt.data.vocabulary import Vocabulary
from nmt.description import Description
from nmt.errors import UsageError
from nmt.lines import parse_json, read_lines, remove, replace_text, sha256_of, write_gz
from nmt.sizes import parameters

if TYPE_CHECKING:
    from nmt.model.transformer import Transformer

FORMAT = 1
WEIGHTS = "model.safetensors"  # here, and in each checkpoint's folder ...
PROGRESS = "progress.json"  # ... with this beside it
BEFORE = "before"  # held-out text of the model that this one was fine-tuned from


def path_of(checkpoints: Path, update: int) -> Path:
    """The folder of the checkpoint after this update."""
    return checkpoints / f"step-{update:06d}"


def saved(checkpoints: Path) -> list[int]:
    """Updates that have a checkpoint, in order."""
    found = (re.fullmatch("step-([0-9]{6,18})", path.name) for path in checkpoints.glob("step-*") if path.is_dir())
    return sorted(int(name[1]) for name in found if name and path_of(checkpoints, int(name[1])).name == name[0])


def check(path: Path) -> None:
    """Raises UsageError where the path is missing, or is no plain file: a pipe might be waited for, a device never end."""
    try:
        if stat.S_ISREG(path.stat().st_mode):
            return
    except FileNotFoundError:
        raise UsageError(
            f"{path}: no such file; training has saved nothing yet, or the model directory is incomplete"
        ) from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; restore it from a copy") from None
    raise UsageError(f"{path}: not a file; restore it from a copy")


def read(path: Path) -> bytes:
    """The content of a plain file. Raises UsageError where it cannot be read."""
    check(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; restore it from a copy") from None


class ModelDirectory:
    """The files of one model. Opening reads nothing; each method says what it needs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.json"
        self.weights_path = path / WEIGHTS
        self.tokenizer_path = path / "tokenizer.model"
        self.checkpoints = path / "checkpoints"
        self.metrics_path = path / "metrics.jsonl"
        self.heldout = path / "heldout"
        self.ctranslate2 = path / "ctranslate2"
        self.report_path = path / "report.html"
        self.tensorboard = path / "tensorboard"

    @classmethod
    def containing(cls, path: Path) -> "ModelDirectory":
        """The model directory that `path` is, or whose checkpoint folder it is."""
        if (path / PROGRESS).exists():
            for place in (path.absolute(), path.resolve()):  # the first where checkpoints is a link to another disk
                if place.parent.name == "checkpoints":
                    return cls(place.parent.parent)
        return cls(path)

    def exists(self) -> bool:
        """Whether a run has begun here: config.json is written last of what a run needs."""
        return self.config_path.exists()

    def files(self) -> tuple[Path, ...]:
        """All that a run writes, config.json last: while it is there, the others are known to be a run's."""
        return (
            self.checkpoints,
            self.heldout,
            self.ctranslate2,
            self.weights_path,
            self.tokenizer_path,
            self.metrics_path,
            self.report_path,
            self.tensorboard,
            self.config_path,
        )

    @contextmanager
    def locked(self, restart: bool = False) -> Iterator[None]:
        """Hold the directory for one run. Raises UsageError while another holds it, or if it cannot be written; and where
        config.json is damaged or gone, unless the run is to `restart`, which discards what is left of it.

        A directory that was made for a run of which nothing came is removed again.
        """
        made = not self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if self.exists():
                config = self._parse_config()  # raises where it is another program's, of which nothing may be touched
                try:
                    self._check(config)
                except UsageError as error:
                    if not restart:
                        raise UsageError(f"{error}, or discard the run with --restart") from None
            elif any(self.path.iterdir()) and not (self.path / ".lock").exists():  # only nmt puts a lock there
                raise UsageError(f"{self.path}: holds other files; name a new or empty directory with --model")
            elif not restart and saved(self.checkpoints):
                raise UsageError(
                    f"{self.path}: a run has left checkpoints here, but its config.json is missing; restore that from a copy, "
                    "or discard the run with --restart"
                )
            lock = os.fdopen(os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "w")
        except OSError as error:
            raise UsageError(f"--model {self.path}: {error.strerror}; name a directory that can be written") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(
                    f"{self.path}: another run is training here; wait for it, or name another --model"
                ) from None
            for path in self.files():  # what a sudden end left half written
                remove(path.with_name(path.name + ".part"))
            try:
                yield
            finally:
                if made and [entry.name for entry in self.path.iterdir()] == [".lock"]:
                    (self.path / ".lock").unlink()
                    self.path.rmdir()

    def read_config(self) -> dict[str, Any]:
        """config.json as it stands. Raises UsageError where it is missing, of another format, or damaged (description.py)."""
        config = self._parse_config()
        self._check(config)
        return config

    def describe(self) -> Description:
        """The same with names and types."""
        return self._check(self._parse_config())

    def _check(self, config: dict[str, Any]) -> Description:
        try:
            return description.parse(config)
        except ValueError as error:
            mend = "restore it from a copy, or use the nmt it came from"
            raise UsageError(f"{self.config_path}: damaged, or of another nmt ({error}); {mend}") from None

    def _parse_config(self) -> dict[str, Any]:
        if not os.path.lexists(self.config_path):
            raise UsageError(
                f"{self.path}: no trained model here (config.json is missing); train one with `nmt train`, or name its "
                "directory with --model"
            )
        try:
            config = parse_json(read(self.config_path))
        except ValueError as error:
            raise UsageError(f"{self.config_path}: not JSON ({error}); restore it from a copy") from None
        found = config.get("format") if isinstance(config, dict) else None
        if type(found) is not int or found != FORMAT:
            raise UsageError(
                f"{self.config_path}: format {found!r:.40}, but this nmt reads format {FORMAT}; use the nmt it came "
                "from"
            )
        return dict(config)

    def write_config(self, config: dict[str, Any]) -> None:
        replace_text(self.config_path, json.dumps({"format": FORMAT} | config, indent=2) + "\n")

    def read_vocabulary(self) -> Vocabulary:
        """The model's vocabulary. Raises UsageError where the file is missing, damaged, or another model's."""
        content = read(self.tokenizer_path)
        if hashlib.sha256(content).hexdigest() != self.describe().vocabulary.sha256:
            raise UsageError(
                f"{self.tokenizer_path}: damaged, or not the vocabulary of this model; restore it from a copy"
            )
        return Vocabulary(content)

    def read_model(self, weights: Path) -> "Transformer":
        """The model with the weights of this file: the directory's own, or a checkpoint's."""
        from nmt.model.transformer import Transformer  # here, for an engine without torch reads all the rest
        from nmt.weights import load_weights

        told, size = self.describe(), len(self.read_vocabulary())
        check(weights)
        tensors = load_weights(weights, told.kind)
        other = f"{weights}: does not fit {self.config_path}; the two are of different models"
        # Counted first: what config.json asks for may be too large to try.
        if sum(tensor.numel() for tensor in tensors.values()) != parameters(told.model, size).total:
            raise UsageError(other)
        model = Transformer(told.model, size)
        try:
            model.load_state_dict(tensors)
        except RuntimeError:
            raise UsageError(other) from None
        return model.eval()

    def weights_sha256(self) -> str | None:
        """Of the weights to use; None where there are none, as where only an export was shipped."""
        try:
            return sha256_of(self.weights_path)
        except FileNotFoundError:
            return None

    def write_heldout(self, split: str, languages: tuple[str, str], pairs: Iterable[Pair]) -> None:
        self.heldout.mkdir(exist_ok=True)
        for side, language in enumerate(languages):
            write_gz(self.heldout / f"{split}.{language}.gz", (pair[side] for pair in pairs))

    def read_heldout(self, split: str) -> tuple[list[str], list[str]] | None:
        """Raw source and target lines of `valid`, `test` or BEFORE, or None where there are none."""
        told = self.describe()
        paths = [self.heldout / f"{split}.{language}.gz" for language in told.languages]
        count = told.data.lines.get(split, 0)
        if not count:
            return None
        for path in paths:
            check(path)
        source, target = (list(islice(read_lines(path), count + 1)) for path in paths)
        for path, lines in zip(paths, (source, target), strict=True):
            if len(lines) != count:
                found = f"{len(lines):,}" if len(lines) < count else "more"
                raise UsageError(f"{path}: holds {found} lines instead of {count:,}; restore it from a copy")
        known = told.data.sha256.get(split)  # not of BEFORE
        if known and fingerprint(zip(source, target, strict=True)) != (count, known):
            raise UsageError(
                f"{paths[0]}: not the text, with {paths[1].name}, of config.json; restore both from a copy"
            )
        return source, target

    def log(self, event: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl, on a new line even where the last one was torn."""
        with self.metrics_path.open("ab+") as file:
            end = file.tell()
            file.seek(max(0, end - 1))
            torn = end > 0 and file.read(1) != b"\n"
            file.write(b"\n" * torn + json.dumps(event).encode() + b"\n")

    def events(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, but for those that a full disk or a sudden end has torn, or that are no events."""
        events = []
        if os.path.lexists(self.metrics_path):
            for line in read(self.metrics_path).decode("utf-8", errors="replace").split("\n"):
                with suppress(ValueError):
                    events.append(parse_json(line))
        return [event for event in events if _is_event(event)]

    def cut_log(self, update: int, validated: Collection[int], over: bool = False) -> None:
        """Drop what a resumed run will write again: events after this update, validations not among these, and what it says
        at its end, unless it is `over`.
        """

        def again(kind: str, step: int) -> bool:
            return step > update or (kind == "validation" and step not in validated) or (kind == "average" and not over)

        kept = [event for event in self.events() if not again(event["event"], event["step"])]
        if self.metrics_path.exists():
            replace_text(self.metrics_path, "".join(json.dumps(event) + "\n" for event in kept))


def _is_event(event: Any) -> bool:
    """Whether it tells what happened and after which update."""
    return (
        isinstance(event, dict)
        and isinstance(event.get("event"), str)
        and type(event.get("step")) is int
        and event["step"] >= 0
    )
