"""The CTranslate2 engine: an exported model in a C++ library, held to the promises of hypothesis.py. It needs no torch.

Its search is that of search.py but for three things, which are made good here:

- It divides by L^alpha, and stops when so many hypotheses have ended. So it is asked for more of them (PATIENCE), and for
  all that it found; our penalty then ranks them.
- What is forbidden it takes out before the softmax, which makes all else likelier. So nothing is forbidden at first: a
  trained model does not want what never stands for text. Where it did, the sentence is searched again with all that taken
  out, and what is found is scored without.
- One call has one limit of length. A sentence that grew beyond its own is searched again with it, and ended there.
"""

import ctypes
import hashlib
import json
import os
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nmt.cores import threads
from nmt.data.vocabulary import Vocabulary
from nmt.errors import UsageError, first_line
from nmt.ids import EOS, FIRST_PIECE
from nmt.lines import parse_json
from nmt.model_directory import ModelDirectory, check
from nmt.translation.hypothesis import BATCH_TOKENS, Hypothesis, SearchOptions, Sources, length_penalty

# Times the beam are the hypotheses that end before a search does. One number for all searches: with two, the first of
# several translations need not be the one that is found alone. Of the 500 test lines of the embedded corpus and 100 that a
# small model has by heart, the best translation is PyTorch's for 594 with CTranslate2's own 1, 597 with 1.25, 599 with 1.5,
# all with 2; n-best lists of 4 are for 455, 553, 587 and 599. Processor time against 1: 1.08, 1.15 and 1.32 times.
PATIENCE = 1.5
# Batches side by side, as in nmt/lanes.py. Each has its share of the threads, a sentence alone too: its steps are so small
# that on two cores one thread does four to five times what two do together.
WORKERS = 2
CONFIG = "config.json"
MADE_FROM = "nmt"  # under this name config.json of an export tells what it was made from, and how


class CTranslate2Engine:
    """`Engine` of hypothesis.py for a folder that `nmt export` has written."""

    def __init__(self, folder: Path, vocabulary: Vocabulary, device: str = "cpu") -> None:
        """Raises UsageError where the folder is missing or damaged, or the library is not installed."""
        ctranslate2 = library()
        count = threads()  # CTranslate2's own choice ignores what this process is bound to
        self.workers = min(WORKERS, count) if device == "cpu" else 1
        self.batch_tokens = BATCH_TOKENS[device]
        self.pieces = vocabulary.pieces(range(len(vocabulary)))
        self.ids = {piece: id for id, piece in enumerate(self.pieces)}
        self.forbidden = [[piece] for id, piece in enumerate(self.pieces[:FIRST_PIECE]) if id != EOS]
        try:
            self.translator = ctranslate2.Translator(
                str(folder), device, device_index=_gpu() if device == "cuda" else 0,
                inter_threads=self.workers, intra_threads=count // self.workers,
            )  # fmt: skip
            if device == "cuda":  # whether a GPU can compute shows only when it does
                self.translator.translate_batch([self._pieces([EOS])], max_decoding_length=1)
        except (RuntimeError, ValueError) as error:
            if device == "cuda":  # an export that is damaged was found out before
                raise UsageError(
                    f"--engine ctranslate2: the GPU cannot be used ({first_line(error)}); use --device cpu"
                ) from None
            raise UsageError(f"{folder}: not an exported model, or damaged ({error}); run `nmt export` again") from None
        mine = weakref.ref(self)

        def outlive() -> None:
            """A fork has none of its threads, for which its destructor would wait without end: there it never runs."""
            if engine := mine():
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine.translator))

        os.register_at_fork(after_in_child=outlive)

    def search_all(self, batches: Iterable[Sources], options: SearchOptions) -> Iterator[list[list[Hypothesis]]]:
        """Several batches side by side. It knows no details."""
        batches = list(batches)
        if len(batches) == 1:  # of a person, say: threads would only take their time
            yield self.search(batches[0], options)
            return
        with ThreadPoolExecutor(self.workers) as pool:  # CTranslate2 lets the other threads of Python run
            yield from pool.map(lambda batch: self.search(batch, options), batches)

    def search(self, sources: Sources, options: SearchOptions) -> list[list[Hypothesis]]:
        """In one batch, but for those that must be searched again."""
        limits = [len(source) + options.extra for source in sources]
        found = self._search(sources, max(limits), options)
        again: dict[int, list[int]] = defaultdict(list)  # places by limit
        for place, limit in enumerate(limits):
            if not _is_allowed(found[place][0].ids, limit):  # the best decides, however many are asked for
                again[limit].append(place)
            found[place] = [each for each in found[place] if _is_allowed(each.ids, limit)][: options.n_best]
        for limit, places in again.items():
            strictly = self._search_strictly([sources[place] for place in places], limit, options)
            for place, hypotheses in zip(places, strictly, strict=True):
                found[place] = hypotheses
        return found

    def _search(self, sources: Sources, limit: int, options: SearchOptions) -> list[list[Hypothesis]]:
        """With nothing forbidden, so that scores are the model's own; EOS may be missing at the limit."""
        results = self._translate(sources, limit, options, return_scores=True)
        found = []
        for result in results:
            hypotheses = []
            for pieces, score in zip(result.hypotheses, result.scores, strict=True):
                log_probability = score * len(pieces) ** _their_alpha(options)
                hypotheses.append(self._hypothesis(pieces, log_probability, options.length_penalty, limit))
            found.append(_best(hypotheses))
        return found

    def _search_strictly(self, sources: Sources, limit: int, options: SearchOptions) -> list[list[Hypothesis]]:
        """With all that is forbidden taken out, up to a limit that the sources share; scored as the model has it."""
        results = self._translate(sources, limit, options, min_decoding_length=1, suppress_sequences=self.forbidden)
        found = []
        for source, result in zip(sources, results, strict=True):
            texts = [self._without_end(pieces) for pieces in result.hypotheses]
            asked = [self._pieces(source)] * len(texts)
            scores = self.translator.score_batch(asked, texts, max_input_length=0)
            hypotheses = [
                self._hypothesis(pieces, sum(score.log_probs), options.length_penalty, limit)
                for pieces, score in zip(texts, scores, strict=True)
            ]
            ended = [hypothesis for hypothesis in hypotheses if not hypothesis.at_limit]
            found.append(_best(ended or hypotheses)[: options.n_best])
        return found

    def _translate(self, sources: Sources, limit: int, options: SearchOptions, **more: Any) -> Any:
        asked = {
            "beam_size": options.beam,
            "patience": PATIENCE,
            "num_hypotheses": 1 if options.beam == 1 else int(options.beam * PATIENCE + 0.5),  # as it rounds itself
            "length_penalty": _their_alpha(options),
            "max_input_length": 0,  # it would cut longer sources in silence
            "min_decoding_length": 0,
            "max_decoding_length": limit,
            "return_end_token": True,
        }
        return self.translator.translate_batch([self._pieces(source) for source in sources], **(asked | more))

    def _pieces(self, ids: Sequence[int]) -> list[str]:
        return [self.pieces[id] for id in ids]

    def _without_end(self, pieces: list[str]) -> list[str]:
        return pieces[:-1] if pieces and pieces[-1] == self.pieces[EOS] else pieces

    def _hypothesis(self, pieces: list[str], log_probability: float, alpha: float, limit: int) -> Hypothesis:
        ids = [self.ids[piece] for piece in self._without_end(pieces)]
        score = log_probability / length_penalty(len(ids) + 1, alpha)
        return Hypothesis(ids, log_probability, score, len(ids) == limit)


def _is_allowed(ids: list[int], limit: int) -> bool:
    """Whether a hypothesis is text that ended by itself below its limit."""
    return 0 < len(ids) < limit and min(ids) >= FIRST_PIECE


def _their_alpha(options: SearchOptions) -> float:
    """Ours, but never 0, at which CTranslate2 stops as soon as one has ended."""
    return options.length_penalty or 1e-6


def _best(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """The best first."""
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)


def _gpu() -> int:
    """Of several processes that torchrun started on this machine, each takes a GPU of its own."""
    return int(os.environ.get("LOCAL_RANK", "0")) % int(library().get_cuda_device_count())


def library() -> Any:
    """CTranslate2. Raises UsageError where it is not installed."""
    try:
        import ctranslate2
    except ModuleNotFoundError:
        raise UsageError(
            "CTranslate2 is not installed; `pip install -e '.[fast]'` installs it, as does `pip install ctranslate2`"
        ) from None
    except ImportError as error:
        raise UsageError(
            f"CTranslate2 is installed, but cannot be loaded: {error}; --engine torch does without it"
        ) from None
    return ctranslate2


def model_directory(path: Path) -> ModelDirectory:
    """The model directory that `path` is. Raises UsageError for a checkpoint's folder: exports are of the weights to use."""
    directory = ModelDirectory.containing(path)
    if directory.path != path:
        raise UsageError(f"{path}: a checkpoint, which is not exported; name the model directory, {directory.path}")
    return directory


def stamp(directory: ModelDirectory) -> list[int] | None:
    """Size and time of the weights to use, which spare every start their hash; None where only an export was shipped."""
    if not os.path.lexists(directory.weights_path):
        return None
    check(directory.weights_path)
    found = directory.weights_path.stat()
    return [found.st_size, found.st_mtime_ns]


def content(folder: Path) -> str:
    """A digest of an export: of what CTranslate2 reads, and of its config.json but for what nmt has added there."""
    config = parse_json((folder / CONFIG).read_bytes())
    digest = hashlib.sha256(
        json.dumps({name: config[name] for name in config if name != MADE_FROM}, sort_keys=True).encode()
    )
    for name in ("model.bin", "shared_vocabulary.json"):
        with (folder / name).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def load(path: Path, vocabulary: Vocabulary, device: str, precision: str) -> CTranslate2Engine:
    """The engine of a model directory's export. Raises UsageError where there is none that can serve as asked."""
    directory = model_directory(path)
    again = f"run `nmt export -m {path}`"
    config = directory.ctranslate2 / CONFIG
    if not os.path.lexists(config):
        raise UsageError(f"{directory.ctranslate2}: the model is not exported; {again} first")
    try:
        for file in (config, *config.parent.iterdir()):
            check(file)
        made_from = parse_json(config.read_bytes())[MADE_FROM]
        weights, exported = made_from["weights"], made_from["precision"]
        made_for_others = made_from["vocabulary"] != vocabulary.sha256 or (
            stamp(directory) not in (None, made_from.get("stamp")) and directory.weights_sha256() != weights
        )
        damaged = made_from["content"] != content(directory.ctranslate2)
    except (OSError, ValueError, TypeError, KeyError):
        raise UsageError(f"{config}: damaged, or not written by nmt; {again} again") from None
    if made_for_others:
        raise UsageError(f"{directory.ctranslate2}: exported from other weights than the model has now; {again} again")
    if damaged:
        raise UsageError(f"{directory.ctranslate2}: not what was exported; {again} again, or copy it anew")
    if precision not in ("auto", exported):
        raise UsageError(f"--precision {precision}: the model is exported in {exported}; leave the option out")
    return CTranslate2Engine(directory.ctranslate2, vocabulary, _find_device(device))


def _find_device(name: str) -> str:
    """`auto` is CUDA where there is one. Raises UsageError for a CUDA that is not there."""
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"--device {name}: must be auto, cpu or cuda")
    there = name != "cpu" and library().get_cuda_device_count() > 0
    if name == "cuda" and not there:
        raise UsageError("--device cuda: CTranslate2 finds no CUDA device here; use --device cpu")
    return "cuda" if there else "cpu"
