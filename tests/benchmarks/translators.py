"""The contenders of translation.py: one set of weights and a search, in a process that computes only when it is told to.

    PYTHON -m tests.benchmarks.translators NAME PRECISION FOLDER

FOLDER holds workload.json: the model's sizes, the source sentences as ids, where the weights are. A request is a beam and
batches of sentence numbers; the answer holds the best translation of each, as ids without EOS. Peers run under a Python that
lacks what nmt needs, and CTranslate2 needs no PyTorch, so every contender imports its own libraries alone.
"""

import importlib.metadata
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.turns import open_channel, peak_memory, serve

if TYPE_CHECKING:
    from torch import Tensor

    from nmt.translation.hypothesis import Engine

EOS = 3  # as in nmt/ids.py
STACKS = ("encoder", "decoder")
ALPHA = 0.6  # of the length penalty, whatever its form
EXTRA = 50  # pieces that a translation may have more than its source

Ids = list[list[int]]  # of sentences, without BOS and EOS
Search = Callable[[list[Ids], int], Iterable[Ids]]  # batches, each the longest first, and the beam -> the best translations


def nmt_search(workload: dict[str, Any], precision: str) -> Search:
    """The tool's own engine."""
    from nmt.saved_model import SavedModel
    from nmt.translation.translator import load_translator

    return engine_search(load_translator(SavedModel.open(Path(workload["model"])), "cpu", precision).engine)


def nmt_ctranslate2_search(workload: dict[str, Any], precision: str) -> Search:
    """What `nmt translate --engine ctranslate2` searches with."""
    from nmt.saved_model import SavedModel
    from nmt.translation.translator import load_translator

    return engine_search(load_translator(SavedModel.open(exported(workload, precision)), "cpu", engine="ctranslate2").engine)


def engine_search(engine: "Engine") -> Search:
    """One of nmt's engines, below the text."""
    from nmt.translation.hypothesis import SearchOptions

    def search(batches: list[Ids], beam: int) -> Iterator[Ids]:
        options = SearchOptions(beam=beam, length_penalty=ALPHA, extra=EXTRA)
        for found in engine.search_all(batches, options):
            yield [best.ids for best, *_ in found]

    return search


def each(search: Callable[[Ids, int], Ids]) -> Search:
    """A peer's search, which takes one batch after the other."""
    return lambda batches, beam: (search(batch, beam) for batch in batches)


def marian_search(workload: dict[str, Any], precision: str) -> Search:
    """`generate` of Hugging Face, with its cache and PyTorch's fused attention."""
    import torch
    from transformers import GenerationConfig

    from tests.benchmarks.contenders import BOS, PAD, marian_model, sinusoids

    model = marian_model(workload)
    attention = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "out": "out_proj"}
    names = {f"self.{part}": f"self_attn.{name}" for part, name in attention.items()}
    names |= {f"cross.{part}": f"encoder_attn.{name}" for part, name in attention.items()}
    names |= {"self.norm": "self_attn_layer_norm", "cross.norm": "encoder_attn_layer_norm"}
    names |= {"inner": "fc1", "outer": "fc2", "norm": "final_layer_norm"}
    embedding, layers = parameters(workload)
    weights = {f"model.{stack}.layers.{n}.{names[part]}.{kind}": w for (stack, n, part, kind), w in layers.items()}
    tables = ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    weights |= {f"{table}.weight": embedding for table in tables}
    # its own table has all sines before all cosines, so the model's is put in its place
    weights |= {f"model.{stack}.embed_positions.weight": sinusoids(workload["sizes"]["d_model"]) for stack in STACKS}
    weights["final_logits_bias"] = torch.zeros(1, len(embedding))
    load(model, weights, workload["sizes"]["layer_norm_epsilon"])
    model.to(torch.bfloat16 if precision == "bf16" else torch.float32)

    def search(batch: Ids, beam: int) -> Ids:
        source = padded(batch, PAD)
        model.generation_config = GenerationConfig(
            num_beams=beam, do_sample=False, length_penalty=ALPHA, early_stopping=False, use_cache=True,
            max_new_tokens=len(batch[0]) + EXTRA,
            pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=BOS,
        )  # fmt: skip
        found = model.generate(source, attention_mask=(source != PAD).long())
        return cut(found[:, 1:].tolist(), batch)

    return each(search)


def joey_search(workload: dict[str, Any], precision: str) -> Search:
    """Joey NMT's own search, which keeps no cache."""
    import torch
    from joeynmt.batch import Batch  # type: ignore[import-not-found]
    from joeynmt.search import search as joey  # type: ignore[import-not-found]

    from tests.benchmarks.contenders import JOEY_PAD, PAD, UNK, joey_model

    assert precision == "fp32"
    model = joey_model(workload)
    attention = {"q": "q_layer", "k": "k_layer", "v": "v_layer", "out": "output_layer"}
    feed_forward = {"inner": "pwff_layer.0", "outer": "pwff_layer.3", "norm": "layer_norm"}
    names = {f"{stack}.{part}": f"feed_forward.{name}" for stack in STACKS for part, name in feed_forward.items()}
    uses = {"encoder.self": "src_src_att", "decoder.self": "trg_trg_att", "decoder.cross": "src_trg_att"}
    names |= {f"{use}.{part}": f"{owner}.{name}" for use, owner in uses.items() for part, name in attention.items()}
    norms = {"encoder.self": "layer_norm", "decoder.self": "x_layer_norm", "decoder.cross": "dec_layer_norm"}
    names |= {f"{use}.norm": name for use, name in norms.items()}
    embedding, layers = parameters(workload)
    weights = {f"{stack}.layers.{n}.{names[f'{stack}.{part}']}.{kind}": w for (stack, n, part, kind), w in layers.items()}
    swapped = embedding[[UNK, PAD, *range(2, len(embedding))]]
    tables = ("src_embed.lut", "trg_embed.lut", "decoder.output_layer")
    weights |= {f"{table}.weight": swapped for table in tables}
    weights |= {f"{stack}.pe.pe": model.state_dict()[f"{stack}.pe.pe"] for stack in STACKS}  # its own, the same as ours
    load(model, weights, workload["sizes"]["layer_norm_epsilon"])

    def search(batch: Ids, beam: int) -> Ids:
        source = padded(batch, JOEY_PAD)
        lengths, numbers = (source != JOEY_PAD).sum(1), torch.arange(len(batch))
        made = Batch(source, lengths, None, None, None, numbers, torch.device("cpu"), JOEY_PAD, EOS, is_train=False)
        found, _, _ = joey(model, made, len(batch[0]) + EXTRA, beam, ALPHA, generate_unk=False)
        return cut(found.tolist(), batch)

    return each(search)


def ctranslate2_search(workload: dict[str, Any], precision: str) -> Search:
    """CTranslate2 called directly, on what `nmt export` wrote, at its fastest: a worker a thread, all batches at once."""
    import ctranslate2

    folder = exported(workload, precision) / "ctranslate2"
    tokens = json.loads((folder / "shared_vocabulary.json").read_text())
    ids_of = {token: id for id, token in enumerate(tokens)}
    threads = int(os.environ["OMP_NUM_THREADS"])
    translator = ctranslate2.Translator(str(folder), inter_threads=threads, intra_threads=1)

    def search(batches: list[Ids], beam: int) -> Iterator[Ids]:
        asked = [
            translator.translate_batch(
                [[tokens[id] for id in ids] for ids in batch], asynchronous=True,
                beam_size=beam, length_penalty=ALPHA, max_input_length=0, max_decoding_length=len(batch[0]) + EXTRA,
            )
            for batch in batches
        ]  # fmt: skip
        for batch, results in zip(batches, asked, strict=True):
            yield cut([[ids_of[token] for token in result.result().hypotheses[0]] for result in results], batch)

    return search


def exported(workload: dict[str, Any], precision: str) -> Path:
    """The copy of the model directory in which `nmt export` wrote this precision."""
    export = workload["exports"][precision]
    if "lost" in export:
        raise FileNotFoundError(export["lost"])
    return Path(export["model"])


CONTENDERS: dict[str, tuple[str, Callable[[dict[str, Any], str], Search]]] = {  # the package, and how it is built
    "nmt": ("nmt", nmt_search),
    "nmt --engine ctranslate2": ("nmt", nmt_ctranslate2_search),
    "CTranslate2": ("ctranslate2", ctranslate2_search),
    "Hugging Face MarianMT": ("transformers", marian_search),
    "Joey NMT": ("joeynmt", joey_search),
}


def parameters(workload: dict[str, Any]) -> "tuple[Tensor, dict[tuple[str, str, str, str], Tensor]]":
    """The model's embedding [V, D], and its other weights by stack, layer, part and kind, so that each peer may name them as it
    does: self.q, self.k, self.v, self.out, self.norm, the same of cross, inner, outer, norm; weight or bias.
    """
    from safetensors.torch import load_file

    weights, layers = load_file(Path(workload["model"]) / "model.safetensors"), {}
    parts = {"self_attention": "self", "cross_attention": "cross"}
    for name, weight in weights.items():
        if name == "embedding.weight":
            continue
        stack, layer, *path, kind = name.split(".")
        if path[0] == "add_norms":
            owners = ("self.norm", "norm") if stack == "encoder" else ("self.norm", "cross.norm", "norm")
            layers[stack, layer, owners[int(path[1])], kind] = weight
        elif path[0] == "feed_forward":
            layers[stack, layer, path[1], kind] = weight
        elif path[-1] == "out":
            layers[stack, layer, f"{parts[path[0]]}.out", kind] = weight
        else:  # in_weight, in_bias: queries, keys and values in one
            for part, piece in zip("qkv", weight.chunk(3), strict=True):
                layers[stack, layer, f"{parts[path[0]]}.{part}", kind.removeprefix("in_")] = piece
    return weights["embedding.weight"], layers


def load(model: Any, weights: "dict[str, Tensor]", epsilon: float) -> None:
    """Every weight that the model has, and no other; the epsilon for every LayerNorm."""
    import torch

    model.load_state_dict(weights)
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = epsilon
    model.eval()


def padded(batch: Ids, pad: int) -> "Tensor":
    """[B, S], each sentence with EOS."""
    import torch

    rows = [torch.tensor([*ids, EOS]) for ids in batch]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)


def cut(found: Ids, batch: Ids) -> Ids:
    """Translations up to EOS, or to the length that each may have in nmt: most peers know one limit a batch."""
    ended = [ids[: ids.index(EOS)] if EOS in ids else ids for ids in found]
    return [ids[: len(source) + EXTRA] for ids, source in zip(ended, batch, strict=True)]


def main() -> None:
    name, precision, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    answer = open_channel()
    package, build = CONTENDERS[name]
    version = importlib.metadata.version(package)  # first, for without it there is nothing to build
    workload = json.loads((folder / "workload.json").read_text())
    search = build(workload, precision)

    def translate(request: dict[str, Any]) -> dict[str, Any]:
        batches = [[workload["sources"][number] for number in batch] for batch in request["batches"]]
        asked = [[batch] for batch in batches] if request["alone"] else [batches]
        return {"translations": [ids for each in asked for found in search(each, request["beam"]) for ids in found]}

    answer(version=version, memory=peak_memory())
    serve(answer, translate)
    answer()


if __name__ == "__main__":
    main()
