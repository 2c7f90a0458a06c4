"""Data sets in the Hugging Face hub's layout, local or remote, through the `datasets` library."""

import hashlib
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

from nmt.data.network import answer_within
from nmt.data.splits import NAMES, Pair, Reader, hash_files
from nmt.errors import NmtError, UsageError

HUB_TIMEOUT = 5  # seconds
ROWS_PER_READ = 2_000  # reading one row at a time is many times slower


def read_dataset(path: str, config: str, source: str, target: str, before: str = "") -> dict[str, Reader]:
    """The readers of a data set's splits: `path` is a local folder in the hub's layout, or owner/name on the hub.

    If there is no such data set, the error begins with `before`. Raises UsageError if the data set cannot be read, lacks a
    language, or has no place for its copy; NmtError if the hub cannot be reached.
    """
    local = Path(path).is_dir()
    reached = local or answer_within(HUB_TIMEOUT, partial(_hub_answers, path))
    if not reached:
        os.environ["HF_HUB_OFFLINE"] = "1"  # read at import: what was fetched before still loads, without waiting
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    import datasets

    label = f"--data {path}:{config}" if config else f"--data {path}"
    _make_caches(datasets.config, local, label)
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        cache = _cache_for_content(datasets, path, config) if local else None
        loaded = datasets.load_dataset(path, config or None, cache_dir=cache, keep_in_memory=False)
    except (datasets.exceptions.DatasetsError, ConnectionError, FileNotFoundError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)  # also of a download that was interrupted
        if isinstance(error, ConnectionError) or (missing and not reached):
            raise NmtError(
                f"{label}: {before}the Hugging Face hub cannot be reached, nor is the data set in its cache; "
                "connect to the network (or set HF_ENDPOINT to a mirror), or use --data demo, which is embedded, "
                "or --data FOLDER with your own train.en and train.de"
            ) from None
        reason = " ".join(str(error).split("Example of usage")[0].split()) or type(error).__name__
        hint = f"; name one as --data {path}:CONFIG" if "Config name is missing" in reason else ""
        found = before if missing else ""
        raise UsageError(f"{label}: {found}no data set that can be read here: {reason}{hint}") from None
    except Exception as error:  # the transport has its own exceptions
        raise NmtError(f"{label}: the fetch failed ({error}); the same command tries again") from None
    names = {split: next((name for name in names if name in loaded), None) for split, names in NAMES.items()}
    if not names["train"]:
        raise UsageError(f"{label}: no 'train' split; splits found: {', '.join(loaded)}")
    return {split: _row_reader(loaded[name], label, source, target) for split, name in names.items() if name}


def _make_caches(settings: Any, local: bool, label: str) -> None:
    """Create the folders where the library keeps its copies. Raises UsageError if one cannot be created."""
    places = [settings.HF_DATASETS_CACHE] if local else [settings.HF_DATASETS_CACHE, settings.HF_CACHE_HOME]
    for place in map(str, places):
        try:
            if place.startswith("~"):  # as for a user without a name, in a container
                raise OSError(0, "there is no home folder")
            os.makedirs(place, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{label}: no copy of the data set can be kept in {place} ({error.strerror}); set HOME or HF_HOME to a "
                "folder that can be written"
            ) from None


def _cache_for_content(datasets: Any, path: str, config: str) -> str:
    """Where the library keeps its copy of a local data set: a folder for these bytes alone.

    The library itself takes a file for unchanged if its size and time are those of the file it read before.
    """
    files = datasets.load_dataset_builder(path, config or None).config.data_files or {}
    paths = sorted({Path(name) for names in files.values() for name in names})
    digest = hashlib.sha256("".join(hash_files([path for path in paths if path.is_file()])).encode())
    return os.path.join(datasets.config.HF_DATASETS_CACHE, f"nmt-{digest.hexdigest()[:16]}")


def _hub_answers(path: str) -> bool:
    """Whether the hub responds. The library by itself would retry for half a minute."""
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    try:
        urllib.request.urlopen(f"{endpoint}/api/datasets/{path}", timeout=HUB_TIMEOUT).close()
    except urllib.error.HTTPError:
        return True  # the library reports what the hub said
    except (OSError, ValueError, HTTPException):  # no network, no such host, no valid address
        return False
    return True


def _row_reader(rows: Any, label: str, source: str, target: str) -> Reader:
    """The reader of one split, which has a `translation` column with a text per language, or a column per language."""
    flat = rows.flatten()
    nested = [column for column in flat.column_names if column.startswith("translation.")]
    columns = {column.removeprefix("translation."): column for column in nested or flat.column_names}
    for language in (source, target):
        if language not in columns:
            raise UsageError(f"{label}: no text in '{language}'; languages found: {', '.join(columns)}")
        kind = getattr(flat.features[columns[language]], "dtype", "list")
        if "string" not in kind:
            raise UsageError(f"{label}: '{language}' is not text but of type {kind}")
    files = tuple(Path(file["filename"]) for file in rows.cache_files)
    return Reader(partial(_read_rows, flat.with_format("arrow"), columns[source], columns[target]), files, "rows")


def _read_rows(rows: Any, source: str, target: str) -> Iterator[Pair]:
    for table in rows.select_columns([source, target]).iter(ROWS_PER_READ):
        for left, right in zip(table[source].to_pylist(), table[target].to_pylist(), strict=True):
            yield (left or "").replace("\n", " "), (right or "").replace("\n", " ")
