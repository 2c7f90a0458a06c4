"""What is shipped: the wheel holds the tool and its demonstration corpus, and the versions are pinned."""

import gzip
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from nmt.data import corpus

ROOT = Path(__file__).parents[1]


def test_installed_wheel_is_complete(tmp_path: Path) -> None:
    """Away from the checkout, the wheel has every file of the package and the demo corpus, and no tests."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    tracked = subprocess.run(["git", "ls-files", "nmt"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not [name for name in tracked.splitlines() if not (installed / name).exists()]
    assert not [path for path in installed.rglob("*") if "tests" in path.parts]
    script = "from nmt.data.corpus import *; c = load('demo', 'en', 'de'); print(demo_folder(), c.train.sha256)"
    command, environment = [sys.executable, "-P", "-c", script], {"PYTHONPATH": str(installed)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    demo = installed / "nmt" / "data" / "demo"
    assert done.stdout.split() == [str(demo), corpus.load("demo", "en", "de").train.sha256]


def test_generator_wrote_the_corpus(tmp_path: Path) -> None:
    """Run beside a copy of its lexicon, the generator writes the very text that is shipped."""
    demo = ROOT / "data" / "demo"
    for name in ("generate.py", "lexicon.txt"):
        (tmp_path / name).write_bytes((demo / name).read_bytes())
    subprocess.run([sys.executable, str(tmp_path / "generate.py")], check=True, capture_output=True)
    for shipped in [path for path in demo.iterdir() if path.suffix in (".en", ".de", ".gz")]:
        read = gzip.decompress if shipped.suffix == ".gz" else bytes
        assert read((tmp_path / shipped.name).read_bytes()) == read(shipped.read_bytes()), shipped.name


@pytest.mark.parametrize("name", ["constraints.txt", "tests/oldest.py"])
def test_every_requirement_is_pinned_within_its_bounds(name: str) -> None:
    """In both lists of versions that the tests are run with: plain name==version, no address and no hash."""
    if name.endswith(".py"):
        printed = subprocess.run([sys.executable, str(ROOT / name)], check=True, capture_output=True, text=True).stdout
    else:
        printed = (ROOT / name).read_text()
    pins = dict(line.split("==") for line in printed.splitlines())
    assert all(version.replace(".", "").isalnum() for version in pins.values())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for group in (project["dependencies"], *project["optional-dependencies"].values()):
        for requirement in map(Requirement, group):
            assert requirement.specifier.contains(pins[requirement.name]), requirement
