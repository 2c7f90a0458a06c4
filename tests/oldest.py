"""The oldest versions that pyproject.toml allows, printed as a constraints file for `make test-oldest`.

Every run-time dependency and extra stands at its lower bound. PyTorch, of which no old CPU build is to be had everywhere,
and the development tools stay as constraints.txt pins them; what all these need in turn is left to pip.
"""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def bounds(*extras: str) -> dict[str, str]:
    """Lower bound by name of the run-time dependencies and of these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    return dict(requirement.split(">=") for group in groups for requirement in group)


def pins() -> dict[str, str]:
    """Version by name in constraints.txt."""
    return dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines())


def oldest() -> dict[str, str]:
    lower = bounds("fast", "moses", "tensorboard")
    return {name: pins()[name] for name in bounds("dev")} | lower | {"torch": pins()["torch"]}


if __name__ == "__main__":
    for name, version in oldest().items():
        print(f"{name}=={version}")
