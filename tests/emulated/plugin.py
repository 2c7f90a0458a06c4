"""`pytest -p tests.emulated.plugin` runs tests that need CUDA on the emulated device, with commands in the same process."""

from tests.emulated.gpu import GPU, Gpu, emulated  # before torch

# isort: split
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from nmt import devices
from tests import conftest

DEVICE = emulated()
DEVICE.__enter__()


def run(*arguments: str | Path, stdin: bytes = b"", **_: object) -> CompletedProcess[bytes]:
    done = conftest.call(*arguments, stdin=stdin)
    return CompletedProcess(arguments, done.exit_code, done.stdout_bytes, done.stderr_bytes)


conftest.run_nmt = run
setattr(devices, "can_compile", lambda device, warn: False)  # noqa: B010


def pytest_unconfigure() -> None:
    DEVICE.__exit__(None, None, None)


@pytest.fixture(autouse=True)
def gpu() -> Iterator[Gpu]:
    """The device with its counters at zero."""
    GPU.reset()
    GPU.faults.clear()
    yield GPU
    GPU.fail, GPU.may_wait = lambda name: None, True
    assert not GPU.faults
