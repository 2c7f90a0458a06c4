"""Packed matrices: laid out once for the device's products, for a model that is only used.

A step of search multiplies a few rows by every matrix of the model. On a CPU, PyTorch offers oneDNN's products with matrices
in that library's own layout, in fp32 or bf16; on two cores they make search 1.1 times as fast in full batches and 1.3 times
for a single sentence. On a GPU in bf16 the matrices are cast once, because without gradients autocast casts them at every step.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.model.attention import AttentionHeads, MultiHeadAttention

mkldnn = torch.ops.mkldnn  # the products that torch.compile uses on a CPU; they have no public name


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether packing helps: on a GPU in bf16, and on a CPU whose PyTorch build has oneDNN's products in this precision."""
    if device.type != "cpu":
        return dtype == torch.bfloat16
    if not (torch.backends.mkldnn.is_available() and hasattr(mkldnn, "_linear_pointwise")):
        return False
    return dtype == torch.float32 or bool(mkldnn._is_mkldnn_bf16_supported())


class PackedLinear(nn.Module):
    """`F.linear` with one packed matrix [out, in], computed in `dtype`: [..., in] -> [..., out]. It has no gradient."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.dtype = dtype
        self.weight = weight.detach().to(dtype)
        if weight.device.type == "cpu":
            self.weight = mkldnn._reorder_linear_weight(self.weight)
        self.bias = None if bias is None else bias.detach().to(dtype)

    def forward(self, states: Tensor) -> Tensor:
        states = states.to(self.dtype)
        if not self.weight.is_mkldnn:
            return F.linear(states, self.weight, self.bias)
        return mkldnn._linear_pointwise(states, self.weight, self.bias, "none", [], "")


class PackedAttention(AttentionHeads):
    """Multi-head attention with packed projections: one product for self-attention, two for attention to a memory."""

    def __init__(self, attention: MultiHeadAttention, to_itself: bool, dtype: torch.dtype) -> None:
        super().__init__(attention.heads, 0.0)
        d_model = attention.out.in_features
        blocks = [3 * d_model] if to_itself else [d_model, 2 * d_model]
        weights, biases = attention.in_weight.split(blocks), attention.in_bias.split(blocks)
        self.inputs = nn.ModuleList(PackedLinear(*block, dtype) for block in zip(weights, biases, strict=True))
        self.out = PackedLinear(attention.out.weight, attention.out.bias, dtype)

    def project(self, states: Tensor) -> tuple[Tensor, Tensor]:
        d_model = states.size(-1)
        return self.inputs[0](states).split([d_model, 2 * d_model], -1)

    def project_query(self, states: Tensor) -> Tensor:
        return self.inputs[0](states)

    def project_memory(self, states: Tensor) -> Tensor:
        return self.inputs[1](states)


def pack(module: nn.Module, dtype: torch.dtype) -> None:
    """Replace every linear layer and attention below the module with a packed one."""
    for name, child in list(module.named_children()):
        if isinstance(child, MultiHeadAttention):
            module.add_module(name, PackedAttention(child, name == "self_attention", dtype))
        elif isinstance(child, nn.Linear):
            module.add_module(name, PackedLinear(child.weight, child.bias, dtype))
        else:
            pack(child, dtype)
