"""The benchmarks of translation run, count right, and refuse to compare what is not the same. Nothing here asserts a speed."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.model.transformer import sinusoids
from nmt.saved_model import SavedModel
from tests.benchmarks import contenders, translation, translators, turns
from tests.benchmarks.translation import Point, Text, check_equality, make_miniature, measure
from tests.benchmarks.turns import Contender

POINT = Point("greedy", 1, [[1, 0], [2]])
RIGHT = [[12, 13], [14], [15, 16, 17]]

# A contender that knows its translations by heart, and ends in the given turn.
STUB = """
import sys
from tests.benchmarks.turns import open_channel, serve
answer, turns = open_channel(), []
def work(request):
    turns.append(request)
    if len(turns) == {fails}:
        raise MemoryError("injected")
    return {{"translations": {translations}}}
answer(version="1", memory=1.0)
serve(answer, work)
answer()
"""


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PAUSE", 0.0)


def stub(name: str, folder: Path, translations: list[list[int]] = RIGHT, fails: int = 0, precision: str = "fp32") -> Contender:
    script = STUB.format(translations=translations, fails=fails)
    return Contender(name, precision, [sys.executable, "-c", script], folder, 1)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Text:
    return Text(make_miniature(tmp_path_factory.mktemp("text") / "model"), 1_000)


@pytest.mark.slow
def test_translation_benchmark_in_miniature(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every contender has a row at every point, with numbers or with why it is lost; those that run translate alike."""
    translation.main(["--smoke", "--threads", "1", "--json", str(tmp_path / "numbers.json")])
    facts = json.loads((tmp_path / "numbers.json").read_text())
    names = [name for name, precision in translation.FIELD if precision == "fp32"]
    points = [f"{search}, {cut}" for cut in ("batch of 1", "full batches") for search in ("greedy", "beam 4")]
    assert [(row["search"], row["contender"]) for row in facts["rows"]] == [(p, name) for p in points for name in names]
    for row in [*facts["rows"], *facts["batch_sizes"], *facts["same"]]:
        if "lost" in row:
            assert row["contender"] != "nmt"
            assert row["lost"]
            continue
        measured = ("sentences_per_second", "tokens_per_second", "ratio", "memory", *row["seconds"])
        for number in (row[key] if isinstance(key, str) else key for key in measured):
            assert math.isfinite(number), row
            assert number > 0, row
        assert len(row["seconds"]) == (1 if row in facts["same"] else 2)
        assert row["least"] <= row["ratio"] <= row["greatest"]
        assert 0 <= row["bleu"] <= 100
        if row["search"].startswith("greedy") or row["contender"] in translation.OURS:
            assert row["equal"] == 1, row
    assert [row["sentences"] for row in facts["batch_sizes"]] == [8] * 4
    assert [row["contender"] for row in facts["same"]] == list(translation.OURS)
    printed = capsys.readouterr().out
    assert all(printed.count(f"| {name} ") >= 4 for name in names)


def test_another_model_is_refused(tmp_path: Path) -> None:
    """In fp32; what computes in less is told of and may differ. One that cannot be built is lost."""
    wrong = [[12, 13], [14], [15, 16, 18]]
    rounded = [stub("nmt", tmp_path), stub("nmt", tmp_path, wrong, precision="bf16"), stub("broken", tmp_path, fails=1)]
    check_equality(rounded, POINT)
    assert [contender.facts.get("lost") for contender in rounded] == [None, None, "MemoryError: injected"]
    with pytest.raises(SystemExit, match=r"other fp32 gives other greedy translations than nmt"):
        check_equality([stub("nmt", tmp_path), stub("other", tmp_path, wrong)], POINT)
    with pytest.raises(SystemExit, match=r"nmt fp32: MemoryError: injected"):
        check_equality([stub("nmt", tmp_path, fails=1), stub("other", tmp_path)], POINT)


def test_lost_contender_keeps_its_row(tmp_path: Path, text: Text) -> None:
    """Also one that fails between rounds. Tokens count EOS, and ratios are taken within a round."""
    field = [stub("nmt", tmp_path), stub("failing", tmp_path, fails=3), stub("absent", tmp_path, fails=1)]
    for contender in field:
        contender.prepare(POINT.request(1))
    own, failing, absent = measure([(contender, POINT) for contender in field], 2, text)
    for contender in field:
        contender.finish()
    assert (own["sentences"], own["tokens"], own["equal"], own["ratio"]) == (3, 9, 1, 1)
    assert failing["lost"] == absent["lost"] == "MemoryError: injected"
    printed = translation.table([own, failing, absent], "nmt fp32", "nmt fp32").splitlines()
    assert len({line.count("|") for line in printed}) == 1
    assert [line.split("|")[2].strip() for line in printed[2:]] == ["nmt 1", "failing 1", "absent 1"]
    assert printed[-1].split("|")[4].strip() == "lost: MemoryError: injected"


def test_sameness_is_counted_by_sentence(tmp_path: Path, text: Text) -> None:
    """Whatever order the sentences come in: one that is translated otherwise, or by another's translation, is told."""
    full = Point("full", 1, [[0, 1, 2, 3, 4], [5]])
    small = Point("small", 1, text.shuffled(full.numbers, translation.SMALL))
    assert small.numbers != sorted(small.numbers) == full.numbers
    own = {number: [12 + number] for number in full.numbers}
    changed = own | {3: [99]}
    field = [stub("a", tmp_path, list(own.values()))]
    field += [stub(name, tmp_path, [ids[number] for number in small.numbers]) for name, ids in (("b", own), ("c", changed))]
    for contender in field:
        contender.prepare(full.request(1))
    found = measure([(field[0], full), (field[1], small), (field[2], small)], 1, text)
    for contender in field:
        contender.finish()
    assert [row["equal"] for row in found] == [1, 1, 5 / 6]


def test_batches_hold_every_sentence_once_and_no_more_than_the_budget(text: Text) -> None:
    numbers = range(len(text.sources))
    for size, budget in ((None, 100), (None, 1), (5, 100)):
        batches = text.batches(numbers, size, budget)
        assert sorted(number for batch in batches for number in batch) == [*numbers]
        lengths = [[len(text.sources[number]) for number in batch] for batch in batches]
        assert [n for batch in lengths for n in batch] == sorted((n for batch in lengths for n in batch), reverse=True)
        if size is None:
            assert all(len(batch) == 1 or len(batch) * batch[0] <= budget for batch in lengths)
        else:
            assert [len(batch) for batch in batches[:-1]] == [size] * (len(batches) - 1)


def test_peers_get_the_weights_of_the_model(tmp_path: Path) -> None:
    """Every number once, queries, keys and values apart, and the same table of positions."""
    directory = make_miniature(tmp_path / "model")
    saved = SavedModel.open(directory.path)
    workload: dict[str, Any] = {"model": str(directory.path), "sizes": saved.config["model"]}
    model: Any = saved.network()
    embedding, layers = translators.parameters(workload)
    assert embedding.numel() + sum(weight.numel() for weight in layers.values()) == model.count_parameters()
    state = torch.randn(2, 3, model.config.d_model)
    decoder: Any = model.decoder[0]
    encoder: Any = model.encoder[0]
    attention = decoder.cross_attention
    query, keys_values = attention.project(state)
    for part, expected in zip("qkv", (query, *keys_values.chunk(2, -1)), strict=True):
        weight, bias = (layers["decoder", "0", f"cross.{part}", kind] for kind in ("weight", "bias"))
        torch.testing.assert_close(torch.nn.functional.linear(state, weight, bias), expected)
    assert layers["decoder", "0", "norm", "bias"].equal(decoder.add_norms[2].norm.bias)
    assert layers["encoder", "0", "norm", "bias"].equal(encoder.add_norms[1].norm.bias)
    assert contenders.sinusoids(model.config.d_model).equal(sinusoids(contenders.LONGEST, model.config.d_model))
