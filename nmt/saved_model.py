"""A trained model on disk, opened once per command and checked as it is read, for files get damaged and mixed up."""

import hashlib
import json
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt import description
from nmt.data.splits import fingerprint
from nmt.data.vocabulary import Vocabulary
from nmt.errors import UsageError
from nmt.lines import read_lines
from nmt.model_directory import FORMAT, PROGRESS, WEIGHTS, ModelDirectory, update_of
from nmt.sizes import parameters
from nmt.storage import sha256_of

if TYPE_CHECKING:
    from nmt.model.network import Network

Text = tuple[list[str], list[str]]  # source and target lines


class SavedModel:
    """A model directory, or one of its checkpoints. Each part is read when first asked for; all raise UsageError."""

    def __init__(self, directory: ModelDirectory, weights_path: Path, update: int | None) -> None:
        """Prefer `open`. Reads config.json; `update` is the checkpoint's, None for a model directory."""
        self.directory, self.weights_path, self.update = directory, weights_path, update
        self.config = read_config(directory)  # config.json as it is written
        try:
            self.description = description.parse(self.config)  # the same, checked
        except ValueError as error:
            raise UsageError(
                f"{directory.config_path}: damaged, or from another version of nmt ({error}); restore it from a copy, or use "
                "the version that wrote it"
            ) from None

    @classmethod
    def open(cls, path: Path) -> "SavedModel":
        """The model of a model directory, or of a checkpoint's folder inside one, with that checkpoint's weights."""
        if (path / PROGRESS).exists():
            for place in (path.absolute(), path.resolve()):  # the first where checkpoints/ is a link to another disk
                if place.parent.name == "checkpoints":
                    return cls(ModelDirectory(place.parent.parent), path / WEIGHTS, update_of(place))
        return cls(ModelDirectory(path), path / WEIGHTS, None)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The shared vocabulary, which must be the one that config.json names."""
        path = self.directory.tokenizer_path
        content = _read(path)
        if hashlib.sha256(content).hexdigest() != self.description.vocabulary.sha256:
            raise UsageError(f"{path}: damaged, or not the vocabulary of this model; restore it from a copy")
        return Vocabulary(content)

    def heldout(self, split: str) -> Text | None:
        """Raw source and target lines of `valid`, `test` or BEFORE; None where the model has no such text."""
        data = self.description.data
        count = data.lines.get(split, 0)
        if not count:
            return None
        paths = self.directory.heldout_paths(split, self.description.languages)
        source, target = (list(islice(read_lines(path), count + 1)) for path in paths)
        digest = data.sha256.get(split)  # BEFORE has none
        whole = len(source) == len(target) == count
        if not whole or (digest and fingerprint(zip(source, target, strict=True)) != (count, digest)):
            raise UsageError(f"{paths[0]}: this and {paths[1].name} are not the text of config.json; restore both from a copy")
        return source, target

    def network(self) -> "Network":
        """The network with its weights, on the CPU and in evaluation mode."""
        from nmt.model.build import build  # imported here: the CTranslate2 engine works without torch
        from nmt.weights import load_weights

        weights = load_weights(self.weights_path, self.description.kind)
        mismatch = UsageError(f"{self.weights_path}: does not fit {self.directory.config_path}; they are of different models")
        # Counted first: a network of the size in config.json may be too large to build.
        expected = parameters(self.description.model, len(self.vocabulary))["total"]
        if sum(tensor.numel() for tensor in weights.values()) != expected:
            raise mismatch
        network = build(self.description.model, len(self.vocabulary))
        try:
            network.load_state_dict(weights)
        except RuntimeError:
            raise mismatch from None
        return network.eval()

    def weights_sha256(self) -> str | None:
        """The digest of the weights file; None where there is none, as where only an export was shipped."""
        return sha256_of(self.weights_path) if self.weights_path.exists() else None


def read_config(directory: ModelDirectory) -> dict[str, Any]:
    """config.json as it is written. Raises UsageError where it is missing, or of another format or program."""
    path = directory.config_path
    if not path.exists():
        raise UsageError(
            f"{directory.path}: no trained model here (config.json is missing); train one with `nmt train`, or name its "
            "directory with --model"
        )
    try:
        config: dict[str, Any] = json.loads(_read(path))
        found = config["format"]
    except (ValueError, TypeError, KeyError):
        raise UsageError(f"{path}: damaged, or another program's; restore it from a copy") from None
    if found != FORMAT:
        raise UsageError(f"{path}: format {found!r:.40}, but this nmt reads format {FORMAT}; use the nmt it came from")
    return config


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; restore it from a copy") from None
