"""All three attentions of the model (paper, section 3.2.3) as it translates one sentence, in every layer and head."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt.errors import UsageError
from nmt.ids import BOS, EOS
from nmt.lines import clean, needs_no_translation
from nmt.model.transformer import Transformer, padded
from nmt.model_directory import ModelDirectory
from nmt.translation.hypothesis import SearchOptions
from nmt.translation.loading import load_torch_engine
from nmt.translation.splitting import trimmed

LONGEST = 200  # pieces; the weights grow with their square, and nobody could look at more


@dataclass(frozen=True)
class AttentionMaps:
    """Who looks at what. In each map a row is a piece that looks, and its weights over the columns sum to 1."""

    text: str
    translation: str
    languages: tuple[str, str]  # codes of source and target
    source: list[str]  # the S pieces that the encoder reads, EOS at last, as SentencePiece writes them
    read: list[str]  # the T pieces that the decoder reads: BOS and the translation's
    written: list[str]  # the T pieces that it writes: at step t it reads read[t] and writes written[t]
    encoder: np.ndarray  # [layers, H, S, S]: source to source
    decoder: np.ndarray  # [layers, H, T, T]: target to target, nothing above the diagonal
    cross: np.ndarray  # [layers, H, T, S]: target to source
    d_model: int


def attend(path: Path, text: str, device: str = "auto") -> AttentionMaps:
    """Translate the text as one sentence, as `nmt translate --no-split` does in fp32, with the attentions of it.

    `path` is a model directory or a checkpoint folder. Raises UsageError for a text that is not translated or too long.
    """
    text, directory = clean(text), ModelDirectory.containing(path)
    told = directory.describe()
    if needs_no_translation(text, told.data.copies_letterless):
        raise UsageError(f"'{text}' holds no letter, so that it is not translated; give a sentence")
    _, text, _ = trimmed(text)
    engine = load_torch_engine(path, device, "fp32")
    vocabulary = directory.read_vocabulary()
    source = vocabulary.encode(text)
    if len(source) > LONGEST:
        raise UsageError(f"the text has {len(source):,} pieces, and {LONGEST} can be shown; give a shorter sentence")
    [[best]] = engine.search([source], SearchOptions())
    encoder, decoder, cross = watch(engine.model, source, best.ids)
    return AttentionMaps(
        text,
        vocabulary.decode(best.ids),
        told.languages,
        vocabulary.pieces([*source, EOS]),
        vocabulary.pieces([BOS, *best.ids]),
        vocabulary.pieces([*best.ids, EOS]),
        encoder,
        decoder,
        cross,
        engine.model.config.d_model,
    )


@torch.inference_mode()
def watch(model: Transformer, source: list[int], target: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The weights of encoder, decoder and cross attention, as AttentionMaps has them, in one teacher-forced pass.

    `source` and `target` are ids without BOS and EOS.
    """
    device = model.embedding.weight.device
    uses: Any = (
        [layer.self_attention for layer in model.encoder],
        [layer.self_attention for layer in model.decoder],
        [layer.cross_attention for layer in model.decoder],
    )
    with ExitStack() as watching:
        seen = [[watching.enter_context(attention.watched()) for attention in use] for use in uses]
        memory = model.encode(padded([[*source, EOS]], device))
        model.decode(padded([[BOS, *target]], device), memory)
    # a list of calls for each layer, of which there was one, over a batch of one: [1, H, T, S] -> [layers, H, T, S]
    encoder, decoder, cross = (torch.cat([weights for [weights] in use]).float().cpu().numpy() for use in seen)
    return encoder, decoder, cross
