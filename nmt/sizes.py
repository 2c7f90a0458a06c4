"""The size and cost of a Transformer by formula: parameters, floating-point operations, bytes.

Everything follows from a ModelConfig and the vocabulary size V; neither weights nor torch are needed.
"""

from typing import Any

from nmt.config import ModelConfig

TRAINING_FACTOR = 3  # forward FLOPs to training FLOPs: each product has a gradient for its input and one for its weights


def parameters(config: ModelConfig, vocabulary_size: int) -> dict[str, Any]:
    """The parameters of `Transformer(config, vocabulary_size)`, whose shared matrix counts once:

    total, embedding, encoder, decoder, final_norm (in each of the two, with pre-LN only), and encoder_layer and decoder_layer
    by sub-layer.
    """
    d, d_ff = config.d_model, config.d_ff
    attention = 4 * (d * d + d)  # queries, keys, values and output, with biases
    feed_forward = 2 * d * d_ff + d_ff + d
    norm = 2 * d  # gain and bias
    encoder_layer = {"self_attention": attention, "cross_attention": 0, "feed_forward": feed_forward, "layer_norms": 2 * norm}
    decoder_layer = encoder_layer | {"cross_attention": attention, "layer_norms": 3 * norm}
    final_norm = norm if config.norm == "pre" else 0
    encoder, decoder = (config.layers * sum(layer.values()) + final_norm for layer in (encoder_layer, decoder_layer))
    parts = {"embedding": vocabulary_size * d, "encoder": encoder, "decoder": decoder}
    by_layer = {"final_norm": final_norm, "encoder_layer": encoder_layer, "decoder_layer": decoder_layer}
    return {"total": sum(parts.values())} | parts | by_layer


def flops(config: ModelConfig, vocabulary_size: int, source: int, target: int) -> dict[str, int]:
    """Floating-point operations of a forward pass over S source and T target tokens, EOS included:

    encode (with the keys and values of cross-attention, once per sentence), decode, and project (states to vocabulary).

    Counts matrix products only; [m, k] by [k, n] costs 2mnk. Attention (QK^T, then the weights times V) costs 4D per query
    and key, half of which are masked in the decoder.

    The result is far below table 2 of the paper (3.3e18 to train base), which multiplies GPU hours by sustained throughput.
    """
    # Six projections per token on either side: four of self-attention, and of cross-attention keys and values in the encoder,
    # queries and output in the decoder.
    per_token = 6 * 2 * config.d_model**2 + 4 * config.d_model * config.d_ff
    per_pair = 4 * config.d_model
    return {
        "encode": config.layers * (source * per_token + source * source * per_pair),
        "decode": config.layers * (target * per_token + target * (target + source) * per_pair),
        "project": 2 * target * config.d_model * vocabulary_size,
    }


def memory(config: ModelConfig, parameter_count: int) -> dict[str, int]:
    """Bytes by use, without activations."""
    fp32 = 4 * parameter_count
    return {
        "weights_fp32": fp32,
        "weights_bf16": fp32 // 2,
        "training_state": 4 * fp32,  # weights, gradients and Adam's two moments
        "checkpoint": 3 * fp32,  # weights and moments
        "cache_per_token": 4 * config.layers * 2 * config.d_model,  # a key and a value per layer, in fp32
    }
