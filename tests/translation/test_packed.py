"""Packed matrices: the products, and so the translations, of the model that they were taken from."""

import subprocess
import sys
from itertools import chain

import pytest
import torch
from torch import nn

from nmt.model.transformer import Transformer
from nmt.translation.engine import TorchEngine
from nmt.translation.hypothesis import SearchOptions
from nmt.translation.packed import PackedLinear, can_pack
from tests.tolerance import rounding
from tests.translation.test_search import sentences, small_model

pytestmark = pytest.mark.skipif(
    not can_pack(torch.device("cpu"), torch.float32), reason="this PyTorch has no packed products"
)
IN_BF16 = pytest.mark.skipif(
    not can_pack(torch.device("cpu"), torch.bfloat16), reason="oneDNN has no products in bf16 for this processor"
)


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=IN_BF16)])
@pytest.mark.parametrize("biased", [True, False])
def test_product_is_that_of_the_matrix(dtype: torch.dtype, biased: bool) -> None:
    """One row, or many in two dimensions, also of a slice of a matrix; what it was made from may change afterwards."""
    linear = nn.Linear(24, 60, bias=biased)
    weight, bias = linear.weight[10:], linear.bias[10:] if biased else None
    packed = PackedLinear(weight, bias, dtype)
    for shape in ((24,), (1, 24), (2, 7, 24)):
        states = torch.randn(*shape)
        expected = linear(states)[..., 10:]
        torch.testing.assert_close(packed(states).float(), expected, **rounding(dtype, 24))
    with torch.no_grad():
        before = packed(states)
        linear.weight.zero_()
        assert torch.equal(packed(states), before)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("seed", range(3))
def test_search_finds_the_same(seed: int, beam: int) -> None:
    """In fp32: the same translations with the same scores, and the same details of them."""
    model, sources = small_model(seed), sentences(seed)
    options = SearchOptions(beam=beam, n_best=beam, extra=12, details=True)
    engine = TorchEngine(model)
    plain = engine.search(sources, options)
    engine.pack()
    packed = engine.search(sources, options)
    assert [[h.ids for h in best] for best in packed] == [[h.ids for h in best] for best in plain]
    for one, other in zip(chain(*packed), chain(*plain), strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.forced is not None
        assert other.forced is not None
        assert one.forced.log_probabilities == pytest.approx(other.forced.log_probabilities, abs=1e-4)


def test_bf16_is_near() -> None:
    """Most greedy translations of a model of noise, whose choices are close, are those of fp32. Where bf16 is emulated, nothing
    is packed."""
    model, sources = small_model(1), sentences(1)
    engine = TorchEngine(model, "bf16")
    engine.pack()
    found = engine.search(sources, SearchOptions(beam=1, extra=12))
    reference = TorchEngine(small_model(1)).search(sources, SearchOptions(beam=1, extra=12))
    same = sum(a[0].ids == b[0].ids for a, b in zip(found, reference, strict=True))
    assert same >= 0.8 * len(sources)


def test_every_matrix_of_the_decoder_is_packed() -> None:
    """None is left that every step would lay out anew; norms and the embedding stay as they were."""
    model: Transformer = small_model(0)
    engine = TorchEngine(model)
    engine.pack()
    assert not [module for module in model.modules() if isinstance(module, nn.Linear)]
    assert isinstance(engine.output, PackedLinear)
    left = {name.rsplit(".", 1)[1] for name, parameter in model.named_parameters() if parameter.dim() == 2}
    assert left == {"weight"}
    assert [name for name, parameter in model.named_parameters() if parameter.dim() == 2] == ["embedding.weight"]


def test_products_of_many_sizes_take_no_room() -> None:
    """What is compiled for a size is not kept for all sizes: a gigabyte, else, for those of a long text."""
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
