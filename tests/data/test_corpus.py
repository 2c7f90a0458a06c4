"""Where pairs come from: folders of text, faults in their files, what is held out, and what a run makes of it."""

import gzip
import lzma
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from nmt.data.cache import Cache
from nmt.data.corpus import load
from nmt.data.splits import Pair
from nmt.lines import is_blank
from tests.conftest import call, write_corpus
from tests.data.conftest import complaint, numbered, splits

PAIRS = [("one", "eins"), ("two", "zwei"), ("three", "drei")]
MINIMAL = "[model]\nlayers = 1\nd_model = 8\nheads = 2\n[training]\nsteps = 1\n"


def write(folder: Path, **files: bytes) -> Path:
    """A folder of files, named with _ for the dots; a name that ends in _gz is compressed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        packed = gzip.compress(content) if name.endswith("_gz") else content
        (folder / name.replace("_", ".")).write_bytes(packed)
    return folder


def side(pairs: Sequence[Pair], number: int) -> bytes:
    return "".join(pair[number] + "\n" for pair in pairs).encode()


# What is read.


@pytest.mark.parametrize("valid", ["valid", "validation", "dev"])
def test_a_folder_of_text_is_three_splits(tmp_path: Path, valid: str) -> None:
    """Plain and compressed files make the same pairs, and each iteration of a split reads all of it."""
    files = {"train_en": side(PAIRS, 0), "train_de_gz": side(PAIRS, 1), "test_en_gz": b"t\n", "test_de": b"T\n"}
    files |= {f"{valid}_en": b"v\nw\n", f"{valid}_de": b"V\nW\n"}
    corpus = load(str(write(tmp_path / "mine", **files)), "en", "de")
    assert splits(corpus) == splits(corpus) == [PAIRS, [("v", "V"), ("w", "W")], [("t", "T")]]
    assert [split.count for split in corpus.splits.values()] == [3, 2, 1]
    assert (corpus.name, corpus.notes) == ("mine", ())


def test_swapped_languages_reverse_the_pairs(tmp_path: Path) -> None:
    """`--source de --target en` is the same text the other way round, with another fingerprint."""
    folder = str(write_corpus(tmp_path, train=PAIRS))
    forth, back = load(folder, "en", "de"), load(folder, "de", "en")
    assert list(back.train) == [(target, source) for source, target in PAIRS]
    assert forth.train.sha256 != back.train.sha256


@pytest.mark.parametrize("code", ["fr", "pt-BR", "zh_Hans"])
def test_any_two_languages_of_a_folder_are_read(tmp_path: Path, code: str) -> None:
    """Region and script are part of a code. Files of other languages and other names are left alone."""
    for name in ("train.en", "train.de", "README.md", "train.log.txt", "train.csv"):
        (tmp_path / name).write_text("a\n")
    (tmp_path / f"train.{code}").write_text("b\n")
    assert list(load(str(tmp_path), code, "de").train) == [("b", "a")]


def test_the_fingerprint_is_of_the_text(tmp_path: Path) -> None:
    """N3: compression, UTF-16, CRLF and a byte order mark do not change a corpus; another character or line break does."""

    def fingerprint(name: str, **files: bytes) -> str:
        return load(str(write(tmp_path / name, **files)), "en", "de").train.sha256

    plain = fingerprint("plain", train_en=b"a b\nc\n", train_de=b"A\nC\n")
    assert fingerprint("windows", train_en_gz=b"\xef\xbb\xbfa b\r\nc", train_de=b"A\r\nC\r\n") == plain
    wide = {"train_en": "a b\nc\n".encode("utf-16"), "train_de_gz": "A\nC\n".encode("utf-16-le")}
    assert fingerprint("wide", **wide) == plain
    assert fingerprint("changed", train_en=b"a b\nc\n", train_de=b"A\nc\n") != plain
    assert fingerprint("moved", train_en=b"a b\nc\n", train_de=b"A\nC \n") != plain


@pytest.mark.parametrize(
    ("source", "target"),
    [("train.en.txt", "train.de.txt.gz"), ("Books.de-en.en", "Books.de-en.de"), ("train.en-de.en.XZ", "train.de")],
)
def test_usual_layouts_are_read(tmp_path: Path, source: str, target: str) -> None:
    """N6: .txt after the language, OPUS's pair of files, and any compression, beside files of other kinds and languages."""
    for name, number in ((source, 0), (target, 1)):
        content = side(PAIRS, number)
        packed = {".gz": gzip.compress(content), ".XZ": lzma.compress(content)}
        (tmp_path / name).write_bytes(packed.get(Path(name).suffix, content))
    for name in ("Books.de-en.ids", "Books.de-fr.de", "Books.de-fr.fr", "LICENSE", "README.md"):
        (tmp_path / name).write_text("other\n")
    assert list(load(str(tmp_path), "en", "de").train) == PAIRS


def test_files_that_look_meant_and_are_not_used_are_named(tmp_path: Path) -> None:
    """N6: of torchtext's Multi30k, val.en is read, and for test2016.en the right name is given."""
    folder, said = write_corpus(tmp_path / "multi30k", train=PAIRS, val=PAIRS[:1], test2016=PAIRS[1:]), list[str]()
    (folder / "test2016.fr").write_text("x\n")
    assert splits(load(str(folder), "en", "de", warn=said.append)) == [PAIRS, PAIRS[:1], []]
    assert said == [f"{folder}: not used, for their names: test2016.de (call it test.de), test2016.en (call it test.en)"]
    half = write(tmp_path / "half", Train_en=b"x\n", train_de=b"X\n")
    assert complaint(half).endswith("languages found: de; not used, for their names: Train.en (call it train.en)")


@pytest.mark.parametrize("name", ["demo", "wmt14"])
def test_a_folder_that_is_passed_over_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, wmt14: Path
) -> None:
    """N5: `--data demo` is the embedded corpus even if there is a folder demo, which is ./demo."""
    said: list[str] = []
    monkeypatch.chdir(tmp_path)
    assert load(name, "en", "de", warn=said.append).name == name
    assert said == []
    write_corpus(tmp_path / name, train=PAIRS)
    assert load(name, "en", "de", warn=said.append).train.count > 3
    [line] = said
    assert f"write ./{name} for the folder" in line
    assert list(load(f"./{name}", "en", "de", warn=said.append).train) == PAIRS


# What looks wrong.


def test_text_that_looks_wrong_is_told_of_each_time(tmp_path: Path, cache: Cache) -> None:
    """N35: once per language and kind, also if the corpus comes from the cache."""
    pairs = [(f"I don &apos;t know {number} .", f"Ich weiß es nicht{number}.") for number in range(50)]
    folder = str(write_corpus(tmp_path / "mine", train=pairs, valid=pairs[:5], test=[("One.", "Eins.")]))
    for _ in range(2):
        said: list[str] = []
        load(folder, "en", "de", cache, said.append)
        assert [sentence[: sentence.index(" (")] for sentence in said] == [
            "--data mine: train.en, valid.en: seems tokenised",
            "--data mine: train.en, valid.en: seems escaped",
        ]


# What is refused.


def test_a_wrong_language_lists_those_found(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path, train=PAIRS, valid=PAIRS)
    (folder / "valid.fr").write_text("x\n")
    for languages, option in ((("en", "fr"), "--target fr"), (("fr", "de"), "--source fr")):
        message = complaint(folder, *languages)
        assert option in message
        assert message.endswith("languages found: de, en")
    assert "same language" in complaint(folder, "en", "en")


def test_each_side_occurs_once(tmp_path: Path) -> None:
    """A side in two files, and a side without its counterpart, are refused."""
    write_corpus(tmp_path, train=PAIRS, validation=PAIRS)
    write(tmp_path, dev_de_gz=b"x\n")
    assert re.search(r"dev\.de\.gz.*validation\.de|validation\.de.*dev\.de\.gz", complaint(tmp_path))
    (tmp_path / "dev.de.gz").unlink()
    (tmp_path / "test.en").write_text("x\n")
    assert "test.en has no counterpart" in complaint(tmp_path)


@pytest.mark.parametrize(("split", "longer"), [("train", "en"), ("test", "de")])
def test_sides_of_different_length_are_refused(tmp_path: Path, split: str, longer: str) -> None:
    """D2: with both names, both counts and the first line without a counterpart, before any work."""
    folder = write_corpus(tmp_path, train=PAIRS, test=PAIRS)
    with (folder / f"{split}.{longer}").open("a") as file:
        file.write("four\nfive\n")
    message = complaint(folder)
    for language, count in ({"en": 3, "de": 3} | {longer: 5}).items():
        assert f"{folder / split}.{language} has {count}" in message
    assert "line 4 has no counterpart" in message


@pytest.mark.parametrize("split", ["train", "valid"])
def test_invalid_utf8_is_found_on_loading(tmp_path: Path, split: str) -> None:
    """D2: a Latin-1 byte in any split stops the run before any work, with file and line."""
    folder = write_corpus(tmp_path, train=PAIRS, valid=PAIRS)
    (folder / f"{split}.de").write_bytes(b"eins\nzw\xe9i\ndrei\n")
    assert f"{split}.de, line 2: not UTF-8" in complaint(folder)


@pytest.mark.parametrize("data", ["train.en", "./no/where", "a/b/c", ""])
def test_data_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str) -> None:
    """A file, a missing folder and an empty name are each one sentence about --data."""
    monkeypatch.chdir(write_corpus(tmp_path, train=PAIRS))
    message = complaint(data)
    assert message.startswith(f"--data {data}")
    assert data != "train.en" or "name the folder that holds train.en and train.de" in message


# What is held out.


@pytest.mark.parametrize(("count", "share"), [(1_000, 50), (20_500, 1_000)])
def test_missing_splits_are_held_out(tmp_path: Path, count: int, share: int) -> None:
    """Without valid and test, 5% of the pairs but at most 1,000 become each and leave train, with a note."""
    pairs = numbered(count)
    corpus = load(str(write_corpus(tmp_path, train=pairs)), "en", "de")
    train, valid, test = splits(corpus)
    assert (len(train), len(valid), len(test)) == (count - 2 * share, share, share)
    assert sorted(train + valid + test) == sorted(pairs)
    assert [split.count for split in corpus.splits.values()] == [len(train), share, share]
    assert f"{share:,} pairs each for valid and test" in corpus.notes[0]


def test_small_corpora_are_not_cut(tmp_path: Path) -> None:
    """Below 1,000 pairs nothing is held out, with a note."""
    corpus = load(str(write_corpus(tmp_path, train=numbered(999))), "en", "de")
    assert splits(corpus) == [numbered(999), [], []]
    assert re.search("no valid or test text.* 1,000", corpus.notes[0])


def test_no_source_is_in_two_splits(tmp_path: Path) -> None:
    """A source with several translations is held out once, and none of its pairs stays in train."""
    pairs = [(source, f"{target} {version}") for version in range(3) for source, target in numbered(1_000)]
    train, valid, test = splits(load(str(write_corpus(tmp_path, train=pairs)), "en", "de"))
    sources = [{source for source, _ in split} for split in (train, valid, test)]
    assert [len(valid), len(test)] == [len(sources[1]), len(sources[2])] == [150, 150]
    assert sum(map(len, sources)) == len(set.union(*sources)) == 1_000
    assert len(train) == 3 * len(sources[0])


# What a run makes of it.


@pytest.mark.parametrize("train", [[("x", "word " * 20)] * 5, PAIRS])
def test_a_run_needs_pairs_to_train_on_but_not_to_validate(tmp_path: Path, train: list[Pair]) -> None:
    """D3: where cleaning leaves nothing, the run ends with one sentence that says why. Empty valid and test files do not."""
    data = write_corpus(tmp_path / "data", train=train, valid=[], test=[])
    (tmp_path / "minimal.toml").write_text(MINIMAL)
    done = call("train", "--data", data, "--config", tmp_path / "minimal.toml", "-m", tmp_path / "model")
    if train == PAIRS:
        assert (done.exit_code, "done after" in done.stderr) == (0, True)
    else:
        assert done.exit_code == 2
        last = done.stderr.splitlines()[-1]
        assert re.match("nmt: --data data: no training pair is left.* dropped 5: 5 with a length ratio over 3", last)


# The embedded corpus.


def test_the_demo_corpus_is_whole() -> None:
    """About 20,000 training pairs and 500 each for valid and test, none blank, in both directions, without a warning."""
    said: list[str] = []
    corpus = load("demo", "en", "de", warn=said.append)
    train, valid, test = splits(corpus)
    assert 19_000 <= len(train) <= 21_000
    assert [len(valid), len(test)] == [500, 500]
    assert not any(is_blank(text) for pair in train + valid + test for text in pair)
    assert next(iter(load("demo", "de", "en").train)) == (train[0][1], train[0][0])
    assert (corpus.name, corpus.notes, said) == ("demo", (), [])
    for number in (0, 1):  # no sentence, in either language, is in two splits
        sentences = [{pair[number] for pair in split} for split in (train, valid, test)]
        assert sum(map(len, sentences)) == len(set.union(*sentences))
