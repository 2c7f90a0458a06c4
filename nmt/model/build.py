"""From a configuration to a network."""

from nmt.config import ModelConfig
from nmt.model.decoder_only import DecoderOnly
from nmt.model.network import Network
from nmt.model.rnn import RecurrentNetwork
from nmt.model.transformer import Transformer

ARCHITECTURES: dict[str, type[Network]] = {
    "transformer": Transformer,
    "decoder-only": DecoderOnly,
    "rnn": RecurrentNetwork,
}


def build(config: ModelConfig, vocabulary_size: int) -> Network:
    """The network of this architecture, with new weights."""
    return ARCHITECTURES[config.architecture](config, vocabulary_size)
