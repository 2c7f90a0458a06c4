"""How large a Transformer is and what it takes, by formula: parameters, floating-point operations, bytes.

All follows from the sizes in a ModelConfig and the vocabulary's length V, so nothing here needs weights or torch.
"""

from dataclasses import asdict, dataclass

from nmt.config import ModelConfig

FP32, BF16 = 4, 2  # bytes a number
TRAINING = 3  # times the forward FLOPs: backward, each product has one for its input and one for its weights


def attention(d_model: int) -> int:
    """Parameters of queries, keys, values and output, each a D x D matrix with a bias."""
    return 4 * (d_model * d_model + d_model)


def feed_forward(d_model: int, d_ff: int) -> int:
    """Parameters of the two layers, with their biases."""
    return 2 * d_model * d_ff + d_ff + d_model


def layer_norm(d_model: int) -> int:
    """Parameters of one LayerNorm: a gain and a bias."""
    return 2 * d_model


@dataclass(frozen=True)
class Layer:
    """Parameters of one layer, by sub-layer."""

    self_attention: int
    cross_attention: int  # 0 in the encoder
    feed_forward: int
    layer_norms: int

    @property
    def total(self) -> int:
        return sum(asdict(self).values())


@dataclass(frozen=True)
class Parameters:
    """Parameters of the whole model, by part."""

    encoder_layer: Layer
    decoder_layer: Layer
    final_norm: int  # after each stack: pre-LN alone has one
    embedding: int  # [V, D], for source, target and output
    encoder: int  # all its layers, with the final norm
    decoder: int

    @property
    def total(self) -> int:
        return self.embedding + self.encoder + self.decoder


def parameters(config: ModelConfig, vocabulary_size: int) -> Parameters:
    """As `Transformer(config, vocabulary_size)` has them, the shared matrix counted once."""
    own, ff = attention(config.d_model), feed_forward(config.d_model, config.d_ff)
    norm = layer_norm(config.d_model)
    encoder, decoder = Layer(own, 0, ff, 2 * norm), Layer(own, own, ff, 3 * norm)
    final = norm if config.norm == "pre" else 0
    stacks = (config.layers * layer.total + final for layer in (encoder, decoder))
    return Parameters(encoder, decoder, final, vocabulary_size * config.d_model, *stacks)


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of one sentence pair's forward pass, by part."""

    encode: int  # the encoder, and its keys and values for the decoder's cross-attention: once a sentence
    decode: int  # the decoder over all target tokens
    project: int  # its states onto the vocabulary

    @property
    def total(self) -> int:
        return self.encode + self.decode + self.project


def flops(config: ModelConfig, vocabulary_size: int, source: int, target: int, cached: bool = False) -> Flops:
    """Of S source and T target tokens, EOS included: matrix products alone, [m, k] by [k, n] being 2mnk.

    Attention is Q K^T and the weights times V, 4D for each query and key. All T^2 are computed at once, although half are
    masked; token by token with a cache, each of T queries meets the keys up to its own, T(T + 1)/2 in all.

    Far below the paper's table 2 (3.3e18 to train base), which multiplies the hours by what its GPUs could sustain.
    """
    d, layers = config.d_model, config.layers
    projection, ff, pair = 2 * d * d, 4 * d * config.d_ff, 4 * d
    own_pairs = target * (target + 1) // 2 if cached else target * target
    return Flops(
        layers * (source * (4 * projection + ff) + source * source * pair + source * 2 * projection),
        layers * (target * (6 * projection + ff) + (own_pairs + target * source) * pair),
        2 * target * d * vocabulary_size,
    )


def memory(config: ModelConfig, total: int) -> dict[str, int]:
    """Bytes that `total` parameters take, activations not counted."""
    return {
        "weights_fp32": FP32 * total,
        "weights_bf16": BF16 * total,
        "training_state": 4 * FP32 * total,  # weights, gradients and Adam's two moments
        "checkpoint": 3 * FP32 * total,  # weights and moments
        "cache_per_token": config.layers * 2 * config.d_model * FP32,  # a key and a value a layer
    }
