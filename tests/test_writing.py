"""Languages without spaces: scored by what their words are, and joined as they are written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.data.vocabulary import Vocabulary
from nmt.scoring.metrics import bleu
from nmt.translation.translator import Translator
from nmt.writing import tokenizer_for, writes_spaces
from tests.conftest import call
from tests.translation.test_translator import Echo

CHINESE = ["今天老师买了一本新书。", "邻居看见了9把钥匙！", "妈妈在城里丢了一件衬衫。"]
JAPANESE = ["今日、先生は新しい本を買いました。", "カギをなくした。"]
THAI = ["ครูซื้อหนังสือเล่มใหม่", "แม่ทำเสื้อหายในเมือง"]


@pytest.mark.parametrize(
    ("lines", "tokenizer"),
    [
        (CHINESE, "zh"),
        (JAPANESE, "char"),
        (THAI, "char"),
        (["Der Hund 狗 schläft.", "Das Wort 猫 heißt Katze."], "13a"),
        (["1 2 3", ""], "13a"),
    ],
)
def test_a_script_has_its_tokenizer(lines: list[str], tokenizer: str) -> None:
    """The letters of the text decide; a foreign word in it changes nothing."""
    assert tokenizer_for(lines) == tokenizer


def test_codes_of_all_kinds_are_known() -> None:
    """N15: with two letters or three, with region or script, in any case."""
    assert not any(map(writes_spaces, ("zh", "ZH", "zh_Hans", "zh-TW", "cmn", "ja", "jpn", "th")))
    assert all(map(writes_spaces, ("en", "ko", "de-AT", "zu", "english")))


def test_scores_are_those_of_the_sacrebleu_command(tmp_path: Path) -> None:
    """With that tokeniser. Text against itself scores 100, where words between spaces would give 0."""
    assert bleu(CHINESE, [CHINESE]).value == pytest.approx(100)
    worse = [line.replace("了", "过") for line in CHINESE]
    for name, lines in (("hyp", worse), ("ref", CHINESE)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    hyp, ref = tmp_path / "hyp", tmp_path / "ref"
    command = [sys.executable, "-m", "sacrebleu", str(ref), "-i", str(hyp), "-tok", "zh", "--format", "json", "-w", "6"]
    theirs = json.loads(subprocess.check_output(command))
    [ours] = json.loads(call("score", hyp, "-r", ref, "--format", "json").stdout)
    assert ours["score"] == pytest.approx(theirs["score"], abs=1e-6)
    assert 0 < ours["score"] < 100
    assert "|tok:zh|" in ours["signature"]
    [ter] = json.loads(call("score", hyp, "-r", ref, "--metric", "ter", "--format", "json").stdout)
    assert "|asian:yes|" in ter["signature"]
    assert 0 < ter["score"] < 33  # it counts edits of characters, not of whole lines


@pytest.mark.parametrize(
    ("source", "target", "line", "joined"),
    [
        ("zh", "en", "老师买了书。妈妈买了书！", "老师买了书。 妈妈买了书！"),
        ("en", "zh", "He came. She left.  They  slept.", "He came.She left.  They  slept."),
        ("zh", "ja", "老师买了书。妈妈买了书！", "老师买了书。妈妈买了书！"),
        ("en", "de", "He came. She left.", "He came. She left."),
    ],
)
def test_sentences_are_joined_as_the_target_is_written(
    vocabulary: Vocabulary, source: str, target: str, line: str, joined: str
) -> None:
    """The target language decides what separates sentences, here with an engine that repeats each of them."""
    assert Translator(Echo(), vocabulary, source, target).translate([f" {line} "]) == [f" {joined} "]
