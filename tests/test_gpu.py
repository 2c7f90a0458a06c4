"""A GPU that cannot be used, or only in part, is reported early in one sentence. What works is in test_cuda.py."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

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
    """PyTorch finds a GPU, but computes on the CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(devices, "_own_gpu", lambda: torch.device("cpu"))
    return monkeypatch


@pytest.fixture
def broken_gpu(gpu: pytest.MonkeyPatch) -> None:
    """A GPU whose first kernel fails, as when it is older than those that PyTorch was built for."""

    def fail(*_: object, **__: object) -> None:
        raise torch.AcceleratorError(REFUSED + ADVICE)

    gpu.setattr(torch.Tensor, "__matmul__", fail)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", ["cuda", "auto"])
def test_cudnns_attention_is_off(name: str) -> None:
    """Cuda 3: it plans anew for each shape. The other kernels stay on."""
    torch.backends.cuda.enable_cudnn_sdp(True)
    devices.find_device(name)
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
    assert all(word in said for word in (f"--device {device}", REFUSED, "use --device cpu"))
    assert "asynchronously" not in said
    assert not (tmp_path / "model").exists()


def test_a_gpu_that_ctranslate2_cannot_use_is_refused_before_the_work(
    monkeypatch: pytest.MonkeyPatch, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    """F3b: it is not mistaken for a damaged export."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA failed with error no kernel image is available")

    library = SimpleNamespace(get_cuda_device_count=lambda: 1, Translator=fail)
    monkeypatch.setattr(ctranslate2_engine, "library", lambda: library)
    with pytest.raises(UsageError, match=r"no kernel image is available.*use --device cpu"):
        ctranslate2_engine.CTranslate2Engine(tmp_path, vocabulary, "cuda")


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError("CUDA error: out of memory" + ADVICE),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA failed with error out of memory"),
    ],
)
def test_full_gpu_memory_is_reported_in_one_sentence(
    overfitted: Path, monkeypatch: pytest.MonkeyPatch, error: RuntimeError
) -> None:
    """Cuda 18: whichever library notices it."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("nmt.translation.files.load_translator", fail)
    assert "out of memory" in refusal(call("translate", "-m", overfitted, stdin=b"Hello.\n"), 1)


def test_training_goes_on_without_a_working_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuda 17: the compiler fails as it does without Python's headers. On a CPU nothing is compiled."""

    def fail(*_: object) -> None:
        raise RuntimeError("fatal error: Python.h: No such file or directory\ncompilation terminated.")

    told: list[str] = []
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=fail))
    assert not devices.can_compile(torch.device("meta"), told.append)
    [warning] = told
    assert "Python.h: No such file" in warning
    assert "\n" not in warning
    assert not devices.can_compile(torch.device("cpu"), told.append)
    assert told == [warning]
