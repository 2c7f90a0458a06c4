"""The size and cost of a network by formula: parameters, floating-point operations, bytes, steps in sequence.

Everything follows from a ModelConfig and the vocabulary size V; neither weights nor torch are needed.
"""

from typing import Any

from nmt.config import ModelConfig

TRAINING_FACTOR = 3  # forward FLOPs to training FLOPs: each product has a gradient for its input and one for its weights


def parameters(config: ModelConfig, vocabulary_size: int) -> dict[str, Any]:
    """The parameters of the network, whose shared matrix counts once:

    total, embedding (with the table of learned positions), encoder, decoder, final_norm (of each stack, with pre-LN only), and
    encoder_layer and decoder_layer by part. A single stack is the decoder.
    """
    d, d_ff = config.d_model, config.d_ff
    attention = 4 * (d * d + d)  # queries, keys, values and output, with biases
    feed_forward = 2 * d * d_ff + d_ff + d
    norm = 2 * d  # gain and bias
    final_norm = norm if config.norm == "pre" else 0
    embedding = vocabulary_size * d + (config.max_positions * d if config.positions == "learned" else 0)
    layer = {"self_attention": attention, "cross_attention": 0, "feed_forward": feed_forward, "layer_norms": 2 * norm}
    match config.architecture:
        case "transformer":
            encoder_layer, decoder_layer = layer, layer | {"cross_attention": attention, "layer_norms": 3 * norm}
        case "decoder-only":
            encoder_layer, decoder_layer = {}, layer
        case "rnn":
            embedding, final_norm = vocabulary_size * d, 0
            encoder_layer = {"gru": 2 * (3 * d * 2 * d + 6 * d)}  # two directions, three gates, from input and state
            decoder_layer = {
                "first_state": d * d + d,
                "attention": d * d + d + 2 * d * d + d,
                "gru": 3 * d * (3 * d + d) + 6 * d,
                "readout": 4 * d * d + d,
            }
    encoder, decoder = (
        config.layers * sum(layer.values()) + final_norm if layer else 0 for layer in (encoder_layer, decoder_layer)
    )
    parts = {"embedding": embedding, "encoder": encoder, "decoder": decoder}
    by_layer = {"final_norm": final_norm, "encoder_layer": encoder_layer, "decoder_layer": decoder_layer}
    return {"total": sum(parts.values())} | parts | by_layer


def flops(config: ModelConfig, vocabulary_size: int, source: int, target: int) -> dict[str, int]:
    """Floating-point operations of a forward pass over S source and T target tokens, EOS included:

    encode (with the keys and values for the target, once per sentence), decode, and project (states to vocabulary).

    Counts matrix products only; [m, k] by [k, n] costs 2mnk. Attention (QK^T, then the weights times V) costs 4D per query
    and key, half of which are masked in the decoder.

    The result is far below table 2 of the paper (3.3e18 to train base), which multiplies GPU hours by sustained throughput.
    """
    d, d_ff, layers = config.d_model, config.d_ff, config.layers
    per_pair = 4 * d
    match config.architecture:
        case "transformer":
            # Six projections per token on either side: four of self-attention, and of cross-attention keys and values in the
            # encoder, queries and output in the decoder.
            per_token = 6 * 2 * d**2 + 4 * d * d_ff
            encode = layers * (source * per_token + source * source * per_pair)
            decode = layers * (target * per_token + target * (target + source) * per_pair)
        case "decoder-only":
            per_token, read = 4 * 2 * d**2 + 4 * d * d_ff, source - 1  # it does not read the source's EOS
            encode = layers * (read * per_token + read * read * per_pair)
            decode = layers * (target * per_token + target * (target + read) * per_pair)
        case "rnn":
            encode = source * 2 * (2 * 3 * 2 * d**2 + 2 * d**2) + 2 * d**2  # both directions, the keys, the first state
            # The query, the scores and the mean of all source positions, the GRU, the readout.
            decode = target * 2 * (d**2 + source * 3 * d + 3 * 4 * d**2 + 4 * d**2)
    return {"encode": encode, "decode": decode, "project": 2 * target * d * vocabulary_size}


def steps(config: ModelConfig, source: int, target: int) -> dict[str, int]:
    """How many layers must wait for the one before, to encode S tokens, to train on T, and to translate into T, EOS included.

    Attention has all tokens of a layer at once, a recurrent network one after the other (paper, table 1).
    """
    if config.architecture == "rnn":
        return {"encode": source, "train": source + target, "translate": source + target}
    encode = config.layers
    return {"encode": encode, "train": 2 * encode, "translate": encode + target * encode}


def memory(config: ModelConfig, parameter_count: int) -> dict[str, int]:
    """Bytes by use, without activations."""
    fp32 = 4 * parameter_count
    return {
        "weights_fp32": fp32,
        "weights_bf16": fp32 // 2,
        "training_state": 4 * fp32,  # weights, gradients and Adam's two moments
        "checkpoint": 3 * fp32,  # weights and moments
        # A key and a value per layer, in fp32; a recurrent network remembers one state, whatever the length.
        "cache_per_token": 0 if config.architecture == "rnn" else 4 * config.layers * 2 * config.d_model,
    }
