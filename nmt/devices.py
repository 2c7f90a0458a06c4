"""Which device and which precision: asked for by the user, or the best that is there."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch

from nmt.cores import threads
from nmt.errors import UsageError, first_line
from nmt.formatting import counted

# oneDNN and PyTorch's layer over it each keep what they have compiled for 1,024 sizes of a matrix product. Here nearly each
# product has a size of its own: kept, they serve nobody, and grow to hundreds of megabytes. Both read this at their first one.
for cache in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
    os.environ.setdefault(cache, "64")

# PyTorch knows nothing of a container's quota. This is before its first product: its threads are not changed after that.
if not os.environ.get("OMP_NUM_THREADS"):
    torch.set_num_threads(min(torch.get_num_threads(), threads()))


def find_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one. Nothing falls back in silence.

    Raises UsageError for a CUDA that is not there, or that is and cannot compute.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"--device {name}: must be auto, cpu or cuda")
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UsageError("--device cuda: PyTorch finds no CUDA device here; use --device cpu")
    device = torch.device("cuda")
    # On Hopper and newer PyTorch prefers cuDNN's attention, which makes a plan of some 30 ms for every new shape and keeps it
    # for ever. Here nearly every batch has a shape of its own; PyTorch's own kernels need no plan.
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        matrix = torch.ones(8, 8, device=take_gpu(device))
        (matrix @ matrix).sum().item()
    except RuntimeError as error:
        raise UsageError(f"--device {name}: the GPU cannot be used ({first_line(error)}); use --device cpu") from None
    return device


def take_gpu(device: torch.device) -> torch.device:
    """Of several processes that torchrun started on this machine, each takes a GPU of its own where it uses one at all."""
    if device.type == "cuda" and "LOCAL_RANK" in os.environ:
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    return device


def find_precision(name: str, device: torch.device) -> str:
    """`auto` is bf16 where the hardware computes in it, else fp32."""
    if name not in ("auto", "fp32", "bf16"):
        raise UsageError(f"--precision {name}: must be auto, fp32 or bf16")
    if name != "auto":
        return name
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported() else "fp32"


def find_translation_precision(name: str, device: torch.device) -> str:
    """As for training, but `auto` is fp32 on a CPU: short batches gain little, and fp32 gives one text in any batch."""
    return find_precision("fp32" if name == "auto" and device.type == "cpu" else name, device)


def on_device(values: Sequence[float], device: torch.device) -> torch.Tensor:
    """Numbers of the host as a tensor on the device, which is not waited for."""
    tensor = torch.tensor(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def autocast(device: torch.device, precision: str) -> AbstractContextManager[None]:
    """The context in which matrix products run in the precision; weights stay fp32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def name(device: torch.device) -> str:
    """Of the kind of device, as CUDA has it; a CPU is a CPU."""
    return "CPU" if device.type == "cpu" else torch.cuda.get_device_name(device)


def can_compile(device: torch.device, warn: Callable[[str], None]) -> bool:
    """Whether layers are to be compiled for the device: on a GPU, where PyTorch can.

    It takes Triton, a C compiler and Python's headers. Whether all is there and works is seen by compiling something.
    """
    if device.type == "cpu":
        return False
    try:
        torch.compile(lambda tensor: tensor + 1)(torch.ones(8, device=device))
    except Exception as error:  # of many kinds, for the most part within one of PyTorch's own
        error = getattr(error, "inner_exception", error)
        warn(f"PyTorch cannot compile for this GPU ({first_line(error)}); training goes on without, which is slower")
        return False
    return True


def describe(device: torch.device, precision: str) -> str:
    """One line for a person: device, threads and their instructions or GPU, memory, precision."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, {precision}"
    native = "native" if find_precision("auto", device) == "bf16" else "emulated"
    kernels = f"{torch.backends.cpu.get_cpu_capability()} kernels with {native} bf16"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"CPU, {counted(torch.get_num_threads(), 'thread')}, {kernels}, {memory:.0f} GiB of memory, {precision}"
