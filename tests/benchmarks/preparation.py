"""How long a corpus takes to prepare, and how much memory: `python tests/benchmarks/preparation.py [PAIRS...]`.

Makes so many synthetic pairs (1M, 2M and 4.5M where none is said), with words of Zipf's frequencies and sentences of as many
words as WMT14's, prepares each corpus in a process of its own, starts again on the cache in another, and prints a Markdown
table. The words are long, so a pair costs more than a real one: about 530 bytes of text and 105 pieces. Bind it to cores with
taskset. TMPDIR says where the text goes, and some 225 bytes of ids a pair.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

SIZES = (1_000_000, 2_000_000, 4_500_000)
WORDS = 400_000  # different words a language
CHUNK = 50_000  # pairs made at a time
HELD_OUT = 3_000  # pairs each of valid and test
ONSETS, NUCLEI, CODAS = (
    parts.split(",")
    for parts in (
        "b,br,d,dr,f,fl,g,gr,h,j,k,kl,l,m,n,p,pr,qu,r,s,sch,sp,st,t,tr,v,w,z",
        "a,e,i,o,u,ei,au,ie",
        ",,,n,r,l,s,t,ch,nd,ng,st",
    )
)

PREPARE = """
import json, sys, time
began = time.perf_counter()
from pathlib import Path
from nmt.config import TrainingConfig
from nmt.data.cache import Cache
from nmt.data.corpus import load
from nmt.data.preparation import learn_vocabulary, prepare_corpus
config, cache = TrainingConfig(), Cache([Path(sys.argv[2])], lambda text: print(text, file=sys.stderr))
marks = [time.perf_counter()]
corpus = load(sys.argv[1], "en", "de", cache)
marks.append(time.perf_counter())
vocabulary = learn_vocabulary(corpus, config, cache)
marks.append(time.perf_counter())
prepared = prepare_corpus(corpus, vocabulary, config, cache)
marks.append(time.perf_counter())
assert "torch" not in sys.modules
stages = [after - before for before, after in zip(marks, marks[1:])]
print(json.dumps({"stages": stages, "seconds": marks[-1] - began, "pieces": len(vocabulary), "kept": prepared[1].kept}))
"""


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or SIZES
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} core{'s' if cores > 1 else ''}; peak memory is the sum of RSS over the process tree\n")
    titles = ["pairs", "seconds", "load", "vocabulary", "ids", "s / million", "core s / million"]
    titles += ["peak MiB", "cache MiB", "start again, s", "core s"]
    print("| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|", flush=True)
    for size in sizes:
        folder = Path(tempfile.mkdtemp(prefix="nmt-preparation-"))
        try:
            print("| " + " | ".join(measure(folder, size)) + " |", flush=True)
        finally:
            shutil.rmtree(folder)


def measure(folder: Path, size: int) -> list[str]:
    """The row of the table for a corpus of that many pairs."""
    text, cache = folder / "text", folder / "cache"
    text.mkdir()
    for split, count in (("train", size), ("valid", HELD_OUT), ("test", HELD_OUT)):
        write(text, split, count)
    first, peak = run(text, cache)
    again, _ = run(text, cache)
    cached = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    stages = [f"{stage:.0f}" for stage in first["stages"]]
    per_million = [f"{seconds / size * 1e6:.0f}" for seconds in (first["seconds"], first["core seconds"])]
    mib = [f"{bytes / 2**20:,.0f}" for bytes in (peak, cached)]
    start = [f"{again[seconds]:.1f}" for seconds in ("seconds", "core seconds")]
    return [f"{size:,}", f"{first['seconds']:.0f}", *stages, *per_million, *mib, *start]


def run(text: Path, cache: Path) -> tuple[dict[str, Any], int]:
    """What one preparation says, and the peak memory of its process tree in bytes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen([sys.executable, "-c", PREPARE, text, cache], stdout=subprocess.PIPE)
    peak, ended = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.2):
            peak = max(peak, tree_memory(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    ended.set()
    watcher.join()
    if process.returncode:
        raise SystemExit(process.returncode)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(output) | {"core seconds": spent}, peak


def tree_memory(root: int) -> int:
    """Resident bytes of a process and all its descendants."""
    parents, resident = {}, {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended
                continue
            parents[int(path.name)] = int(fields[1])
            resident[int(path.name)] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    family = {root}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(resident.get(member, 0) for member in family)


def write(folder: Path, split: str, count: int) -> None:
    """One split of the corpus, the same for the same count."""
    with (folder / f"{split}.en").open("w") as source, (folder / f"{split}.de").open("w") as target:
        for sources, targets in made(split, count):
            source.write(sources)
            target.write(targets)


def made(split: str, count: int) -> Iterator[tuple[str, str]]:
    """Chunks of lines of both sides; a target is about as long as its source."""
    random = np.random.default_rng([count, *split.encode()])
    languages = [words(seed) for seed in (1, 2)]
    ranks = np.arange(1, WORDS + 1)
    cumulative = np.cumsum(1 / (ranks + 2.7))
    cumulative /= cumulative[-1]
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        lengths = np.clip(random.gamma(2.6, 9.5, size), 1, 150).astype(int)
        others = np.clip(lengths * random.normal(0.95, 0.12, size), 1, 150).astype(int)
        yield tuple(  # type: ignore[misc]
            lines(language, np.searchsorted(cumulative, random.random(int(many.sum()))), many)
            for language, many in zip(languages, (lengths, others), strict=True)
        )


def lines(language: list[str], numbers: np.ndarray, lengths: np.ndarray) -> str:
    chosen = iter([language[number] for number in numbers.tolist()])
    return "".join(" ".join(next(chosen) for _ in range(length)) + " .\n" for length in lengths.tolist())


def words(seed: int) -> list[str]:
    """Words of one to five syllables, the frequent ones the shorter."""
    random = np.random.default_rng(seed)
    parts = [random.integers(0, len(kind), (WORDS, 5)) for kind in (ONSETS, NUCLEI, CODAS)]
    most = 1 + np.minimum(4, np.log10(np.arange(1, WORDS + 1)) * random.uniform(0.4, 1.0, WORDS)).astype(int)
    return [
        "".join(ONSETS[parts[0][i, j]] + NUCLEI[parts[1][i, j]] + CODAS[parts[2][i, j]] for j in range(most[i]))
        for i in range(WORDS)
    ]


if __name__ == "__main__":
    main()
