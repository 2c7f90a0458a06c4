"""`nmt export`: the model in CTranslate2's format, compared with the original model before it is put in place."""

import json
import random
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from nmt.data.vocabulary import Vocabulary
from nmt.errors import NmtError, UsageError
from nmt.ids import BOS, EOS, FIRST_PIECE, UNK
from nmt.model.attention import MultiHeadAttention
from nmt.model.decoder_only import DecoderOnly
from nmt.model.network import Network
from nmt.model.transformer import AddNorm, FeedForward, Transformer, sinusoids
from nmt.reporting import Reporter
from nmt.saved_model import SavedModel
from nmt.scoring.metrics import Score, bleu
from nmt.storage import replaced_folder
from nmt.translation import ctranslate2_engine
from nmt.translation.ctranslate2_engine import CONFIG, engine_for, library
from nmt.translation.engine import TorchEngine
from nmt.translation.hypothesis import Engine, SearchOptions
from nmt.translation.translator import MAX_SOURCE_PIECES, Translator

MAX_POSITIONS = 1_024  # of a side; CTranslate2 fails beyond the table of positions, but no search comes near its end
COMPARED_SENTENCES = 200
# The share of sentences whose greedy ids may differ, though one always may: rounding can decide a near tie differently. int8
# rounds more: trained models differ in a tenth, and a model that differs in most sentences is damaged rather than rounded.
MAX_DIFFERENT = {"fp32": 0.01, "int8": 0.5}
BLEU_LINES = 500


def export(path: Path, quantization: str | None, reporter: Reporter) -> None:
    """Write the model directory's export. Raises UsageError, and NmtError if the export translates differently."""
    library()
    if quantization not in (None, "int8"):
        raise UsageError(f"--quantization {quantization}: must be int8; without the option weights stay fp32")
    model = SavedModel.open(path)
    engine_class = engine_for(model.description.model)
    folder, vocabulary = ctranslate2_engine.export_folder(model), model.vocabulary
    heldout = model.heldout("valid") or model.heldout("test")
    # Hashed before the network is read: if training replaces the weights in between, the export counts as outdated.
    digests = {"weights": model.weights_sha256(), "vocabulary": vocabulary.sha256}
    network = model.network()
    engine = TorchEngine(network)
    sources = _sources(vocabulary, heldout[0] if heldout else [])
    with replaced_folder(folder) as part:
        for kind in dict.fromkeys((None, quantization)):  # fp32 first, where nothing is rounded
            precision = kind or "fp32"
            write(part, network, vocabulary, kind, digests | {"precision": precision})
            exported = engine_class(part, vocabulary)
            # A model translates random sentences without confidence: after one rounding error int8 differs to the end.
            pieces = 1 if kind and not heldout else None
            equal = compare(engine, exported, sources, precision, pieces)
            reporter.say(f"checked: greedy search finds the same for {equal} of {len(sources)} sentences in {precision}")
        if quantization and heldout:
            reporter.say(f"before, fp32 in PyTorch: {_bleu(engine, model, *heldout)}")
            reporter.say(f"after, {quantization} in CTranslate2: {_bleu(exported, model, *heldout)}")
    size = sum(file.stat().st_size for file in folder.iterdir())
    reporter.say(f"{folder}: {size / 2**20:,.0f} MiB in {precision}; next: nmt translate -m {path} --engine ctranslate2 FILE")


def write(folder: Path, network: Network, vocabulary: Vocabulary, quantization: str | None, record: dict[str, Any]) -> None:
    """Write the network in CTranslate2's format, replacing an earlier one, with the record of what it was made from."""
    spec = specification(network, vocabulary)
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(folder))
    config = json.loads((folder / CONFIG).read_bytes())
    config[ctranslate2_engine.EXPORT_RECORD] = record | {"content": ctranslate2_engine.content_digest(folder)}
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def compare(engine: Engine, exported: Engine, sources: list[list[int]], precision: str, pieces: int | None = None) -> int:
    """The number of sources with the same greedy ids in both engines, or with the same first `pieces` of them.

    Raises NmtError if too few are the same.
    """
    batches = [sources[start : start + 20] for start in range(0, len(sources), 20)]
    ours, theirs = (chain(*each.search_all(batches, SearchOptions(beam=1))) for each in (engine, exported))
    equal = sum(a[0].ids[:pieces] == b[0].ids[:pieces] for a, b in zip(ours, theirs, strict=True))
    different = len(sources) - equal
    if different > max(1, MAX_DIFFERENT[precision] * len(sources)):
        found = f"{different} of {len(sources)} sentences otherwise than the model"
        advice = "try another version of ctranslate2" if precision == "fp32" else "leave --quantization out"
        raise NmtError(f"the export in {precision} translates {found} and was not put in place; {advice}")
    return equal


def _sources(vocabulary: Vocabulary, lines: list[str]) -> list[list[int]]:
    """The ids of the first lines, or random ids if there are no lines, longest first."""
    encoded = map(vocabulary.encode, lines[:COMPARED_SENTENCES])
    sources = [ids for ids in encoded if 0 < len(ids) <= MAX_SOURCE_PIECES]
    if not sources:
        draw, pieces = random.Random(1), range(FIRST_PIECE, len(vocabulary))
        sources = [draw.choices(pieces, k=draw.randint(1, 20)) for _ in range(COMPARED_SENTENCES)]
    return sorted(sources, key=len, reverse=True)


def _bleu(engine: Engine, model: SavedModel, source: list[str], reference: list[str]) -> Score:
    copies = model.description.data.copies_letterless
    translator = Translator(
        engine, model.vocabulary, *model.description.languages, copies=copies, network=model.description.model
    )
    return bleu(translator.translate(source[:BLEU_LINES]), [reference[:BLEU_LINES]])


def specification(network: Network, vocabulary: Vocabulary) -> Any:
    """CTranslate2's description of a network, with copies of the weights, because quantization scales them in place."""
    specs, config = library().specs, network.config
    activation = {"relu": specs.Activation.RELU, "gelu": specs.Activation.GELUTanh}[config.activation]
    shape = {"num_heads": config.heads, "pre_norm": config.norm == "pre", "activation": activation}
    pieces = vocabulary.pieces(range(len(vocabulary)))
    if isinstance(network, DecoderOnly):
        spec = specs.TransformerDecoderModelSpec.from_config(config.layers, **shape)
        _stack(spec.decoder, network, network.stack, network.norm)
        spec.register_vocabulary(pieces)
    else:
        assert isinstance(network, Transformer)
        spec = specs.TransformerSpec.from_config([config.layers] * 2, **shape)
        _stack(spec.encoder, network, network.encoder, network.encoder_norm)
        _stack(spec.decoder, network, network.decoder, network.decoder_norm)
        rows = config.d_model, 2 * config.d_model  # of the queries, and of keys and values
        for into, layer in zip(spec.decoder.layer, network.decoder, strict=True):
            _attention(into.attention, layer.cross_attention, layer.add_norms[1], rows)
        spec.register_source_vocabulary(pieces)
        spec.register_target_vocabulary(pieces)
        spec.config.decoder_start_token, spec.config.add_source_eos = pieces[BOS], True
    spec.decoder.projection.weight = _copy(network.output)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = pieces[UNK], pieces[BOS], pieces[EOS]
    spec.config.layer_norm_epsilon = config.layer_norm_epsilon
    return spec


def _stack(spec: Any, network: Transformer | DecoderOnly, layers: Iterable[Any], norm: nn.Module) -> None:
    """Embeddings, positions, the layers without their attention to another stack, and the norm at the end."""
    config, embedding = network.config, network.embedding
    embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    embeddings.weight = _copy(embedding.weight)
    spec.scale_embeddings = not embedding.learned
    sides = 2 if isinstance(network, DecoderOnly) else 1
    positions = embedding.positions if embedding.learned else sinusoids(sides * MAX_POSITIONS, config.d_model)
    spec.position_encodings.encodings = _copy(positions)
    if config.norm == "pre":
        _norm(spec.layer_norm, norm)
    for into, layer in zip(spec.layer, layers, strict=True):
        _attention(into.self_attention, layer.self_attention, layer.add_norms[0], [3 * config.d_model])
        _feed_forward(into.ffn, layer.feed_forward, layer.add_norms[-1])


def _copy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy().copy()


def _linear(spec: Any, weight: Tensor, bias: Tensor) -> None:
    spec.weight, spec.bias = _copy(weight), _copy(bias)


def _norm(spec: Any, norm: nn.Module) -> None:
    assert isinstance(norm, nn.LayerNorm)
    spec.gamma, spec.beta = _copy(norm.weight), _copy(norm.bias)


def _attention(spec: Any, attention: MultiHeadAttention, add_norm: AddNorm, blocks: Sequence[int]) -> None:
    """`blocks` are the rows of each input projection: CTranslate2 stacks those of the same states, as ours are stacked."""
    _norm(spec.layer_norm, add_norm.norm)
    weights = (*attention.in_weight.split(blocks), attention.out.weight)
    biases = (*attention.in_bias.split(blocks), attention.out.bias)
    for linear, weight, bias in zip(spec.linear, weights, biases, strict=True):
        _linear(linear, weight, bias)


def _feed_forward(spec: Any, feed_forward: FeedForward, add_norm: AddNorm) -> None:
    _norm(spec.layer_norm, add_norm.norm)
    _linear(spec.linear_0, feed_forward.inner.weight, feed_forward.inner.bias)
    _linear(spec.linear_1, feed_forward.outer.weight, feed_forward.outer.bias)
