"""What is shipped: the wheel holds the tool and its demonstration corpus, and the pinned versions name no place."""

import gzip
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from packaging.requirements import Requirement

from nmt.data import corpus

ROOT = Path(__file__).parents[1]


def test_installed_wheel_has_the_demo_corpus(tmp_path: Path) -> None:
    """From the wheel's own files, away from the checkout, `demo` loads with the same text."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    script = "from nmt.data.corpus import *; c = load('demo', 'en', 'de'); print(demo_folder(), c.train.sha256)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        check=True,
    )
    folder, digest = done.stdout.split()
    assert Path(folder) == tmp_path / "installed" / "nmt" / "data" / "demo"
    assert digest == corpus.load("demo", "en", "de").train.sha256
    assert not [path for path in (tmp_path / "installed").rglob("*") if "tests" in path.parts]


def test_generator_wrote_the_corpus(tmp_path: Path) -> None:
    """Run beside a copy of its lexicon, the generator gives the very files that are shipped."""
    for name in ("generate.py", "lexicon.txt"):
        (tmp_path / name).write_bytes((ROOT / "data" / "demo" / name).read_bytes())
    subprocess.run([sys.executable, str(tmp_path / "generate.py")], check=True, capture_output=True)
    for shipped in (ROOT / "data" / "demo").glob("*.*"):
        if shipped.suffix in (".en", ".de"):
            assert (tmp_path / shipped.name).read_bytes() == shipped.read_bytes(), shipped.name
        elif shipped.suffix == ".gz":
            written, expected = (
                gzip.decompress((path / shipped.name).read_bytes()) for path in (tmp_path, shipped.parent)
            )
            assert written == expected, shipped.name


def test_versions_are_pinned_plainly() -> None:
    """constraints.txt is a list of name==version: no address, no hash, no machine's own build."""
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name, _, version = line.partition("==")
        assert name
        assert version.replace(".", "").isalnum(), line


def required(*extras: str) -> dict[str, Requirement]:
    """By name what these extras of pyproject.toml ask for, or what nmt itself does."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [line for extra in extras for line in project["optional-dependencies"][extra]] or project["dependencies"]
    return {requirement.name: requirement for requirement in map(Requirement, lines)}


def pinned(lines: str) -> dict[str, str]:
    return dict(line.split("==") for line in lines.splitlines())


def test_every_requirement_is_pinned_within_its_bounds() -> None:
    pins = pinned((ROOT / "constraints.txt").read_text())
    for name, requirement in (required() | required("fast", "moses", "tensorboard") | required("dev")).items():
        assert requirement.specifier.contains(pins[name]), requirement


def test_oldest_versions_are_the_lower_bounds() -> None:
    """`make test-oldest` installs all that nmt asks for at its bounds, but PyTorch and the tools as they are pinned."""
    script = [sys.executable, str(ROOT / "tests" / "oldest.py")]
    oldest = pinned(subprocess.run(script, check=True, capture_output=True, text=True).stdout)
    pins = pinned((ROOT / "constraints.txt").read_text())
    run_time, tools = required() | required("fast", "moses", "tensorboard"), required("dev")
    assert oldest.keys() == run_time.keys() | tools.keys()
    for name, version in oldest.items():
        if name in run_time and name != "torch":
            assert f"{name}>={version}" == str(run_time[name]) == str(tools.get(name, run_time[name]))
        else:
            assert version == pins[name]
