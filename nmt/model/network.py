"""What the architectures have in common, and all that the rest of the tool knows of them.

Training reads a source with `encode` and a whole target with `decode`; search decodes the target token by token, with a cache.
Both multiply the states with `output`, which gives the logits of the next token.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nmt.config import ModelConfig
from nmt.ids import PAD


class Network(nn.Module):
    """A translation model over ids, which must come from a vocabulary of V pieces."""

    config: ModelConfig

    @property
    @abstractmethod
    def output(self) -> Tensor:
        """The output projection [V, D], without a bias."""

    @property
    @abstractmethod
    def attentions(self) -> dict[str, Sequence[Any]]:
        """The modules that can record their weights, one a layer: `encoder`, `decoder` and `cross`, as far as there are such.

        The weights of `encoder` are those of the first call, the others those of the last: the source's columns are first.
        """

    @property
    @abstractmethod
    def layers(self) -> Sequence[nn.Module]:
        """The modules that are worth compiling one by one."""

    @abstractmethod
    def encode(self, source: Tensor) -> Any:
        """Source ids [B, S], each ending with EOS and padded with PAD -> a memory of them.

        Its method `keep` goes on with some sentences [B'] alone.
        """

    @abstractmethod
    def new_cache(self, memory: Any) -> Any:
        """What the model will remember of the target so far, at first nothing, for one hypothesis a sentence.

        Its methods are `keep`, as that of the memory, and `reorder`, which goes on with some hypotheses of each sentence:
        [B, beam], numbered within the sentence.
        """

    @abstractmethod
    def decode(self, target: Tensor, memory: Any, cache: Any = None) -> Tensor:
        """Target ids [N, T], beginning with BOS -> states [N, T, D].

        With a cache, `target` holds only the tokens that the cache lacks, one or several. N may be a multiple of the memory's
        B; the hypotheses of a sentence are then side by side.
        """

    def count_parameters(self) -> int:
        """The number of trainable parameters; a shared matrix counts once."""
        return sum(parameter.numel() for parameter in self.parameters())


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """B lists of ids, padded with PAD -> [B, T]. The copy to a GPU does not block."""
    ids = nn.utils.rnn.pad_sequence(list(map(torch.tensor, rows)), batch_first=True, padding_value=PAD)
    return ids.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else ids
