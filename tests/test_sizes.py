"""The formulas of sizes.py beside the networks themselves and PyTorch's own counter."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from nmt.config import ModelConfig
from nmt.ids import BOS, EOS
from nmt.model.build import build
from nmt.sizes import flops, parameters

SIZES = {"layers": 2, "d_model": 16, "heads": 2, "d_ff": 40, "max_positions": 30}


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", ["sinusoids", "learned"])
@pytest.mark.parametrize("architecture", ["transformer", "decoder-only", "rnn"])
def test_formulas_equal_the_network(architecture: str, positions: str, norm: str) -> None:
    one_layer = {"layers": 1} if architecture == "rnn" else {}
    config = ModelConfig(**SIZES | one_layer, architecture=architecture, positions=positions, norm=norm)
    network = build(config, 50).eval()
    assert parameters(config, 50)["total"] == network.count_parameters()
    source, target = torch.tensor([[*[20] * 8, EOS]]), torch.tensor([[BOS, *[20] * 6]])
    counted = flops(config, 50, 9, 7)
    # PyTorch does not count the CPU's fused kernel.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        memory = network.encode(source)
        assert counter.get_total_flops() == counted["encode"]
        states = network.decode(target, memory)
        assert counter.get_total_flops() == counted["encode"] + counted["decode"]
        states @ network.output.T
    assert counter.get_total_flops() == sum(counted.values())
