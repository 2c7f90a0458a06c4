"""What the model attends to while it translates one sentence, for every layer and head.

The Transformer has three attentions (paper, section 3.2.3). The one attention of a decoder-only network is cut into the same
three parts. A recurrent network has only that of target to source.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from nmt.errors import UsageError
from nmt.ids import BOS, EOS
from nmt.lines import clean, needs_no_translation
from nmt.model.network import Network, padded
from nmt.saved_model import SavedModel
from nmt.translation import engine as torch_engine
from nmt.translation.hypothesis import SearchOptions
from nmt.translation.splitting import trimmed

MAX_SHOWN_PIECES = 200  # the maps grow with the square of the length, and nobody can read larger ones
Maps = tuple[np.ndarray, np.ndarray, np.ndarray]  # encoder, decoder and cross attention


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights. Each row belongs to the piece that attends; its weights over the columns sum to 1.

    In a decoder-only network, a row of `cross` and the same row of `decoder` are one softmax and together sum to 1.
    """

    text: str
    translation: str
    languages: tuple[str, str]  # codes of source and target
    source: list[str]  # the S pieces read, as SentencePiece writes them; EOS last, but in one stack without it
    read: list[str]  # the T pieces that the decoder reads: BOS and the translation
    written: list[str]  # the T pieces that the decoder predicts: at step t it reads read[t] and writes written[t]
    encoder: np.ndarray  # [layers, H, S, S]: source to source; empty if recurrent
    decoder: np.ndarray  # [layers, H, T, T]: target to target, zero above the diagonal; empty if recurrent
    cross: np.ndarray  # [layers, H, T, S]: target to source
    d_model: int
    architecture: str = "transformer"
    mask: str = "prefix"  # of the source in one stack: see ModelConfig


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
    maps = attention_maps(engine.model, source, best.ids)
    encoded, read, written = map(vocabulary.pieces, ([*source, EOS], [BOS, *best.ids], [*best.ids, EOS]))
    encoded = encoded[: maps[2].shape[3]]  # one stack reads no EOS of the source
    translation, config = vocabulary.decode(best.ids), engine.model.config
    shape = config.d_model, config.architecture, config.mask
    return AttentionMaps(text, translation, description.languages, encoded, read, written, *maps, *shape)


@torch.inference_mode()
def attention_maps(model: Network, source: list[int], target: list[int]) -> Maps:
    """The three attentions in one teacher-forced pass, with the shapes of AttentionMaps, over ids without BOS and EOS."""
    device, uses = model.output.device, model.attentions
    with ExitStack() as stack:
        modules = {module for layers in uses.values() for module in layers}
        calls = {module: stack.enter_context(module.recording()) for module in modules}
        memory = model.encode(padded([[*source, EOS]], device))
        model.decode(padded([[BOS, *target]], device), memory)

    def maps(use: str, call: int, columns: slice) -> np.ndarray:
        # Each call is over a batch of one: [1, H, T, S] -> [layers, H, T, S]
        found = [calls[layer][call][..., columns] for layer in uses.get(use, ())]
        return torch.cat(found).float().cpu().numpy() if found else np.zeros((0, 0, 0, 0), np.float32)

    encoder = maps("encoder", 0, slice(None))
    decoder = maps("decoder", -1, slice(-len(target) - 1, None))
    return encoder, decoder, maps("cross", -1, slice(encoder.shape[3] or None))
