"""A GPU that is there and cannot be used, or only in part: told early, in one sentence. What works is in test_cuda.py."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nmt import devices
from nmt.data.vocabulary import Vocabulary
from nmt.errors import UsageError
from nmt.translation import ctranslate2_engine
from tests.conftest import call, refusal

REFUSED = "CUDA error: no kernel image is available for execution on the device"
ADVICE = "\nCUDA kernel errors might be asynchronously reported at some other API call.\n"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """PyTorch finds one. What is computed on it is computed on the CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(devices, "take_gpu", lambda _: torch.device("cpu"))
    return monkeypatch


@pytest.fixture
def broken_gpu(gpu: pytest.MonkeyPatch) -> None:
    """On which the first kernel fails, as on one that is older than what PyTorch was built for."""

    def fail(*_: object, **__: object) -> None:
        raise torch.AcceleratorError(REFUSED + ADVICE)

    gpu.setattr(torch.Tensor, "__matmul__", fail)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", ["cuda", "auto"])
def test_cudnns_attention_is_off(name: str) -> None:
    """Cuda 3: it plans anew for each shape. The kernels that need no plan stay on."""
    torch.backends.cuda.enable_cudnn_sdp(True)
    assert devices.find_device(name).type == "cuda"
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.backends.cuda.flash_sdp_enabled()
    assert torch.backends.cuda.mem_efficient_sdp_enabled()


@pytest.mark.usefixtures("broken_gpu")
@pytest.mark.parametrize("device", ["cuda", "auto"])
@pytest.mark.parametrize("command", ["train", "translate", "score"])
def test_a_gpu_that_cannot_compute_is_refused_before_the_work(
    tmp_path: Path, corpus: Path, overfitted: Path, command: str, device: str
) -> None:
    """F3b: one sentence with the reason and the way out, before any data is read."""
    options: dict[str, list[str | Path]] = {
        "train": ["--data", corpus, "-m", tmp_path / "model"],
        "translate": ["-m", overfitted],
        "score": ["-m", overfitted],
    }
    said = refusal(call(command, *options[command], "--device", device))
    assert said == f"nmt: --device {device}: the GPU cannot be used ({REFUSED}); use --device cpu\n"
    assert not (tmp_path / "model").exists()


@pytest.mark.usefixtures("broken_gpu")
def test_a_cpu_that_is_asked_for_is_used(overfitted: Path) -> None:
    assert call("translate", "-m", overfitted, "--device", "cpu", stdin=b"Hello.\n").exit_code == 0


@pytest.mark.parametrize("when", ["as it is loaded", "as it computes"])
def test_a_gpu_that_ctranslate2_cannot_use_is_refused_before_the_work(
    monkeypatch: pytest.MonkeyPatch, vocabulary: Vocabulary, tmp_path: Path, when: str
) -> None:
    """F3b: not taken for a damaged export."""

    class Translator:
        def __init__(self, *_: object, **__: object) -> None:
            if when == "as it is loaded":
                raise RuntimeError("CUDA failed with error no kernel image is available")

        def translate_batch(self, *_: object, **__: object) -> None:
            raise RuntimeError("Library libcublas.so.12 is not found or cannot be loaded")

    library = SimpleNamespace(get_cuda_device_count=lambda: 1, Translator=Translator)
    monkeypatch.setattr(ctranslate2_engine, "library", lambda: library)
    reason = "no kernel image is available" if when == "as it is loaded" else "libcublas.so.12 is not found"
    with pytest.raises(
        UsageError, match=f"--engine ctranslate2: the GPU cannot be used .*{reason}.*; use --device cpu"
    ):
        ctranslate2_engine.CTranslate2Engine(tmp_path, vocabulary, "cuda")


def test_memory_of_a_gpu_that_is_full_is_told_in_one_sentence(
    overfitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cuda 18: whichever library noticed it."""
    errors = [
        torch.AcceleratorError("CUDA error: out of memory" + ADVICE),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA failed with error out of memory"),
    ]
    for error in errors:

        def fail(*_: object, error: RuntimeError = error) -> None:
            raise error

        monkeypatch.setattr("nmt.translation.loading.load_translator", fail)
        done = call("translate", "-m", overfitted, stdin=b"Hello.\n")
        assert refusal(done, 1).startswith("nmt: out of memory; smaller batches need less")


def backend_that(act: Callable[[], None]) -> Callable[..., Any]:
    def backend(module: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Callable[..., Any]:
        act()
        return module.forward

    return backend


def test_what_cannot_be_compiled_is_trained_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuda 17: PyTorch's own machinery with a compiler that fails, as it does where Python's headers are missing."""

    def fail() -> None:
        raise RuntimeError("fatal error: Python.h: No such file or directory\ncompilation terminated.")

    compiling, told, gpu = torch.compile, list[str](), torch.device("meta")
    monkeypatch.setattr(torch, "compile", partial(compiling, backend=backend_that(fail)))
    assert not devices.can_compile(gpu, told.append)
    [warning] = told
    assert "Python.h: No such file" in warning
    assert "\n" not in warning
    monkeypatch.setattr(torch, "compile", partial(compiling, backend=backend_that(lambda: None)))
    assert devices.can_compile(gpu, told.append)
    assert not devices.can_compile(torch.device("cpu"), told.append), "where it takes longer than it saves"
    assert told == [warning]
