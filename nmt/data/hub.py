"""Text from the network: data sets of the Hugging Face hub, or local ones in its layout, and the test set newstest2012."""

import hashlib
import os
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from nmt.data.splits import NAMES, Pair, Reader, hash_files
from nmt.errors import NmtError, UsageError
from nmt.lines import read_lines

HUB_TIMEOUT = 5  # seconds
NEWSTEST_TIMEOUT = 30  # seconds
ROWS_PER_READ = 2_000  # reading one row at a time is many times slower


def read_dataset(path: str, config: str, source: str, target: str, before: str = "") -> dict[str, Reader]:
    """The readers of a data set's splits: `path` is a local folder in the hub's layout, or owner/name on the hub.

    If there is no such data set, the error begins with `before`. Raises UsageError if the data set cannot be read, lacks a
    language, or has no place for its copy; NmtError if the hub cannot be reached.
    """
    local = Path(path).is_dir()
    reached = local or _answer_within(HUB_TIMEOUT, partial(_hub_answers, path))
    if not reached:
        os.environ["HF_HUB_OFFLINE"] = "1"  # read at import: what was fetched before still loads, without waiting
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    import datasets

    label = f"--data {path}:{config}" if config else f"--data {path}"
    if str(datasets.config.HF_DATASETS_CACHE).startswith("~"):  # as for a user without a name, in a container
        raise UsageError(f"{label}: there is no home folder to keep a copy of the data set in; set HOME or HF_HOME")
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        cache = _cache_for_content(datasets, path, config) if local else None
        loaded = datasets.load_dataset(path, config or None, cache_dir=cache, keep_in_memory=False)
    except Exception as error:  # the transport has its own exceptions
        reason = " ".join(str(error).split("Example of usage")[0].split()) or type(error).__name__
        if local or (reached and isinstance(error, (datasets.exceptions.DatasetsError, FileNotFoundError, ValueError))):
            hint = f"; name one as --data {path}:CONFIG" if "Config name is missing" in reason else ""
            raise UsageError(f"{label}: {before}no data set that can be read here: {reason}{hint}") from None
        raise NmtError(
            f"{label}: {before}the Hugging Face hub cannot be reached, nor is the data set in its cache ({reason}); try again, "
            "connect to the network (or set HF_ENDPOINT to a mirror), or use --data demo, which is embedded, or "
            "--data FOLDER with your own train.en and train.de"
        ) from None
    names = {split: next((name for name in names if name in loaded), None) for split, names in NAMES.items()}
    if not names["train"]:
        raise UsageError(f"{label}: no 'train' split; splits found: {', '.join(loaded)}")
    return {split: _row_reader(loaded[name], label, source, target) for split, name in names.items() if name}


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
    except Exception as error:
        return isinstance(error, urllib.error.HTTPError)  # the library reports what the hub said
    return True


def _row_reader(rows: Any, label: str, source: str, target: str) -> Reader:
    """The reader of one split, which has a `translation` column with a text per language, or a column per language."""
    flat = rows.flatten()
    texts = [column for column in flat.column_names if "string" in getattr(flat.features[column], "dtype", "")]
    nested = [column for column in texts if column.startswith("translation.")]
    columns = {column.removeprefix("translation."): column for column in nested or texts}
    for language in (source, target):
        if language not in columns:
            raise UsageError(f"{label}: no text in '{language}'; languages found: {', '.join(columns)}")
    files = tuple(Path(file["filename"]) for file in rows.cache_files)
    return Reader(partial(_read_rows, flat.with_format("arrow"), columns[source], columns[target]), files, "rows")


def _read_rows(rows: Any, source: str, target: str) -> Iterator[Pair]:
    for table in rows.select_columns([source, target]).iter(ROWS_PER_READ):
        for left, right in zip(table[source].to_pylist(), table[target].to_pylist(), strict=True):
            yield (left or "").replace("\n", " "), (right or "").replace("\n", " ")


def newstest2012(source: str, target: str) -> list[Pair] | str:
    """The WMT test set of 2012, from sacreBLEU's store or the network, or the reason why it is not available."""

    def fetch() -> list[Pair] | str:
        try:
            if "SACREBLEU" not in os.environ:
                Path.home()  # raises if there is none; sacreBLEU would create a folder named ~
            from sacrebleu.utils import get_files

            sides = [list(read_lines(Path(path))) for path in get_files("wmt12", f"{source}-{target}")[:2]]
            return list(zip(*sides, strict=True))
        except (Exception, SystemExit) as error:  # whatever urllib raises; sacreBLEU exits if a checksum is wrong
            return str(error) or type(error).__name__

    answer = _answer_within(NEWSTEST_TIMEOUT, fetch)
    return f"no answer within {NEWSTEST_TIMEOUT} s" if answer is None else answer


def _answer_within(seconds: float, ask: Callable[[], Any]) -> Any:
    """The result of `ask`, or None if it takes longer. `ask` must not raise.

    It runs on a daemon thread, because looking up a host's name has no time limit of its own.
    """
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(ask()), daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else None
