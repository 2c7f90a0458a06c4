"""Which device and precision to use: those the user asked for, or the best available."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch

from nmt.cores import threads
from nmt.errors import NmtError, UsageError, first_line
from nmt.formatting import counted
from nmt.process import this_process

# oneDNN, and PyTorch's layer above it, each cache compiled code for 1,024 shapes of matrix products. Here nearly every
# product has a new shape, so the caches only grow, to hundreds of megabytes. Both read these variables at the first product.
for cache in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
    os.environ.setdefault(cache, "64")

# PyTorch ignores a container's CPU quota. Its number of threads cannot change after the first product, so it is set here.
if not os.environ.get("OMP_NUM_THREADS"):
    torch.set_num_threads(min(torch.get_num_threads(), threads()))


def find_device(name: str) -> torch.device:
    """The named device; `auto` is CUDA where it is available. Never falls back silently.

    Where torchrun started several processes on a machine, each gets its own GPU. Raises UsageError where CUDA is asked for
    but not available, or the GPU cannot compute.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"--device {name}: must be auto, cpu or cuda")
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UsageError("--device cuda: PyTorch finds no CUDA device here; use --device cpu")
    device = _own_gpu()
    # On Hopper and newer GPUs PyTorch prefers cuDNN's attention, which plans for some 30 ms at every new shape and keeps each
    # plan forever. Here nearly every batch has a new shape; PyTorch's own kernels need no plan.
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        matrix = torch.ones(8, 8, device=device)
        (matrix @ matrix).sum().item()
    except RuntimeError as error:
        kind = NmtError if this_process().count > 1 else UsageError  # a UsageError counts as the same in all
        raise kind(f"--device {name}: the GPU cannot be used ({first_line(error)}); use --device cpu") from None
    return device


def _own_gpu() -> torch.device:
    """The GPU of this process."""
    return torch.device("cuda", this_process().local_rank % torch.cuda.device_count())


def find_precision(name: str, device: torch.device) -> str:
    """The named precision; `auto` is bf16 where the hardware supports it natively, else fp32."""
    if name not in ("auto", "fp32", "bf16"):
        raise UsageError(f"--precision {name}: must be auto, fp32 or bf16")
    if name != "auto":
        return name
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported() else "fp32"


def find_translation_precision(name: str, device: torch.device) -> str:
    """As for training, except that `auto` is fp32 on a CPU: bf16 gains little there, and in fp32 batching changes no text."""
    return find_precision("fp32" if name == "auto" and device.type == "cpu" else name, device)


def on_device(values: Sequence[float], device: torch.device) -> torch.Tensor:
    """Copy numbers to the device without waiting for it."""
    tensor = torch.tensor(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def autocast(device: torch.device, precision: str) -> AbstractContextManager[None]:
    """The context in which matrix products run in this precision. Weights stay fp32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def name(device: torch.device) -> str:
    """Display name: the GPU's model, or 'CPU'."""
    return "CPU" if device.type == "cpu" else torch.cuda.get_device_name(device)


def can_compile(device: torch.device, warn: Callable[[str], None]) -> bool:
    """Whether to compile the layers: on a GPU, if PyTorch can.

    That takes Triton, a C compiler and Python's headers, so compiling something is the only sure test.
    """
    if device.type == "cpu":
        return False
    try:
        torch.compile(lambda tensor: tensor + 1)(torch.ones(8, device=device))
    except Exception as error:  # of many types, most of them wrapped in one of PyTorch's
        error = getattr(error, "inner_exception", error)
        warn(f"PyTorch cannot compile for this GPU ({first_line(error)}); training continues without, more slowly")
        return False
    return True


def describe(device: torch.device, precision: str) -> str:
    """One line about the device: the GPU, or threads and instruction set; memory and precision."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, {precision}"
    native = "native" if find_precision("auto", device) == "bf16" else "emulated"
    kernels = f"{torch.backends.cpu.get_cpu_capability()} kernels with {native} bf16"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"CPU, {counted(torch.get_num_threads(), 'thread')}, {kernels}, {memory:.0f} GiB of memory, {precision}"
