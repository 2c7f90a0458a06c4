"""The matrices of a model that is only used, made ready once and not anew in every product.

A step of search multiplies a few rows by every matrix of the model. For a CPU PyTorch has oneDNN's products with matrices in
that library's own layout, fp32 or bf16; on two cores they make search 1.1 times as fast in full batches and 1.3 times for a
sentence alone. For a GPU in bf16 they are cast: without gradients autocast keeps no cast, and makes it at every step.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.model.attention import MultiHeadAttention
from nmt.model.transformer import Transformer

# PyTorch's compiler puts them into what it makes for a CPU. They have no public name; without them nothing is packed.
LAY_OUT, MULTIPLY, HAS_BF16 = "_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported"


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether there is something to gain: on a GPU in bf16, and on a CPU for which this PyTorch has such products."""
    if device.type != "cpu":
        return dtype == torch.bfloat16
    if not torch.backends.mkldnn.is_available():
        return False
    names = (LAY_OUT, MULTIPLY, HAS_BF16)
    there = all(hasattr(torch.ops.mkldnn, name) for name in names)
    return there and (dtype != torch.bfloat16 or bool(getattr(torch.ops.mkldnn, HAS_BF16)()))


class PackedLinear(nn.Module):
    """`F.linear` by one matrix [out, in], in its precision: [..., in] -> [..., out]. It has no gradient."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.dtype = dtype
        self.weight = weight.detach().to(dtype)
        if weight.device.type == "cpu":
            self.weight = getattr(torch.ops.mkldnn, LAY_OUT)(self.weight)
        self.bias = None if bias is None else bias.detach().to(dtype)

    def forward(self, states: Tensor) -> Tensor:
        states = states.to(self.dtype)
        if not self.weight.is_mkldnn:
            return F.linear(states, self.weight, self.bias)
        product: Tensor = getattr(torch.ops.mkldnn, MULTIPLY)(states, self.weight, self.bias, "none", [], "")
        return product


class PackedAttention(MultiHeadAttention):
    """Multi-head attention in one of its uses: to itself, with one product for all three, or to a memory."""

    def __init__(self, attention: MultiHeadAttention, to_itself: bool, dtype: torch.dtype) -> None:
        d_model = attention.out.in_features
        with torch.device("meta"):  # no matrices but those that follow
            super().__init__(d_model, attention.heads, 0.0)
        del self.in_weight, self.in_bias
        parts = [slice(None)] if to_itself else [slice(d_model), slice(d_model, None)]
        self.parts = nn.ModuleList(
            PackedLinear(attention.in_weight[rows], attention.in_bias[rows], dtype) for rows in parts
        )
        self.out = PackedLinear(attention.out.weight, attention.out.bias, dtype)  # type: ignore[assignment]

    def project(self, states: Tensor) -> tuple[Tensor, Tensor]:
        d_model = states.size(-1)
        query, keys_values = self.parts[0](states).split([d_model, 2 * d_model], -1)
        return query, keys_values

    def project_query(self, states: Tensor) -> Tensor:
        query: Tensor = self.parts[0](states)
        return query

    def project_memory(self, states: Tensor) -> Tensor:
        keys_values: Tensor = self.parts[1](states)
        return keys_values


def pack(model: Transformer, dtype: torch.dtype) -> None:
    """Put such products in place of the model's own, for good: it can be neither trained nor saved any more."""
    own = [module for module in model.modules() if not isinstance(module, MultiHeadAttention)]
    for parent in own:
        for name, module in list(parent.named_children()):
            if isinstance(module, MultiHeadAttention):
                setattr(parent, name, PackedAttention(module, name == "self_attention", dtype))
            elif isinstance(module, nn.Linear):
                setattr(parent, name, PackedLinear(module.weight, module.bias, dtype))
