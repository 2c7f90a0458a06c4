"""Whether this interpreter has what gpu.py needs, in versions that will do; else, which wheels to bring. For gpu.sh.

The bounds are those of pyproject.toml; the wheels are in the versions of constraints.txt.
"""

import importlib
import platform
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOT_NEEDED = ("datasets",)  # reads hub data sets, of which there is none without a network
# Whatever else pydantic and typer cannot do without, and tests.
BESIDES = ("pydantic_core", "annotated_types", "typing_inspection", "click", "shellingham", "pytest>=8")


def main() -> None:
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    needed = [one for one in (*asked, *BESIDES) if re.split("[><=]", one)[0] not in NOT_NEEDED]
    if lacking := {name: lack for name in needed if (lack := lacks(name))}:
        sys.exit(f"gpu.sh: {sys.executable} lacks {', '.join(lacking.values())}; {way_out(list(lacking))}")
    for name in needed:
        try:
            importlib.import_module(re.split("[><=]", name)[0])
        except Exception as error:  # a library that is not there, or a version that does not go with another's
            sys.exit(f"gpu.sh: {sys.executable} cannot import {name}: {error}")


def lacks(requirement: str) -> str:
    """The requirement, and the version that is there instead; empty where it is met."""
    name, _, least = requirement.partition(">=")
    try:
        found = version(name)
    except PackageNotFoundError:
        return requirement
    return "" if numbers(found) >= numbers(least) else f"{requirement} (it has {found})"


def numbers(version: str) -> list[int]:
    """Of the release: 2.11.0+cu130 -> [2, 11, 0]."""
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3]]


def way_out(lacking: list[str]) -> str:
    pinned = (ROOT / "constraints.txt").read_text().split()
    pins = {line.partition("==")[0].lower().replace("-", "_"): line for line in pinned}
    wanted = [pins.get(re.split("[><=]", one)[0].lower().replace("-", "_"), one) for one in lacking]
    tags = " ".join(f"--platform {tag}_{platform.machine()}" for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014"))
    return (
        "where there is a network,\n\n    pip download --no-deps --only-binary=:all: "
        f"--python-version {platform.python_version()} {tags} -d wheels {' '.join(wanted)}\n\n"
        "brings it, and the folder `wheels` is the third argument here"
    )


if __name__ == "__main__":
    main()
