"""Faults that users of such tools met in translating: what is right, for each."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nmt
from nmt.data.cleaning import copies_letterless, facts_of
from nmt.data.vocabulary import Vocabulary
from nmt.lines import needs_no_translation
from nmt.translation.hypothesis import Hypothesis
from nmt.translation.joining import Segment, differ, join, numbers_of
from nmt.translation.splitting import has_rules, sentences
from tests import runs
from tests.conftest import Nmt, call, refusal, write_corpus

REGULAR = stat.S_IFREG


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({"lines": "I see the old man."}, "lines must be a list of str, one a line, not str"),
        ({"lines": b"I see"}, "lines must be a list of str, one a line, not bytes"),
        ({"lines": None}, "lines must be a list of str, one a line, not NoneType"),
        ({"lines": ["A.", None]}, r"lines\[1\] must be a str, not NoneType"),
        ({"lines": [float("nan")]}, r"lines\[0\] must be a str, not float"),
        ({"lines": [b"A."]}, r"lines\[0\] must be a str, not bytes"),
        ({"lines": ["A."], "beam": True}, "beam must be an int, not bool"),
        ({"lines": ["A."], "beam": 2.0}, "beam must be an int, not float"),
        ({"lines": ["A."], "length_penalty": "0.6"}, "length_penalty must be a number, not str"),
        ({"lines": ["A."], "split": 1}, "split must be True or False, not int"),
    ],
)
def test_an_argument_of_another_kind_is_named(arguments: dict[str, Any], wanted: str, overfitted: Path) -> None:
    """N1: a string is no list of lines, and nothing is no line."""
    translator = nmt.load(overfitted, "cpu")
    with pytest.raises(TypeError, match=f"^{wanted}$"):
        translator.translate(**arguments)


def test_numbers_of_numpy_and_any_iterable_of_lines_are_welcome(overfitted: Path, sources: list[str]) -> None:
    """N1: what is of the kind that is wanted, under another name."""
    translator = nmt.load(str(overfitted), "cpu")
    expected = translator.translate(sources[:2], beam=2)
    assert translator.translate((line for line in sources[:2]), beam=np.int64(2)) == expected  # type: ignore[arg-type]
    for arguments in ((7,), (overfitted, 1), (overfitted, "cpu", None)):
        with pytest.raises(TypeError, match=r"^(model|device|engine) must be a (path|str), not "):
            nmt.load(*arguments)


def translate(source: Path, output: Path, model: Path) -> None:
    done = call("translate", source, "-o", output, "-m", model, "--device", "cpu", "--quiet")
    assert done.exit_code == 0, done.stderr


@pytest.fixture
def text(tmp_path: Path, sources: list[str]) -> Path:
    (tmp_path / "in").write_text(f"{sources[0]}\n{sources[1]}\n", encoding="utf-8")
    return tmp_path / "in"


def test_a_link_and_a_mode_are_kept(text: Path, tmp_path: Path, overfitted: Path) -> None:
    """N7: what a link leads to is written, a hard link stays one, and a private file stays private."""
    translate(text, tmp_path / "plain", overfitted)
    expected = (tmp_path / "plain").read_bytes()
    assert expected.count(b"\n") == 2
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (target := elsewhere / "target").write_text("old")
    target.chmod(0o600)
    (tmp_path / "link").symlink_to("elsewhere/target")
    os.link(target, tmp_path / "second")
    translate(text, tmp_path / "link", overfitted)
    assert (tmp_path / "link").is_symlink()
    assert target.read_bytes() == (tmp_path / "second").read_bytes() == expected
    assert target.stat().st_mode == REGULAR | 0o600
    assert sorted(path.name for path in elsewhere.iterdir()) == ["target"]


def test_output_is_tried_before_the_work(text: Path, tmp_path: Path) -> None:
    """N7: before a model is looked for, which is not there."""
    said = refusal(call("translate", text, "-o", tmp_path, "-m", tmp_path / "none"))
    assert f"--output {tmp_path}: Is a directory" in said
    said = refusal(call("translate", text, "-o", tmp_path / "no" / "folder", "-m", tmp_path / "none"))
    assert "there is no folder" in said


@pytest.mark.skipif(os.getuid() != 0, reason="takes another user's part")
def test_a_file_that_can_be_written_in_a_folder_that_cannot(text: Path, tmp_path: Path, overfitted: Path) -> None:
    """N7: it is written in place; a new one there is refused before the work."""
    (folder := tmp_path / "folder").mkdir()
    (output := folder / "out").write_text("old")
    output.chmod(0o666)
    for path in (tmp_path, *tmp_path.parents):
        path.chmod(path.stat().st_mode | 0o055) if path != Path("/") else None
    folder.chmod(0o555)
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom nmt.destination import Destination\n"
        "from nmt.errors import UsageError\nos.setgid(65534); os.setuid(65534)\n"
        "with Destination(Path(sys.argv[1])).open() as out: out.write(b'new')\n"
        "try: Destination(Path(sys.argv[2]))\nexcept UsageError as error: print(error)\n"
    )
    command = [sys.executable, "-c", script, str(output), str(folder / "another")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert output.read_text() == "new"
    assert "Permission denied" in done.stdout


def test_a_fork_of_a_loaded_model_is_refused_at_once(overfitted: Path) -> None:
    """N11: and not waited for without end."""
    script = (
        "import os, sys, nmt\n"
        "translator = nmt.load(sys.argv[1], 'cpu')\n"
        "translator.translate(['I see the old man.', 'We have a dog.'])\n"
        "if os.fork() == 0:\n"
        "    try: translator.translate(['I see the old man.'])\n"
        "    except nmt.errors.NmtError as error: print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print(*translator.translate(['']), sep='')\n"
    )
    command = [sys.executable, "-c", script, str(overfitted)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert "load it in each process, after the fork" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("language", "line", "count"),
    [
        ("de", "Im 19. Jahrhundert war es so. Heute nicht.", 2),
        ("deu", "Im 19. Jahrhundert war es so. Heute nicht.", 2),
        ("de-AT", "Am 3. Oktober feiern wir. Kommst du?", 2),
        ("de", "Das war 1990. Danach kam vieles anders.", 2),
        ("ger", "Ich nehme die Linie 7. Sie fährt oft.", 2),
        ("da", "Det var den 3. maj. Vi kom sent.", 2),
        ("en", "It was in 1990. Then it changed.", 2),
        ("eng", "Dr. Smith came. He sat down.", 2),
    ],
)
def test_an_ordinal_ends_no_sentence(language: str, line: str, count: int) -> None:
    """N15: where a language writes them with a full stop; a year or a number before a beginning does end one."""
    found = sentences(line, language)
    assert "".join(found) == line
    assert len(found) == count, found


def test_codes_of_three_letters_have_their_languages_rules() -> None:
    """N15: and a language of which none are known is told apart from the others."""
    assert has_rules("deu")
    assert has_rules("en-GB")
    assert not has_rules("xx")


@pytest.mark.parametrize(
    ("line", "copied"),
    [("</p>", True), ("<br/> 12 &nbsp;", True), ("<p>I see.</p>", False), ("a < b > c", False), ("3 < 4", True)],
)
def test_tags_alone_are_not_translated(line: str, copied: bool) -> None:
    """N16: a piece without a word of its own never reaches the model."""
    assert needs_no_translation(line) is copied


def test_a_line_in_a_tag_keeps_it(overfitted: Path) -> None:
    """N16: the tag that stands behind the sentence is what it was."""
    [line] = nmt.load(overfitted, "cpu").translate(["I see the old man. </p>"])
    assert line.endswith("</p>")


def test_whether_lines_without_a_letter_are_copied_is_read_off_the_training_text() -> None:
    """N44: most of those there are, or too few to tell."""

    def of(pairs: list[tuple[str, str]]) -> bool | None:
        return copies_letterless(np.array([facts_of(*pair) for pair in pairs], np.uint8))

    text = [("A dog.", "Ein Hund.")] * 50
    assert of([("12", "zwölf"), ("7", "sieben")]) is False
    assert of([("⠓⠑", "he")] * 3 + text) is False
    assert of([("12", "12"), ("7", "7"), ("8", "acht"), *text]) is True
    assert of(text) is None
    assert of([("", "leer"), ("  ", "leer")]) is None


def test_digits_are_translated_by_a_model_of_digits(tmp_path: Path) -> None:
    """N44: in validation, by translate and by score alike, for config.json says so."""
    names = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
    pairs = [(f"{one} {two}", f"{names[one]} {names[two]}") for one in range(10) for two in range(10)]
    data = write_corpus(tmp_path / "corpus", train=pairs, valid=pairs[:4], test=pairs[4:8])
    model = tmp_path / "model"
    done = runs.train(model, data, "--steps", "8", vocab_size=400)
    assert done.exit_code == 0, done.stderr
    assert json.loads((model / "config.json").read_text())["data"]["copies_letterless"] is False
    assert "to be translated" in done.stderr
    written = call("translate", "-m", model, "--device", "cpu", stdin=b"1 2\n\n7 7\n").stdout.split("\n")
    assert written[1] == ""
    assert written[0] != "1 2"
    sampled = [event for event in runs.events(model) if event["event"] == "validation"][-1]["samples"]
    assert all(one["translation"] not in {source for source, _ in pairs} for one in sampled)


@pytest.mark.parametrize(
    ("source", "target", "differs"),
    [
        ("Room 231", "Zimmer 213", True),
        ("Room 231", "Zimmer 231", False),
        ("1,000 men", "1.000 Männer", False),
        ("1,000 men", "10.000 Männer", True),
        ("٢٣١", "231", False),
        ("two dogs", "2 Hunde", False),
        ("3 dogs", "vier Hunde", False),
        ("3 dogs", "4 Hunde", True),
        ("3.5 km", "3,5 km", False),
        ("1990 and 1991", "1990", True),
    ],
)
def test_numbers_that_differ_are_known(source: str, target: str, differs: bool) -> None:
    """F3: by value, whatever sets the thousands apart and whatever the script; small ones may be words."""
    assert differ(numbers_of([source]), numbers_of([target])) is differs


def test_numbers_that_differ_are_flagged_and_told(overfitted: Path) -> None:
    """F3: in JSON, and in one warning."""
    text = b"Room 231\nI see the old man.\nRoom 77 of 881\n"
    done = call("translate", "-m", overfitted, "--device", "cpu", "--format", "json", stdin=text)
    flags = [json.loads(line)["hypotheses"][0]["flags"] for line in done.stdout.splitlines()]
    assert ["numbers" in one for one in flags] == [True, False, True]
    assert "warning: has other numbers than its source: lines 1, 3\n" in done.stderr


def test_a_text_is_listed_once(vocabulary: Vocabulary) -> None:
    """F8: however it is spelled in pieces, with the best one's score."""
    ids, other = vocabulary.encode("the man"), vocabulary.encode("a man")
    again = [*vocabulary.encode("the ma"), vocabulary.pieces(range(len(vocabulary))).index("<0x6E>")]
    assert vocabulary.decode(again) == "the man"
    hypotheses = [Hypothesis(one, -1.0 - place, -1.0 - place, False) for place, one in enumerate((ids, again, other))]
    found = join([Segment(ids, False, hypotheses)], vocabulary, 3)
    texts = [translation.text for translation in found]
    assert texts == ["the man", "a man"]
    assert found[0].score == -1.0


@pytest.mark.slow
def test_rank_1_is_the_plain_translation_in_both_engines(nmt: Nmt, overfitted: Path, tmp_path: Path) -> None:
    """F5: however many are asked for."""
    text = "".join(f"I see the {word} man and the dog.\n" for word in ("old", "new", "big", "small", "good"))
    model = tmp_path / "model"
    shutil.copytree(overfitted, model)
    assert nmt("export", "-m", model).returncode == 0
    for engine in ("torch", "ctranslate2"):
        asked = ("translate", "-m", model, "--engine", engine, "--device", "cpu")
        plain = nmt(*asked, stdin=text.encode()).stdout.decode().splitlines()
        listed = [
            row.split("\t") for row in nmt(*asked, "--n-best", "3", stdin=text.encode()).stdout.decode().splitlines()
        ]
        assert [row[3] for row in listed if row[1] == "1"] == plain
