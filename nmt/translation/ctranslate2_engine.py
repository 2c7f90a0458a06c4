"""The CTranslate2 engine: an exported model in a C++ library, with the promises of hypothesis.py and without torch.

CTranslate2's search differs from search.py in three ways, which this module makes up for:

- It divides scores by L^alpha and stops once a number of hypotheses have ended. So it searches with SEARCH_PATIENCE and
  returns all that it found, and they are ranked here by our length penalty.
- It removes forbidden tokens before the softmax, which makes all others likelier. So nothing is forbidden at first, because
  a trained model does not want tokens that never stand for text. A sentence in which it did is searched again with these
  tokens forbidden, and the results are scored without that.
- A call has one length limit for all sentences. A sentence that exceeds its own is searched again with its own limit.
"""

import ctypes
import hashlib
import json
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nmt.config import ModelConfig
from nmt.cores import threads
from nmt.data.vocabulary import Vocabulary
from nmt.errors import UsageError, first_line
from nmt.ids import BOS, EOS, FIRST_PIECE
from nmt.process import this_process
from nmt.saved_model import SavedModel
from nmt.storage import sha256_of
from nmt.translation.hypothesis import BATCH_TOKENS, Hypothesis, SearchOptions, Sources, length_penalty

# A search goes on until beam x patience hypotheses have ended. All searches use one value: with two, the first of several
# translations need not be the one that is found alone. Of the 500 test lines of the embedded corpus and 100 that a small model
# has by heart, the best translation equals PyTorch's for 594 with CTranslate2's default of 1, 597 with 1.25, 599 with 1.5 and
# all with 2; n-best lists of 4 for 455, 553, 587 and 599. Processor time relative to 1 is 1.08, 1.15 and 1.32.
SEARCH_PATIENCE = 1.5
# As in lanes.py, batches are searched side by side, each with a share of the threads. A single sentence gets only one share
# too: its steps are so small that on two cores one thread does four to five times what two do together.
MAX_PARALLEL_BATCHES = 2
CONFIG = "config.json"
EXPORT_RECORD = "nmt"  # the key in the export's config.json under which nmt records what it was made from


Found = list[tuple[list[list[str]], list[float]]]


class CTranslate2Engine:
    """`Engine` of hypothesis.py for a folder that `nmt export` has written, of an encoder and a decoder."""

    interface = "Translator"  # of CTranslate2

    def __init__(self, folder: Path, vocabulary: Vocabulary, device: str = "cpu") -> None:
        """`device` is cpu, cuda, or auto: cuda where there is a GPU. Raises UsageError if it or the export cannot be used."""
        ctranslate2 = library()
        gpus = 0 if device == "cpu" else ctranslate2.get_cuda_device_count()
        if device == "auto":
            device = "cuda" if gpus else "cpu"
        count = threads()  # CTranslate2's own choice ignores this process's CPU affinity
        self.workers = min(MAX_PARALLEL_BATCHES, count) if device == "cpu" else 1
        self.pieces = vocabulary.pieces(range(len(vocabulary)))
        self.ids = {piece: id for id, piece in enumerate(self.pieces)}
        self.forbidden = [[piece] for id, piece in enumerate(self.pieces[:FIRST_PIECE]) if id != EOS]
        shares = {"inter_threads": self.workers, "intra_threads": count // self.workers}
        try:
            gpu = this_process().local_rank % max(1, gpus)
            self.translator = getattr(ctranslate2, self.interface)(str(folder), device, device_index=gpu, **shares)
            if device == "cuda":  # only computing shows whether the GPU can be used
                self._found([[EOS]], 1, SearchOptions(beam=1))
        except (RuntimeError, ValueError) as error:
            fault = f"--device {device}: CTranslate2 cannot use {folder} ({first_line(error)})"
            raise UsageError(f"{fault}; use --device cpu, or another version of ctranslate2") from None
        self.batch_tokens = BATCH_TOKENS[device]
        engine = weakref.ref(self)

        def outlive_fork() -> None:
            """Keep the translator alive in a forked process: its destructor would wait forever for threads left behind."""
            if held := engine():
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(held.translator))

        os.register_at_fork(after_in_child=outlive_fork)

    def search_all(self, batches: Iterable[Sources], options: SearchOptions) -> Iterator[list[list[Hypothesis]]]:
        """The n-best hypotheses of each source of each batch, without details. Several batches are searched side by side."""
        batches = list(batches)
        if len(batches) == 1:  # a single line is answered sooner without a thread
            yield self.search(batches[0], options)
            return
        with ThreadPoolExecutor(self.workers) as pool:  # CTranslate2 releases the interpreter lock
            yield from pool.map(lambda batch: self.search(batch, options), batches)

    def search(self, sources: Sources, options: SearchOptions) -> list[list[Hypothesis]]:
        """The n-best hypotheses of each source: searched in one batch, and some sources once more."""
        limits = [len(source) + options.extra for source in sources]
        results = []
        for source, limit, found in zip(sources, limits, self._search_freely(sources, max(limits), options), strict=True):
            if _is_allowed(found[0], limit):  # only the best decides, so that n changes nothing
                results.append([each for each in found if _is_allowed(each, limit)][: options.n_best])
            else:
                results.append(self._search_strictly(source, limit, options))
        return results

    def _search_freely(self, sources: Sources, limit: int, options: SearchOptions) -> list[list[Hypothesis]]:
        """Search with nothing forbidden, so that scores are the model's own. At the limit, EOS may be missing."""
        found = []
        for texts, scores in self._found(sources, limit, options):
            penalties = [len(pieces) ** _their_alpha(options) for pieces in texts]
            log_p = [score * penalty for score, penalty in zip(scores, penalties, strict=True)]
            found.append(self._ranked(texts, log_p, limit, options))
        return found

    def _search_strictly(self, source: Sequence[int], limit: int, options: SearchOptions) -> list[Hypothesis]:
        """Search with the forbidden tokens removed, and score without that."""
        [(texts, _)] = self._found([source], limit, options, self.forbidden)
        texts = [[piece for piece in pieces if piece != self.pieces[EOS]] for pieces in texts]
        ranked = self._ranked(texts, self._log_probabilities(source, texts), limit, options)
        ended = [hypothesis for hypothesis in ranked if not hypothesis.at_limit]
        return (ended or ranked)[: options.n_best]

    def _found(self, sources: Sources, limit: int, options: SearchOptions, forbidden: list[list[str]] | None = None) -> Found:
        """The pieces of each source's hypotheses, with EOS if they ended, and CTranslate2's scores of them."""
        results = self.translator.translate_batch(
            [self._pieces(source) for source in sources],
            max_input_length=0,  # else it would silently cut longer sources
            min_decoding_length=1 if forbidden else 0,
            max_decoding_length=limit,
            **_settings(options, forbidden),
        )
        return [(result.hypotheses, result.scores) for result in results]

    def _log_probabilities(self, source: Sequence[int], texts: list[list[str]]) -> list[float]:
        """Of each text as a translation of the source, with its EOS."""
        scores = self.translator.score_batch([self._pieces(source)] * len(texts), texts, max_input_length=0)
        return [sum(score.log_probs) for score in scores]

    def _pieces(self, ids: Sequence[int]) -> list[str]:
        return [self.pieces[id] for id in ids]

    def _ranked(self, texts: list[list[str]], log_p: list[float], limit: int, options: SearchOptions) -> list[Hypothesis]:
        """Hypotheses from pieces and their log-probabilities, best first."""
        hypotheses = []
        for pieces, total in zip(texts, log_p, strict=True):
            ids = [self.ids[piece] for piece in pieces if piece != self.pieces[EOS]]
            score = total / length_penalty(len(ids) + 1, options.length_penalty)
            hypotheses.append(Hypothesis(ids, total, score, len(ids) == limit))
        return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)


class CTranslate2OneStack(CTranslate2Engine):
    """The same for a decoder-only network: the source and BOS are the prompt, and the translation continues it."""

    interface = "Generator"

    def _found(self, sources: Sources, limit: int, options: SearchOptions, forbidden: list[list[str]] | None = None) -> Found:
        results = self.translator.generate_batch(
            [self._pieces([*source, BOS]) for source in sources],
            include_prompt_in_result=False,
            min_length=1 if forbidden else 0,
            max_length=limit,
            **_settings(options, forbidden),
        )
        return [(result.sequences, result.scores) for result in results]

    def _log_probabilities(self, source: Sequence[int], texts: list[list[str]]) -> list[float]:
        prompt = self._pieces([*source, BOS])
        scores = self.translator.score_batch([[*prompt, *text, self.pieces[EOS]] for text in texts], max_input_length=0)
        return [sum(score.log_probs[-len(text) - 1 :]) for score, text in zip(scores, texts, strict=True)]


def _is_allowed(found: Hypothesis, limit: int) -> bool:
    """Whether a hypothesis consists of text and ended by itself below its limit."""
    return 0 < len(found.ids) < limit and min(found.ids) >= FIRST_PIECE


def _settings(options: SearchOptions, forbidden: list[list[str]] | None) -> dict[str, Any]:
    """What both of CTranslate2's interfaces are told."""
    return {
        "beam_size": options.beam,
        "patience": SEARCH_PATIENCE,
        "num_hypotheses": 1 if options.beam == 1 else int(options.beam * SEARCH_PATIENCE + 0.5),  # as it rounds
        "length_penalty": _their_alpha(options),
        "suppress_sequences": forbidden,
        "return_scores": True,
        "return_end_token": True,
    }


def _their_alpha(options: SearchOptions) -> float:
    """The length penalty, but never 0, with which CTranslate2 would stop at the first hypothesis that ends."""
    return options.length_penalty or 1e-6


def engine_for(config: ModelConfig) -> type[CTranslate2Engine]:
    """The engine of an exported network. Raises UsageError for one that CTranslate2's format cannot carry."""
    if config.architecture == "transformer":
        return CTranslate2Engine
    if config.architecture == "decoder-only" and config.mask == "causal":
        return CTranslate2OneStack
    what = "a recurrent network" if config.architecture == "rnn" else "one stack that sees the whole source (mask = prefix)"
    raise UsageError(f"CTranslate2's format cannot carry {what}; translate with --engine torch")


def library() -> Any:
    """The ctranslate2 module. Raises UsageError where it cannot be imported."""
    try:
        import ctranslate2
    except ImportError as error:
        raise UsageError(f"CTranslate2 cannot be loaded ({error}); run `pip install ctranslate2`") from None
    return ctranslate2


def export_folder(model: SavedModel) -> Path:
    """Where the model's export is. Raises UsageError for a checkpoint, because only the weights to use are exported."""
    if model.update is not None:
        found, directory = model.weights_path.parent, model.directory.path
        raise UsageError(f"{found}: a checkpoint, which is not exported; name the model directory, {directory}")
    return model.directory.ctranslate2


def content_digest(folder: Path) -> str:
    """A digest of an export: of the files that CTranslate2 reads, with its config.json as it was before nmt's record."""
    config = json.loads((folder / CONFIG).read_bytes())
    config.pop(EXPORT_RECORD, None)
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for path in (folder / "model.bin", *sorted(folder.glob("*vocabulary.json"))):
        digest.update(bytes.fromhex(sha256_of(path)))
    return digest.hexdigest()


def load(model: SavedModel, device: str, precision: str) -> CTranslate2Engine:
    """The engine for a model's export. Raises UsageError if there is none, or not for these weights or options."""
    folder = export_folder(model)
    try:
        record = json.loads((folder / CONFIG).read_bytes())[EXPORT_RECORD]
        exported = record["precision"]
        now = {"vocabulary": model.vocabulary.sha256, "content": content_digest(folder)}
        if weights := model.weights_sha256():
            now["weights"] = weights
        if not now.items() <= record.items():
            raise ValueError
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        fault = "damaged, or of other weights than the model has now" if folder.exists() else "the model is not exported"
        raise UsageError(f"{folder}: {fault}; run `nmt export -m {model.directory.path}`") from None
    if precision not in ("auto", exported):
        raise UsageError(f"--precision {precision}: the model is exported in {exported}; leave the option out")
    return engine_for(model.description.model)(folder, model.vocabulary, device)
