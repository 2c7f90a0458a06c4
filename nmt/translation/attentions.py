"""The model's three attentions (paper, section 3.2.3) while it translates one sentence, for every layer and head."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from nmt.errors import UsageError
from nmt.ids import BOS, EOS
from nmt.lines import clean, needs_no_translation
from nmt.model.transformer import Transformer, padded
from nmt.saved_model import SavedModel
from nmt.translation import engine as torch_engine
from nmt.translation.hypothesis import SearchOptions
from nmt.translation.splitting import trimmed

MAX_SHOWN_PIECES = 200  # the maps grow with the square of the length, and nobody can read larger ones
Maps = tuple[np.ndarray, np.ndarray, np.ndarray]  # encoder, decoder and cross attention


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights. Each row belongs to the piece that attends; its weights over the columns sum to 1."""

    text: str
    translation: str
    languages: tuple[str, str]  # codes of source and target
    source: list[str]  # the S pieces that the encoder reads, EOS last, as SentencePiece writes them
    read: list[str]  # the T pieces that the decoder reads: BOS and the translation
    written: list[str]  # the T pieces that the decoder predicts: at step t it reads read[t] and writes written[t]
    encoder: np.ndarray  # [layers, H, S, S]: source to source
    decoder: np.ndarray  # [layers, H, T, T]: target to target, zero above the diagonal
    cross: np.ndarray  # [layers, H, T, S]: target to source
    d_model: int


def attend(path: Path, text: str, device: str = "auto") -> AttentionMaps:
    """Translate the text as one sentence, like `nmt translate --no-split` in fp32, and return its attention.

    `path` is a model directory or a checkpoint folder. Raises UsageError if the text is too long or needs no translation.
    """
    model, text = SavedModel.open(path), clean(text)
    description, vocabulary = model.description, model.vocabulary
    if needs_no_translation(text, description.data.copies_letterless):
        raise UsageError(f"'{text}' holds no letter, so it is not translated; give a sentence")
    _, text, _ = trimmed(text)
    source = vocabulary.encode(text)
    if len(source) > MAX_SHOWN_PIECES:
        raise UsageError(f"the text has {len(source):,} pieces; give a sentence of at most {MAX_SHOWN_PIECES}")
    engine = torch_engine.load(model, device, "fp32")
    [[best]] = engine.search([source], SearchOptions())
    encoded, read, written = map(vocabulary.pieces, ([*source, EOS], [BOS, *best.ids], [*best.ids, EOS]))
    maps = attention_maps(engine.model, source, best.ids)
    translation, d_model = vocabulary.decode(best.ids), engine.model.config.d_model
    return AttentionMaps(text, translation, description.languages, encoded, read, written, *maps, d_model)


@torch.inference_mode()
def attention_maps(model: Transformer, source: list[int], target: list[int]) -> Maps:
    """The three attentions in one teacher-forced pass, with the shapes of AttentionMaps, over ids without BOS and EOS."""
    device = model.output.device
    stacks = ((model.encoder, "self_attention"), (model.decoder, "self_attention"), (model.decoder, "cross_attention"))
    with ExitStack() as stack:
        recorded = [[stack.enter_context(getattr(layer, use).recording()) for layer in layers] for layers, use in stacks]
        memory = model.encode(padded([[*source, EOS]], device))
        model.decode(padded([[BOS, *target]], device), memory)
    # Each layer has recorded one call over a batch of one: [1, H, T, S] -> [layers, H, T, S]
    encoder, decoder, cross = (torch.cat([weights for [weights] in use]).float().cpu().numpy() for use in recorded)
    return encoder, decoder, cross
