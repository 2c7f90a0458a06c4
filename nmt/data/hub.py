"""Data sets in the Hugging Face hub's layout, local or remote, through the `datasets` library."""

import hashlib
import os
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

from nmt.data.splits import NAMES, Pair, Reader, hash_files
from nmt.errors import NmtError, UsageError

PATIENCE = 5  # seconds to wait for the hub
ROWS = 2_000  # read at a time; a row at a time would be many times slower


def read_dataset(path: str, config: str, source: str, target: str, before: str = "") -> dict[str, Reader]:
    """The readers of a data set's splits: `path` is a local folder in the hub's layout, or owner/name on the hub.

    Where there is none, the error begins with what was found `before`. Raises UsageError for what is no data set or lacks the
    languages, and where no copy can be kept, NmtError where the hub cannot be reached.
    """
    local = Path(path).is_dir()
    reached = local or _hub_answers(path)
    if not reached:
        os.environ["HF_HUB_OFFLINE"] = "1"  # read at import: what was fetched before still loads, without waiting
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    import datasets

    label = f"{path}:{config}" if config else path
    unreached = NmtError(
        f"--data {label}: {before}the Hugging Face hub cannot be reached, nor is the data set in its cache; "
        "connect to the network (or set HF_ENDPOINT to a mirror), or use --data demo, which is embedded, "
        "or --data FOLDER with your own train.en and train.de"
    )
    kept = datasets.config
    for place in map(str, [kept.HF_DATASETS_CACHE] if local else [kept.HF_DATASETS_CACHE, kept.HF_CACHE_HOME]):
        try:
            if place.startswith("~"):  # as of a user without a name, in a container
                raise OSError(0, "there is no home folder")
            os.makedirs(place, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"--data {label}: no copy of the data set can be kept in {place} ({error.strerror}); set HOME or HF_HOME to a "
                "folder that can be written"
            ) from None
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        cache = _cache_of_content(datasets, path, config) if local else None
        loaded = datasets.load_dataset(path, config or None, cache_dir=cache, keep_in_memory=False)
    except ConnectionError:
        raise unreached from None
    except (datasets.exceptions.DatasetsError, FileNotFoundError, ValueError) as error:
        if not reached and isinstance(error, FileNotFoundError):  # also of what a download that was ended has left
            raise unreached from None
        before = before if isinstance(error, FileNotFoundError) else ""
        said = " ".join(str(error).split("Example of usage")[0].split()) or type(error).__name__
        hint = f"; name one as --data {path}:CONFIG" if "Config name is missing" in said else ""
        raise UsageError(f"--data {label}: {before}no data set that can be read here: {said}{hint}") from None
    except PermissionError as error:
        raise UsageError(
            f"--data {label}: {error.filename}: {error.strerror}; set HF_HOME to a folder that can be written"
        ) from None
    except Exception as error:  # a transport's own errors, a full disk
        raise NmtError(f"--data {label}: the fetch failed ({error}); the same command tries again") from None
    readers = {}
    for split, names in NAMES.items():
        if name := next((name for name in names if name in loaded), None):
            readers[split] = _row_reader(loaded[name], label, source, target)
    if "train" not in readers:
        raise UsageError(f"--data {label}: no 'train' split; splits found: {', '.join(loaded)}")
    return readers


def _cache_of_content(datasets: Any, path: str, config: str) -> str:
    """Where the library may keep its copy of a local data set: a folder for just these bytes.

    By itself it would take a file for unchanged that has the size and the time of the one it read before.
    """
    files = datasets.load_dataset_builder(path, config or None).config.data_files or {}
    paths = sorted({Path(name) for names in files.values() for name in names})
    digests = hash_files([path for path in paths if path.is_file()])
    content = hashlib.sha256("".join(digests).encode()).hexdigest()[:16]
    return os.path.join(datasets.config.HF_DATASETS_CACHE, f"nmt-{content}")


def _hub_answers(path: str) -> bool:
    """Whether the hub is within reach, found out in seconds: the library by itself retries for half a minute."""
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    answers: list[bool] = []

    def ask() -> None:
        try:
            urllib.request.urlopen(f"{endpoint}/api/datasets/{path}", timeout=PATIENCE).close()
            answers.append(True)
        except urllib.error.HTTPError:
            answers.append(True)  # it answered; what it said is for the library to report
        except (OSError, ValueError, HTTPException):  # no network, no such host, no address at all
            answers.append(False)

    asking = threading.Thread(target=ask, daemon=True)  # a look-up of the name has no time limit of its own
    asking.start()
    asking.join(PATIENCE)
    return answers == [True]


def _row_reader(rows: Any, label: str, source: str, target: str) -> Reader:
    feature = rows.features.get("translation")
    languages = getattr(feature, "languages", feature)  # Translation, or a mapping of language to text
    nested = isinstance(languages, (list, tuple, dict))
    found = list(languages if nested else rows.column_names)
    if missing := [language for language in (source, target) if language not in found]:
        raise UsageError(f"--data {label}: no text in '{missing[0]}'; languages found: {', '.join(map(str, found))}")
    features = languages if isinstance(languages, dict) else {} if nested else rows.features
    for language in (source, target):
        kind = getattr(features.get(language), "dtype", "list") if features else "string"
        if "string" not in kind:
            raise UsageError(f"--data {label}: '{language}' is no text but of type {kind}")
    tables = rows.select_columns(["translation"] if nested else [source, target]).with_format("arrow")
    files = tuple(Path(file["filename"]) for file in rows.cache_files)
    return Reader(_pairs_of(tables, nested, source, target), files, f"rows, {'nested' if nested else 'columns'}")


def _pairs_of(tables: Any, nested: bool, source: str, target: str) -> Callable[[], Iterator[Pair]]:
    def read() -> Iterator[Pair]:
        for table in tables.iter(ROWS):
            columns = table["translation"].combine_chunks().flatten() if nested else None
            names = [field.name for field in table.schema.field("translation").type] if nested else []
            left, right = (
                (columns[names.index(side)] if columns else table[side]).to_pylist() for side in (source, target)
            )
            for one, other in zip(left, right, strict=True):
                yield (one or "").replace("\n", " "), (other or "").replace("\n", " ")

    return read
