"""`nmt export`: the model in CTranslate2's format, checked against the model it came from before it is put in place."""

import json
import random
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import Tensor

from nmt.data.vocabulary import Vocabulary
from nmt.errors import NmtError, UsageError
from nmt.ids import BOS, EOS, FIRST_PIECE, UNK
from nmt.lines import parse_json, replaced_folder
from nmt.model.attention import MultiHeadAttention
from nmt.model.transformer import DecoderLayer, EncoderLayer, FeedForward, Transformer, sinusoids
from nmt.reporting import Reporter
from nmt.scoring.metrics import Score, bleu
from nmt.translation.ctranslate2_engine import (
    CONFIG,
    MADE_FROM,
    CTranslate2Engine,
    content,
    library,
    model_directory,
    stamp,
)
from nmt.translation.engine import TorchEngine
from nmt.translation.hypothesis import Engine, SearchOptions
from nmt.translation.translator import LONGEST, Translator

POSITIONS = 1_024  # rows of the table of positions, beyond which CTranslate2 fails; no search comes near
SENTENCES = 200  # go through both engines
# Of them may have other greedy ids, or one: rounding tips a tie the other way. int8 rounds more: trained models differ in one
# of ten, and one that differs in most of them is damaged, not rounded.
OTHERS = {"fp32": 0.01, "int8": 0.5}
LINES = 500  # have their BLEU taken before and after quantization


def export(path: Path, quantization: str | None, reporter: Reporter) -> None:
    """Write the model directory's export. Raises UsageError, and NmtError where the export translates otherwise."""
    library()
    if quantization not in (None, "int8"):
        raise UsageError(f"--quantization {quantization}: must be int8; without the option weights stay fp32")
    directory = model_directory(path)
    heldout = directory.read_heldout("valid") or directory.read_heldout("test")
    vocabulary, told = directory.read_vocabulary(), directory.describe()
    # Both before the weights are read: should training replace them, the export seems too old.
    made_from = {"stamp": stamp(directory), "weights": directory.weights_sha256()}
    made_from |= {"vocabulary": vocabulary.sha256, "precision": quantization or "fp32"}
    model = directory.read_model(directory.weights_path)
    engine = TorchEngine(model)
    with replaced_folder(directory.ctranslate2) as part:
        sources = _sources(vocabulary, heldout[0] if heldout else [])
        reporter.say(f"translating {len(sources)} sentences with both engines")
        for quantized in dict.fromkeys((None, quantization)):  # fp32 first, in which all must be equal
            write(part, model, vocabulary, quantized, made_from)
            exported, precision = CTranslate2Engine(part, vocabulary), quantized or "fp32"
            # Of noise a model is sure of nothing: after one rounded choice int8 says something else to the end.
            first = 1 if quantized and not heldout else None
            equal = check(engine, exported, sources, precision, first)
            same = "first piece" if first else "greedy translation"
            reporter.say(f"checked: {equal} of {len(sources)} have the same {same} in {precision}")
        if quantization and heldout:
            copies = told.data.copies_letterless
            ours, theirs = (Translator(each, vocabulary, *told.languages, copies=copies) for each in (engine, exported))
            reporter.say(f"before, fp32 in PyTorch: {_bleu(ours, heldout)}")
            reporter.say(f"after, {quantization} in CTranslate2: {_bleu(theirs, heldout)}")
        elif quantization:
            reporter.say(f"no held-out text: what {quantization} costs in BLEU is not known")
    size = sum(file.stat().st_size for file in directory.ctranslate2.iterdir())
    reporter.say(
        f"{directory.ctranslate2}: {model.count_parameters():,} parameters in {made_from['precision']}, "
        f"{size / 2**20:,.0f} MiB. Next: nmt translate -m {path} --engine ctranslate2 FILE"
    )


def write(
    folder: Path, model: Transformer, vocabulary: Vocabulary, quantization: str | None, made_from: dict[str, Any]
) -> None:
    """Write the model's files, in place of those that are there."""
    spec = specification(model, vocabulary)
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(folder))
    told = parse_json((folder / CONFIG).read_bytes()) | {MADE_FROM: made_from | {"content": content(folder)}}
    (folder / CONFIG).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def check(engine: Engine, exported: Engine, sources: list[list[int]], precision: str, first: int | None = None) -> int:
    """How many sources have the same greedy ids, or so many of the first the same.

    Raises NmtError where they are too few to trust what was exported.
    """
    batches = [sources[start : start + 20] for start in range(0, len(sources), 20)]
    ours, theirs = (chain(*each.search_all(batches, SearchOptions(beam=1))) for each in (engine, exported))
    equal = sum(a[0].ids[:first] == b[0].ids[:first] for a, b in zip(ours, theirs, strict=True))
    others = len(sources) - equal
    if others > max(1, OTHERS[precision] * len(sources)):
        help = "another version of ctranslate2 may help" if precision == "fp32" else "leave --quantization out"
        raise NmtError(
            f"the model exported in {precision} translates {others} of {len(sources)} sentences otherwise than the model "
            f"does, so it was not put in place; {help}"
        )
    return equal


def _sources(vocabulary: Vocabulary, lines: list[str]) -> list[list[int]]:
    """Ids to check with, the longest first: of the first lines, or random ones where there are no lines."""
    draw = random.Random(1)
    ids = [ids for line in lines[:SENTENCES] if 0 < len(ids := vocabulary.encode(line)) <= LONGEST] or [
        draw.choices(range(FIRST_PIECE, len(vocabulary)), k=draw.randint(1, 20)) for _ in range(SENTENCES)
    ]
    return sorted(ids, key=len, reverse=True)


def _bleu(translator: Translator, heldout: tuple[list[str], list[str]]) -> Score:
    source, reference = (lines[:LINES] for lines in heldout)
    return bleu(translator.translate(source), [reference])


def specification(model: Transformer, vocabulary: Vocabulary) -> Any:
    """A `TransformerSpec` of CTranslate2 that holds copies of the weights: to quantise it scales them in place."""
    specs, config = library().specs, model.config
    spec = specs.TransformerSpec.from_config(
        (config.layers, config.layers), config.heads, pre_norm=config.norm == "pre", activation=specs.Activation.RELU
    )
    matrix, positions = _copy(model.embedding.weight), sinusoids(POSITIONS, config.d_model).numpy()
    for stack, embeddings in ((spec.encoder, spec.encoder.embeddings[0]), (spec.decoder, spec.decoder.embeddings)):
        embeddings.weight = matrix
        stack.scale_embeddings = True
        stack.position_encodings.encodings = positions
    spec.decoder.projection.weight = matrix
    if config.norm == "pre":
        _norm(spec.encoder.layer_norm, model.encoder_norm)
        _norm(spec.decoder.layer_norm, model.decoder_norm)
    for into, encoder in zip(spec.encoder.layer, cast("list[EncoderLayer]", model.encoder), strict=True):
        _self_attention(into.self_attention, encoder.self_attention, encoder.add_norms[0].norm)
        _feed_forward(into.ffn, encoder.feed_forward, encoder.add_norms[1].norm)
    for into, decoder in zip(spec.decoder.layer, cast("list[DecoderLayer]", model.decoder), strict=True):
        _self_attention(into.self_attention, decoder.self_attention, decoder.add_norms[0].norm)
        _cross_attention(into.attention, decoder.cross_attention, decoder.add_norms[1].norm)
        _feed_forward(into.ffn, decoder.feed_forward, decoder.add_norms[2].norm)
    pieces = vocabulary.pieces(range(len(vocabulary)))
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = pieces[UNK], pieces[BOS], pieces[EOS]
    spec.config.decoder_start_token, spec.config.add_source_eos = pieces[BOS], True
    spec.config.layer_norm_epsilon = config.layer_norm_epsilon
    return spec


def _copy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy().copy()


def _linear(spec: Any, weight: Tensor, bias: Tensor) -> None:
    spec.weight, spec.bias = _copy(weight), _copy(bias)


def _norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = _copy(norm.weight), _copy(norm.bias)


def _self_attention(spec: Any, attention: MultiHeadAttention, norm: Any) -> None:
    _norm(spec.layer_norm, norm)
    _linear(spec.linear[0], attention.in_weight, attention.in_bias)  # queries, keys and values joined, as ours are
    _linear(spec.linear[1], attention.out.weight, attention.out.bias)


def _cross_attention(spec: Any, attention: MultiHeadAttention, norm: Any) -> None:
    d_model = attention.in_bias.size(0) // 3
    _norm(spec.layer_norm, norm)
    _linear(spec.linear[0], attention.in_weight[:d_model], attention.in_bias[:d_model])
    _linear(spec.linear[1], attention.in_weight[d_model:], attention.in_bias[d_model:])
    _linear(spec.linear[2], attention.out.weight, attention.out.bias)


def _feed_forward(spec: Any, feed_forward: FeedForward, norm: Any) -> None:
    _norm(spec.layer_norm, norm)
    _linear(spec.linear_0, feed_forward.inner.weight, feed_forward.inner.bias)
    _linear(spec.linear_1, feed_forward.outer.weight, feed_forward.outer.bias)
