"""An emulated CUDA device: its tensors claim to be on cuda:0, but their values are computed on the CPU.

Autograd and autocast are PyTorch's own for CUDA. Operations that CUDA would refuse are refused. What a GPU would have done is
counted: launches of kernels, and waits of the host for the device, with the line of nmt that waits. Memory, the
insides of kernels, speed and compiled code are not emulated.

Import this module before PyTorch, which looks for its devices only once; see plugin.py.
"""

import contextlib
import ctypes
import os
import subprocess
import sys
import tempfile
import traceback
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

HERE = Path(__file__)
MEMORY = 8 * 2**30  # bytes


def build(folder: Path) -> Path:
    """The library of guard.cpp, built against this PyTorch. Needs g++."""
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    torch_folder = Path(spec.origin).parent
    include, lib, made = torch_folder / "include", torch_folder / "lib", folder / "guard.so"
    command = ["g++", "-shared", "-fPIC", "-std=c++20", "-O0", f"-I{include}", str(HERE.with_name("guard.cpp"))]
    link = [f"-L{lib}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{lib}"]
    subprocess.run([*command, "-o", str(made), *link], check=True)
    return made


assert "torch" not in sys.modules, "import tests.emulated.gpu first"
with tempfile.TemporaryDirectory() as folder:
    ctypes.CDLL(str(build(Path(folder))), os.RTLD_GLOBAL | os.RTLD_NOW)

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map_only  # noqa: E402

aten = torch.ops.aten
CUDA = torch.device("cuda:0")

# Views and allocations launch no kernel.
FREE = set(
    "detach alias view _unsafe_view _reshape_alias expand permute transpose t select slice unsqueeze squeeze split "  # noqa: SIM905
    "split_with_sizes unbind as_strided diagonal lift_fresh empty empty_strided new_empty new_empty_strided empty_like "
    "is_pinned unfold is_same_size chunk resize_ set_ result_type is_nonzero _local_scalar_dense".split()
)
WAITING = {"nonzero", "masked_select", "equal", "is_nonzero", "_unique2", "unique_dim", "unique_consecutive"}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
# Operations with several kernels, according to PyTorch's CUDA sources; all others count as one.
KERNELS = {"topk": 2, "sort": 2, "nonzero": 3, "constant_pad_nd": 2, "embedding_dense_backward": 8}
KERNELS |= {"linear_backward": 3, "native_layer_norm_backward": 2, "slice_backward": 2, "select_backward": 2}
TENSORS_A_KERNEL = 30  # about that many in _foreach operations and fused optimisers


class EmulatedTensor(Tensor):
    """A wrapper around a CPU tensor."""

    on_cpu: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, on_cpu: Tensor) -> "EmulatedTensor":
        sizes: dict[str, Any] = {"strides": on_cpu.stride(), "storage_offset": on_cpu.storage_offset()}
        made: EmulatedTensor = Tensor._make_wrapper_subclass(cls, on_cpu.size(), dtype=on_cpu.dtype, device=CUDA, **sizes)
        made.on_cpu = on_cpu
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return GPU.call(func, args, kwargs or {})

    def tolist(self) -> Any:
        GPU.wait("tolist")
        return self.on_cpu.tolist()

    def numpy(self, *_args: Any, **_kwargs: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy it first.")

    __array__ = numpy

    def __repr__(self, **_kwargs: Any) -> str:  # type: ignore[override]
        return f"Emulated({self.on_cpu!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made: Any = EmulatedTensor(self.on_cpu.clone())
        if isinstance(self, torch.nn.Parameter):
            made = torch.nn.Parameter(made, self.requires_grad)
        memo[id(self)] = made
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Like a CUDA tensor: the storage is tagged with its device, to which it is loaded back."""
        GPU.wait("save")
        GPU.tagged.add(self.on_cpu.untyped_storage().data_ptr())
        return self.on_cpu.detach().__reduce_ex__(protocol)


class Gpu:
    """The device and its counters."""

    def __init__(self) -> None:
        self.waits: list[str] = []  # the operation and the line of nmt that waited
        self.launches: Counter[str] = Counter()
        self.faults: list[str] = []  # what CUDA would compute slowly or wrongly
        self.fail: Callable[[str], None] = lambda name: None  # called before each operation; may raise
        self.may_wait = True
        self.pinned: set[int] = set()
        self.tagged: set[int] = set()

    def reset(self) -> None:
        """Set the counters to zero."""
        self.waits.clear()
        self.launches.clear()

    def wait(self, what: str) -> None:
        frames = [frame for frame in traceback.extract_stack() if Path(frame.filename) != HERE]
        ours = [frame for frame in frames if "/nmt/" in frame.filename] or frames
        where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
        if not self.may_wait:
            raise RuntimeError(f"called a synchronizing CUDA operation: {what} at {where}")
        self.waits.append(f"{what} at {where}")

    def call(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Check and count one operation, and compute it on the CPU."""
        name = func._schema.name.partition("::")[2]
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        emulated = [one for one in tensors if isinstance(one, EmulatedTensor)]
        device = kwargs.get("device")
        onto_gpu = device is not None and torch.device(device).type == "cuda"
        if not emulated and not onto_gpu:
            return func(*args, **kwargs)
        self.fail(name)
        if own := OWN.get(name):
            return own(func, args, kwargs)
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with Mode():
                return func.decompose(*args, **kwargs)
        if device is not None and not onto_gpu:  # such as zeros_like(..., device="cpu")
            return func(*unwrapped(args), **unwrapped(kwargs))
        self._refuse_other_devices(func, name, tensors)
        if name in WAITING or (name in INDEXING and self._has_mask(args)):
            self.wait(name)
        if onto_gpu:
            kwargs = {key: value for key, value in kwargs.items() if key != "pin_memory"} | {"device": "cpu"}
        found = ATTENTION.get(name, func)(*unwrapped(args), **unwrapped(kwargs))
        self.count(name, args)
        returns = func._schema.returns
        if returns and returns[0].alias_info is not None:
            if returns[0].alias_info.is_write:  # an in-place operation returns its argument
                into = [
                    args[place] if place < len(args) else kwargs.get(argument.name)
                    for place, argument in enumerate(func._schema.arguments)
                    if argument.alias_info is not None and argument.alias_info.is_write
                ]
                return into[0] if len(returns) == 1 else tuple(into)
            with torch.inference_mode(emulated[0].is_inference()):  # a view is an inference tensor if its base is one
                return tree_map_only(Tensor, EmulatedTensor, found)
        return tree_map_only(Tensor, EmulatedTensor, found)

    def count(self, name: str, args: Any) -> None:
        if name in FREE:
            return
        launches = KERNELS.get(name, 1)
        if name.startswith("_foreach") or name.startswith("_fused"):
            launches = -(-len(next(one for one in args if isinstance(one, list | tuple))) // TENSORS_A_KERNEL)
        self.launches[name] += launches

    def _refuse_other_devices(self, func: Any, name: str, tensors: list[Tensor]) -> None:
        on_cpu = [one for one in tensors if not isinstance(one, EmulatedTensor)]
        if not on_cpu:
            return
        if all(one.dim() == 0 for one in on_cpu) and isinstance(tensors[0], EmulatedTensor):
            return  # a number
        if name in INDEXING and isinstance(tensors[0], EmulatedTensor):
            self.wait("an index on the CPU")
            return
        shapes = [tuple(one.shape) for one in on_cpu]
        raise RuntimeError(f"Expected all tensors to be on the same device, but found cuda:0 and cpu! ({func}, {shapes})")

    def _has_mask(self, args: Any) -> bool:
        masks = [index for index in args[1] if index is not None and index.dtype in (torch.bool, torch.uint8)]
        becomes_a_fill = len(args) > 2 and args[2].numel() == 1 and args[2].device.type == "cpu"
        return bool(masks) and not becomes_a_fill


GPU = Gpu()


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return GPU.call(func, args, kwargs or {})


def unwrapped(tree: Any) -> Any:
    return tree_map_only(EmulatedTensor, lambda tensor: tensor.on_cpu, tree)


def to_copy(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`.to`: between devices, or to another type."""
    source = args[0]
    device = kwargs.get("device")
    target = source.device.type if device is None else torch.device(device).type
    rest = {key: value for key, value in kwargs.items() if key not in ("device", "non_blocking")}
    made = func(unwrapped(source), **rest)
    if target == source.device.type == "cuda":
        GPU.count("_to_copy", args)
        return EmulatedTensor(made)
    if target == "cpu":
        if kwargs.get("non_blocking"):
            GPU.faults.append("a non-blocking copy to the CPU, whose values may not be there yet")
        GPU.wait("a copy to the CPU")
        return made.clone()
    if source.untyped_storage()._cdata not in GPU.pinned or not kwargs.get("non_blocking"):
        GPU.wait("a copy from the CPU, of memory that is not pinned or blocking")
    return EmulatedTensor(made.clone())


def copy_(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    target, source = args[:2]
    if target.device != source.device:
        GPU.wait("copy_ between devices")
    GPU.count("copy_", args)
    func(unwrapped(target), unwrapped(source))
    return target


def item(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    GPU.wait("item")
    return func(args[0].on_cpu)


OWN = {"_to_copy": to_copy, "copy_": copy_, "_local_scalar_dense": item}


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **more: Any,
) -> Any:
    """The steps of PyTorch before its memory-efficient kernel: casting, turning masks into a bias, aligning rows."""
    if not isinstance(query, EmulatedTensor):
        return ON_CPU(query, key, value, attn_mask, dropout_p, is_causal, **more)
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        query, key, value, attn_mask = (one if one is None else one.to(dtype) for one in (query, key, value, attn_mask))
    with torch.autocast("cuda", enabled=False):
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                attn_mask = torch.where(attn_mask, 0.0, float("-inf")).to(query.dtype)
            if any(stride % 8 for stride in attn_mask.stride()[:-1]):
                columns = attn_mask.size(-1)
                attn_mask = F.pad(attn_mask, (0, 8 - columns % 8))[..., :columns]
            attn_mask = attn_mask.expand(*query.shape[:3], key.size(2))
        needs_grad = torch.is_grad_enabled() and any(one.requires_grad for one in (query, key, value))
        return aten._scaled_dot_product_efficient_attention(query, key, value, attn_mask, needs_grad, dropout_p, is_causal)[0]


ON_CPU = F.scaled_dot_product_attention


def weights_of(query: Tensor, key: Tensor, bias: Tensor | None, causal: bool) -> Tensor:
    scores = query.float() @ key.float().transpose(-2, -1) * query.size(-1) ** -0.5
    if causal:
        scores += scores.new_full(scores.shape[-2:], float("-inf")).triu(1)
    return (scores if bias is None else scores + bias.float()).softmax(-1)


def efficient(query: Any, key: Any, value: Any, bias: Any, lse: bool, p: float = 0, causal: bool = False, **_: Any) -> Any:
    """The forward kernel, which rounds only its result."""
    assert not p, "no dropout within attention here"
    if bias is not None and (bias.dtype != query.dtype or (bias.size(-2) > 1 and bias.stride(-2) % 8)):
        GPU.faults.append(f"attention: a bias of {bias.dtype}, strides {bias.stride()}, for a query of {query.dtype}")
    made = (weights_of(query, key, bias, causal) @ value.float()).to(query.dtype)
    if made.isnan().any():
        GPU.faults.append("attention: a row that may see nothing")
    nothing = query.new_empty(0)
    return made.transpose(1, 2).contiguous().transpose(1, 2), nothing, nothing.clone(), nothing.clone()


def efficient_backward(
    grad: Any, query: Any, key: Any, value: Any, bias: Any, out: Any, lse: Any, seed: Any, offset: Any, p: float,
    needed: Any, causal: bool = False, **_: Any,
) -> Any:  # fmt: skip
    """The backward kernel: gradients of query, key and value, but not of the bias."""
    weights, grad = weights_of(query, key, bias, causal), grad.float()
    by_weight = grad @ value.float().transpose(-2, -1)
    by_score = weights * (by_weight - (by_weight * weights).sum(-1, keepdim=True)) * query.size(-1) ** -0.5
    grads = by_score @ key.float(), by_score.transpose(-2, -1) @ query.float(), weights.transpose(-2, -1) @ grad
    return (*(one.to(query.dtype) for one in grads), query.new_empty(0))


ATTENTION = {
    "_scaled_dot_product_efficient_attention": efficient,
    "_scaled_dot_product_efficient_attention_backward": efficient_backward,
}


def pin_memory(tensor: Tensor, *_: Any) -> Tensor:
    made = tensor.clone()
    key = made.untyped_storage()._cdata
    GPU.pinned.add(key)
    weakref.finalize(made, GPU.pinned.discard, key)
    return made


def module_to(module: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
    """`Module.to` without swapping tensor data, which an emulated tensor does not support. Parameters keep their hooks."""
    device = torch._C._nn._parse_to(*args, **kwargs)[0]
    if device is None or device.type != "cuda":
        return MODULE_TO(module, *args, **kwargs)
    for one in module.modules():
        for name, old in one._parameters.items():
            if old is not None and not isinstance(old, EmulatedTensor):
                made = torch.nn.Parameter(EmulatedTensor(old.detach().clone()), old.requires_grad)
                for hook in (old._backward_hooks or {}).values():
                    made.register_hook(hook)
                one._parameters[name] = made
        for name, buffer in one._buffers.items():
            if buffer is not None and not isinstance(buffer, EmulatedTensor):
                one._buffers[name] = EmulatedTensor(buffer.clone())
    return module


MODULE_TO = torch.nn.Module.to


def of_cuda() -> dict[str, Any]:
    """Replacements for functions of torch.cuda."""
    facts = SimpleNamespace(name="NVIDIA Emulated", total_memory=MEMORY, major=9, minor=0, multi_processor_count=132)
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "_lazy_init": lambda: None,
        "get_device_properties": lambda _device=None: facts,
        "get_device_name": lambda _device=None: facts.name,
        "get_device_capability": lambda _device=None: (facts.major, facts.minor),
        "is_bf16_supported": lambda including_emulation=True: True,
        "mem_get_info": lambda _device=None: (MEMORY, MEMORY),
        "memory_reserved": lambda _device=None: 0,
        "max_memory_allocated": lambda _device=None: 0,
        "reset_peak_memory_stats": lambda _device=None: None,
        "empty_cache": lambda: None,
        "synchronize": lambda _device=None: GPU.wait("synchronize"),
        "manual_seed_all": lambda _seed: None,
        "set_sync_debug_mode": lambda mode: setattr(GPU, "may_wait", mode != "error"),
        "is_current_stream_capturing": lambda: False,
    }


@contextlib.contextmanager
def emulated() -> Iterator[Gpu]:
    """Within this context there is one CUDA device."""
    torch.serialization.register_package(
        5, lambda storage: "cuda:0" if storage.data_ptr() in GPU.tagged else None, lambda storage, location: None
    )
    with contextlib.ExitStack() as stack:
        for name, value in of_cuda().items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        stack.enter_context(mock.patch.object(torch.cuda.amp.common, "amp_definitely_not_available", return_value=False))
        stack.enter_context(mock.patch.object(Tensor, "pin_memory", pin_memory))
        stack.enter_context(mock.patch.object(torch.nn.Module, "to", module_to))
        stack.enter_context(mock.patch.object(F, "scaled_dot_product_attention", scaled_dot_product_attention))
        torch._C._set_only_lift_cpu_tensors(True)  # shows the copy that torch.tensor(..., device="cuda") makes
        stack.callback(torch._C._set_only_lift_cpu_tensors, False)
        stack.enter_context(Mode())
        yield GPU
