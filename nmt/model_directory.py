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
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from nmt.config import ModelConfig
from nmt.data.splits import Pair
from nmt.data.vocabulary import Vocabulary
from nmt.errors import UsageError
from nmt.lines import read_lines, replace_text, write_gz

if TYPE_CHECKING:
    from nmt.model.transformer import Transformer

FORMAT = 1
WEIGHTS = "model.safetensors"  # here, and in each checkpoint's folder ...
PROGRESS = "progress.json"  # ... with this beside it
BEFORE = "before"  # held-out text of the model that this one was fine-tuned from


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
        inside = (path / PROGRESS).exists() and path.resolve().parent.name == "checkpoints"
        return cls(path.resolve().parent.parent if inside else path)

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
    def locked(self) -> Iterator[None]:
        """Hold the directory for one run. Raises UsageError while another holds it, or if it cannot be written.

        A directory that was made for a run of which nothing came is removed again.
        """
        made = not self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if self.exists():
                self.read_config()  # raises where it is another program's, of which nothing may be touched
            elif any(self.path.iterdir()) and not (self.path / ".lock").exists():  # only nmt puts a lock there
                raise UsageError(f"{self.path}: holds other files; name a new or empty directory with --model")
            lock = (self.path / ".lock").open("w")
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
                part = path.with_name(path.name + ".part")
                if part.is_dir():
                    shutil.rmtree(part)
                else:
                    part.unlink(missing_ok=True)
            try:
                yield
            finally:
                if made and [entry.name for entry in self.path.iterdir()] == [".lock"]:
                    (self.path / ".lock").unlink()
                    self.path.rmdir()

    def read_config(self) -> dict[str, Any]:
        """config.json. Raises UsageError where it is missing, damaged, or of another format."""
        try:
            config = json.loads(self.config_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UsageError(
                f"{self.path}: no trained model here (config.json is missing); train one with `nmt train`, or name its "
                "directory with --model"
            ) from None
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.config_path}: cannot be read ({error})") from None
        found = config.get("format") if isinstance(config, dict) else None
        if found != FORMAT:
            raise UsageError(
                f"{self.config_path}: format {found}, but this nmt reads format {FORMAT}; use the nmt it came from"
            )
        return dict(config)

    def languages(self) -> tuple[str, str]:
        """The codes of source and target. Raises UsageError where config.json does not tell them."""
        config = self.read_config()
        try:
            return str(config["source"]), str(config["target"])
        except KeyError as missing:
            raise UsageError(f"{self.config_path}: has no {missing}, so it is damaged; restore it") from None

    def data(self) -> dict[str, Any]:
        """What config.json tells of the corpus: its name, and by split its line counts and SHA-256. Raises UsageError."""
        data = self.read_config().get("data")
        kinds = {"name": str, "lines": dict, "sha256": dict}
        if not isinstance(data, dict) or not all(isinstance(data.get(key), kind) for key, kind in kinds.items()):
            raise UsageError(f"{self.config_path}: does not tell of the corpus, so it is damaged; restore it")
        return data

    def write_config(self, config: dict[str, Any]) -> None:
        replace_text(self.config_path, json.dumps({"format": FORMAT} | config, indent=2) + "\n")

    def read_vocabulary(self) -> Vocabulary:
        try:
            return Vocabulary(self.tokenizer_path.read_bytes())
        except UsageError as error:
            raise UsageError(f"{self.tokenizer_path}: {error}") from None
        except OSError as error:
            raise UsageError(f"{self.tokenizer_path}: {error.strerror}; the model directory is incomplete") from None

    def read_model(self, weights: Path) -> "Transformer":
        """The model with the weights of this file: the directory's own, or a checkpoint's."""
        from nmt.model.transformer import Transformer  # here, for an engine without torch reads all the rest
        from nmt.training.checkpoint import load_weights

        try:
            config = ModelConfig.model_validate(self.read_config().get("model"))
        except ValidationError as error:
            raise UsageError(f"{self.config_path}: [model] is damaged: {error.errors()[0]['msg']}") from None
        if not weights.exists():
            raise UsageError(
                f"{weights}: no such file; training has saved nothing yet, or the model directory is incomplete"
            )
        model = Transformer(config, len(self.read_vocabulary()))
        try:
            model.load_state_dict(load_weights(weights))
        except RuntimeError:
            raise UsageError(f"{weights}: does not fit {self.config_path}; the two are of different models") from None
        return model.eval()

    def weights_sha256(self) -> str | None:
        """Of the weights to use; None where there are none, as where only an export was shipped."""
        try:
            with self.weights_path.open("rb") as weights:
                return hashlib.file_digest(weights, "sha256").hexdigest()
        except FileNotFoundError:
            return None

    def write_heldout(self, split: str, languages: tuple[str, str], pairs: Iterable[Pair]) -> None:
        self.heldout.mkdir(exist_ok=True)
        for side, language in enumerate(languages):
            write_gz(self.heldout / f"{split}.{language}.gz", (pair[side] for pair in pairs))

    def read_heldout(self, split: str) -> tuple[list[str], list[str]] | None:
        """Raw source and target lines of `valid`, `test` or BEFORE, or None where there are none."""
        paths = [self.heldout / f"{split}.{language}.gz" for language in self.languages()]
        count = self.data()["lines"].get(split, 0)
        if not count:
            return None
        source, target = (list(read_lines(path)) for path in paths)
        for path, lines in zip(paths, (source, target), strict=True):
            if len(lines) != count:
                raise UsageError(
                    f"{path}: holds {len(lines):,} lines instead of {count:,}; the model directory is damaged"
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
        """The lines of metrics.jsonl, but for those that a full disk or a sudden end has torn."""
        events = []
        if self.metrics_path.exists():
            for line in self.metrics_path.read_text(encoding="utf-8", errors="replace").split("\n"):
                with suppress(ValueError):
                    events.append(json.loads(line))
        return [event for event in events if isinstance(event, dict)]

    def cut_log(self, update: int, validated: Collection[int]) -> None:
        """Drop the events after this update, and validations not among these, which a resumed run will write again."""
        kept = [
            event
            for event in self.events()
            if event["step"] <= update and (event["event"] != "validation" or event["step"] in validated)
        ]
        if self.metrics_path.exists():
            replace_text(self.metrics_path, "".join(json.dumps(event) + "\n" for event in kept))
