"""Packed matrices give the products, and so the translations, of the matrices they were made from."""

import subprocess
import sys
from itertools import chain

import pytest
import torch
from torch import nn

from nmt.translation.engine import TorchEngine
from nmt.translation.hypothesis import SearchOptions
from nmt.translation.packed import PackedLinear, can_pack
from tests.tolerance import rounding
from tests.translation.test_search import sentences, small_model

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(not can_pack(CPU, torch.float32), reason="this PyTorch has no packed products")
IN_BF16 = pytest.mark.skipif(not can_pack(CPU, torch.bfloat16), reason="oneDNN has no bf16 products for this processor")


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=IN_BF16)])
@pytest.mark.parametrize("biased", [True, False])
def test_product_is_that_of_the_matrix(dtype: torch.dtype, biased: bool) -> None:
    """For one row or many, and for a slice of a matrix, which may change afterwards."""
    linear = nn.Linear(24, 60, bias=biased)
    packed = PackedLinear(linear.weight[10:], linear.bias[10:] if biased else None, dtype)
    for shape in ((24,), (1, 24), (2, 7, 24)):
        states = torch.randn(*shape)
        torch.testing.assert_close(packed(states).float(), linear(states)[..., 10:], **rounding(dtype, 24))
    with torch.no_grad():
        before = packed(states)
        linear.weight.zero_()
        assert torch.equal(packed(states), before)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("seed", range(3))
def test_search_finds_the_same(seed: int, beam: int) -> None:
    """In fp32: the same translations, scores and details as without packing. The model itself keeps its matrices."""
    model, sources = small_model(seed), sentences(seed)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    options = SearchOptions(beam=beam, n_best=beam, extra=12, details=True)
    engine = TorchEngine(model)
    assert not [module for module in engine.model.modules() if isinstance(module, nn.Linear)]
    assert isinstance(engine.projection, PackedLinear)
    plain, packed = TorchEngine(model, packed=False).search(sources, options), engine.search(sources, options)
    assert [[h.ids for h in best] for best in packed] == [[h.ids for h in best] for best in plain]
    for one, other in zip(chain(*packed), chain(*plain), strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.forced is not None
        assert other.forced is not None
        assert one.forced.log_probabilities == pytest.approx(other.forced.log_probabilities, abs=1e-4)
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_products_of_many_sizes_take_no_room() -> None:
    """oneDNN's compiled kernels are not kept for every size: those of a long text would fill a gigabyte."""
    script = """
import torch
from pathlib import Path
from nmt.translation.engine import PackedLinear

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4 // 1024

torch.set_num_threads(1)
layers = [PackedLinear(torch.randn(width, 256)) for width in (256, 512, 768)]
for rows in range(1, 800):
    for layer in layers:
        layer(torch.zeros(rows, 256))
    if rows == 30:
        before = resident()
print(resident() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200  # MiB; 1,000 and more without a bound
