"""Print the lower bounds of pyproject.toml as a constraints file, for `make test-oldest`.

PyTorch, whose old CPU builds are gone from the usual index, and the development tools stay as constraints.txt pins them.
"""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def bounds(*requirements: str) -> dict[str, str]:
    """The lower bound of each requirement, by name."""
    return dict(requirement.split(">=") for requirement in requirements)


if __name__ == "__main__":
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
    extras = PROJECT["optional-dependencies"]
    oldest = bounds(*PROJECT["dependencies"], *(line for name in ("fast", "moses", "tensorboard") for line in extras[name]))
    for name, version in ({tool: pins[tool] for tool in bounds(*extras["dev"])} | oldest | {"torch": pins["torch"]}).items():
        print(f"{name}=={version}")
