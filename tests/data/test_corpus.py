"""Where pairs come from: folders of text, faults of their files, what is held out, and what a run makes of it."""

import gzip
import lzma
import random
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import Result

from nmt.data.cache import Cache
from nmt.data.corpus import load
from nmt.data.splits import Pair
from nmt.lines import is_blank
from tests.conftest import call, write_corpus
from tests.data.conftest import complaint, numbered, splits

PAIRS = [("one", "eins"), ("two", "zwei"), ("three", "drei")]
MINIMAL = "[model]\nlayers = 1\nd_model = 8\nheads = 2\n[training]\nsteps = 1\n"


def write(folder: Path, **files: bytes) -> Path:
    """A folder of files, named with _ for the dots; a name that ends in _gz is packed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        packed = gzip.compress(content) if name.endswith("_gz") else content
        (folder / name.replace("_", ".")).write_bytes(packed)
    return folder


def side(pairs: Sequence[Pair], number: int) -> bytes:
    return "".join(pair[number] + "\n" for pair in pairs).encode()


# What is read.


@pytest.mark.parametrize("valid", ["valid", "validation", "val", "dev"])
def test_a_folder_of_text_is_three_splits(tmp_path: Path, valid: str) -> None:
    """Plain and packed files make the same pairs, and `valid` goes by three names."""
    files = {"train_en": side(PAIRS, 0), "train_de_gz": side(PAIRS, 1), "test_en_gz": b"t\n", "test_de": b"T\n"}
    files |= {f"{valid}_en": b"v\nw\n", f"{valid}_de": b"V\nW\n"}
    corpus = load(str(write(tmp_path / "mine", **files)), "en", "de")
    assert splits(corpus) == [PAIRS, [("v", "V"), ("w", "W")], [("t", "T")]]
    assert [split.count for split in (corpus.train, corpus.valid, corpus.test) if split] == [3, 2, 1]
    assert (corpus.name, corpus.notes) == ("mine", ())


def test_a_split_can_be_read_again(tmp_path: Path) -> None:
    """Iterating a split twice gives all of it twice, for learning, cleaning and epochs each read it anew."""
    train = load(str(write_corpus(tmp_path, train=PAIRS)), "en", "de").train
    assert list(train) == list(train) == PAIRS


def test_swapped_languages_reverse_the_pairs(tmp_path: Path) -> None:
    """`--source de --target en` on the same folder is the same text the other way round, and known as another."""
    folder = str(write_corpus(tmp_path, train=PAIRS))
    forth, back = load(folder, "en", "de"), load(folder, "de", "en")
    assert list(back.train) == [(target, source) for source, target in PAIRS]
    assert forth.train.sha256 != back.train.sha256


def test_two_of_many_languages_are_read(tmp_path: Path) -> None:
    """A folder in several languages serves every pair of them, and other files in it are left alone."""
    files = {"train_en": b"a\n", "train_de": b"b\n", "train_fr": b"c\n", "README_md": b"x\n", "train_log_txt": b"y\n"}
    folder = str(write(tmp_path, **files))
    assert list(load(folder, "fr", "de").train) == [("c", "b")]


@pytest.mark.parametrize("code", ["pt-BR", "zh_Hans", "sr-Latn-RS"])
def test_language_codes_may_have_subtags(tmp_path: Path, code: str) -> None:
    """Any language pair can be trained, so region and script are part of a code."""
    (tmp_path / "train.en").write_text("a\n")
    (tmp_path / f"train.{code}").write_text("b\n")
    assert list(load(str(tmp_path), "en", code).train) == [("a", "b")]


def test_the_fingerprint_is_of_the_text(tmp_path: Path) -> None:
    """N3: packing, UTF-16, CRLF and a byte order mark do not change a corpus; another character or line break does."""

    def fingerprint(name: str, **files: bytes) -> str:
        return load(str(write(tmp_path / name, **files)), "en", "de").train.sha256

    plain = fingerprint("plain", train_en=b"a b\nc\n", train_de=b"A\nC\n")
    assert fingerprint("windows", train_en_gz=b"\xef\xbb\xbfa b\r\nc", train_de=b"A\r\nC\r\n") == plain
    wide = {"train_en": "a b\nc\n".encode("utf-16"), "train_de_gz": "A\nC\n".encode("utf-16-le")}
    assert fingerprint("wide", **wide) == plain
    assert fingerprint("changed", train_en=b"a b\nc\n", train_de=b"A\nc\n") != plain
    assert fingerprint("moved", train_en=b"a b\nc\n", train_de=b"A\nC \n") != plain


def test_separators_inside_lines_do_not_shift_the_pairs(tmp_path: Path) -> None:
    """Seven lines by LF are seven pairs, whatever else in them other readers take for a line break."""
    source = "Good\u2028morning.\nA\u0085B\nC\x0bD\nE\x0cF\nG\x1cH\nprice\r list\nlast\n"
    target = "Guten Morgen.\nA B\nC D\nE F\nG H\nPreisliste\nletzte\n"
    train = load(str(write(tmp_path, train_en=source.encode(), train_de=target.encode())), "en", "de").train
    assert train.count == 7
    assert list(train)[5:] == [("price\r list", "Preisliste"), ("last", "letzte")]


@pytest.mark.parametrize(
    ("source", "target"),
    [("train.en.txt", "train.de.txt.gz"), ("Books.de-en.en", "Books.de-en.de"), ("train.en-de.en.XZ", "train.de")],
)
def test_usual_layouts_are_read(tmp_path: Path, source: str, target: str) -> None:
    """N6: .txt behind the language, OPUS's pair of files, and any packing, beside files of other kinds and languages."""
    for name, number in ((source, 0), (target, 1)):
        content = side(PAIRS, number)
        packed = {".gz": gzip.compress(content), ".XZ": lzma.compress(content)}
        (tmp_path / name).write_bytes(packed.get(Path(name).suffix, content))
    for name in ("Books.de-en.ids", "Books.de-fr.de", "Books.de-fr.fr", "LICENSE", "README.md"):
        (tmp_path / name).write_text("other\n")
    assert list(load(str(tmp_path), "en", "de").train) == PAIRS


def test_a_training_file_goes_before_corpora_of_other_names(tmp_path: Path) -> None:
    """N6: OPUS's files beside one's own are no part of the text, which is told nowhere else."""
    folder = write_corpus(tmp_path, train=PAIRS)
    write(folder, **{"Books_de-en_en": b"x\n", "Books_de-en_de": b"X\n"})
    assert list(load(str(folder), "en", "de").train) == PAIRS


def test_corpora_of_other_names_are_not_chosen_between(tmp_path: Path) -> None:
    """N6: two of them are refused with both names; in other languages, the languages are listed."""
    folder = write(
        tmp_path, **{f"{name}_de-en_{code}": b"x\n" for name in ("Books", "Tatoeba") for code in ("de", "en")}
    )
    assert re.search(r"Books\.de-en\.de and Tatoeba\.de-en\.de are the same side twice.*cat", complaint(folder))
    assert complaint(folder, "en", "fr").endswith("no training text train.en for --source en; languages found: de-en")


def test_files_that_look_meant_and_are_not_used_are_named(tmp_path: Path) -> None:
    """N6: torchtext's Multi30k has val.en and test2016.en: the first is read, and the second told of with the right name."""
    folder, said = write_corpus(tmp_path, train=PAIRS, val=PAIRS[:1], test2016=PAIRS[1:]), list[str]()
    (folder / "test2016.fr").write_text("x\n")
    corpus = load(str(folder), "en", "de", warn=said.append)
    assert splits(corpus) == [PAIRS, PAIRS[:1], []]
    assert said == [
        f"{folder}: not used, for their names: test2016.de (call it test.de), test2016.en (call it test.en)"
    ]


def test_a_training_text_of_another_name_is_named(tmp_path: Path) -> None:
    """N6: in the refusal of a folder that has nothing else."""
    folder = write(tmp_path, **{"Train_en": b"x\n", "train_de": b"X\n"})
    assert complaint(folder).endswith("languages found: de; not used, for their names: Train.en (call it train.en)")


@pytest.mark.parametrize("name", ["demo", "wmt14"])
def test_a_folder_that_is_passed_over_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, wmt14: Path
) -> None:
    """N5: `--data demo` is the embedded corpus also where a folder demo is, which is ./demo; without one, nothing is said."""
    said: list[str] = []
    monkeypatch.chdir(tmp_path)
    assert load(name, "en", "de", warn=said.append).name == name
    assert said == []
    write_corpus(tmp_path / name, train=PAIRS)
    assert load(name, "en", "de", warn=said.append).train.count > 3
    assert said == [
        f"--data {name}: the corpus of that name, and not the folder that is here; write ./{name} for the folder"
    ]
    assert list(load(f"./{name}", "en", "de", warn=said.append).train) == PAIRS


# What looks wrong.


def test_text_that_looks_wrong_is_told_of_each_time(tmp_path: Path, cache: Cache) -> None:
    """N35: once for each language and kind, also where the corpus comes from the cache; and nothing of a plain one."""
    pairs = [(f"I don &apos;t know {number} .", f"Ich weiß es nicht{number}.") for number in range(50)]
    folder = str(write_corpus(tmp_path / "mine", train=pairs, valid=pairs[:5], test=[("One.", "Eins.")]))
    for _ in range(2):
        said: list[str] = []
        load(folder, "en", "de", cache, said.append)
        assert [sentence[: sentence.index(" (")] for sentence in said] == [
            "--data mine: train.en, valid.en: seems tokenised",
            "--data mine: train.en, valid.en: seems escaped",
        ]
    load("demo", "en", "de", None, said.append)
    assert len(said) == 2


def test_the_form_of_the_source_text_is_known(tmp_path: Path, cache: Cache) -> None:
    """N14: NFC, NFD, or neither in plain ASCII; held-out text in another form than the training text is told of."""
    composed = [("Öl für alle.", "Oil for all.")] * 5
    decomposed = [(unicodedata.normalize("NFD", source), target) for source, target in composed]
    for train, valid, form in (
        (composed, composed, "NFC"),
        (decomposed, decomposed, "NFD"),
        (decomposed, composed, "NFD"),
    ):
        said: list[str] = []
        folder = str(write_corpus(tmp_path / "mine", train=train, valid=valid))
        corpus = load(folder, "en", "de", cache, said.append)
        assert (corpus.form, load(folder, "de", "en", cache).form) == (form, "")
        assert (
            said == [] if train == valid else "train.en is in decomposed Unicode (NFD), valid.en is in compo" in said[0]
        )


# What is refused.


def test_a_wrong_language_lists_those_found(tmp_path: Path) -> None:
    """A language without training text is refused with its option and the languages that are there."""
    folder = write_corpus(tmp_path, train=PAIRS, valid=PAIRS)
    (folder / "valid.fr").write_text("x\n")
    for languages, option in ((("en", "fr"), "--target fr"), (("fr", "de"), "--source fr")):
        message = complaint(folder, *languages)
        assert option in message
        assert message.endswith("languages found: de, en")


def test_a_language_is_no_pair_with_itself(tmp_path: Path) -> None:
    """`--source en --target en` is refused, for it would train a copier."""
    assert "same language" in complaint(write_corpus(tmp_path, train=PAIRS), "en", "en")


@pytest.mark.parametrize("twin", ["train_de_gz", "valid_de", "dev_de_gz"])
def test_the_same_side_twice_is_refused(tmp_path: Path, twin: str) -> None:
    """Two files for one side are refused by name, for either could be meant."""
    folder = write_corpus(tmp_path, train=PAIRS, validation=PAIRS)
    write(folder, **{twin: b"x\n"})
    message = complaint(folder)
    assert twin.replace("_", ".") in message
    assert ("validation.de" if "train" not in twin else "train.de") in message


def test_a_side_without_its_counterpart_is_refused(tmp_path: Path) -> None:
    """A validation file in one of the two languages alone is named, not passed over."""
    folder = write_corpus(tmp_path, train=PAIRS)
    (folder / "dev.en").write_text("x\n")
    assert "dev.en has no counterpart" in complaint(folder)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("longer", ["en", "de"])
def test_sides_of_different_length_are_refused(tmp_path: Path, split: str, longer: str) -> None:
    """Loading stops with both names, both counts and the first line that stands alone, so before any work."""
    folder = write_corpus(tmp_path, train=PAIRS, test=PAIRS)
    with (folder / f"{split}.{longer}").open("a") as file:
        file.write("four\nfive\n")
    message = complaint(folder)
    counts = {"en": 3, "de": 3} | {longer: 5}
    for language, count in counts.items():
        assert f"{folder / split}.{language} has {count}" in message
    assert "line 4 has no counterpart" in message


@pytest.mark.parametrize("split", ["train", "valid"])
def test_invalid_utf8_is_found_on_loading(tmp_path: Path, split: str) -> None:
    """A Latin-1 byte in any split stops the run before any work, with file and line."""
    folder = write_corpus(tmp_path, train=PAIRS, valid=PAIRS)
    (folder / f"{split}.de").write_bytes(b"eins\nzw\xe9i\ndrei\n")
    assert f"{split}.de, line 2: not UTF-8" in complaint(folder)


@pytest.mark.parametrize("data", ["train.en", "nowhere", "./no/where", "/no/where", "a/b/c", "", "x" * 300])
def test_data_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str) -> None:
    """A file, a missing folder, nothing at all and a name too long for one are each one sentence about --data."""
    monkeypatch.chdir(write_corpus(tmp_path, train=PAIRS))
    assert complaint(data).startswith(f"--data {data}")


def test_a_file_points_to_its_folder(tmp_path: Path) -> None:
    """`--data train.en` says which folder and files are asked for."""
    message = complaint(write_corpus(tmp_path, train=PAIRS) / "train.en")
    assert "name the folder that holds train.en and train.de" in message


# What is held out.


@pytest.mark.parametrize(("count", "share"), [(1_000, 50), (1_019, 50), (1_020, 51), (20_500, 1_000)])
def test_missing_splits_are_held_out(tmp_path: Path, count: int, share: int) -> None:
    """Without valid and test, 5% of the pairs but at most 1,000 become each, leave train, and it is said."""
    pairs = numbered(count)
    corpus = load(str(write_corpus(tmp_path, train=pairs)), "en", "de")
    train, valid, test = splits(corpus)
    assert (len(train), len(valid), len(test)) == (count - 2 * share, share, share)
    assert sorted(train + valid + test) == sorted(pairs)
    assert [split.count for split in (corpus.train, corpus.valid, corpus.test) if split] == [len(train), share, share]
    assert f"{share:,} pairs each for valid and test" in corpus.notes[0]


def test_a_given_split_is_left_as_it_is(tmp_path: Path) -> None:
    """Where test alone is missing, test alone is held out."""
    corpus = load(str(write_corpus(tmp_path, train=numbered(1_000), valid=PAIRS)), "en", "de")
    assert [len(split) for split in splits(corpus)] == [950, 3, 50]
    assert corpus.valid is not None
    assert list(corpus.valid) == PAIRS


def test_small_corpora_are_not_cut(tmp_path: Path) -> None:
    """Below 1,000 pairs nothing is held out, and it is said."""
    pairs = numbered(999)
    corpus = load(str(write_corpus(tmp_path, train=pairs)), "en", "de")
    assert splits(corpus) == [pairs, [], []]
    assert (corpus.valid, corpus.test) == (None, None)
    assert "no valid or test text" in corpus.notes[0]
    assert "1,000" in corpus.notes[0]


def test_the_held_out_pairs_depend_on_the_text_alone(tmp_path: Path) -> None:
    """Another run, another folder and another order of the lines hold out the same pairs."""
    pairs = numbered(2_000)
    shuffled = random.Random(5).sample(pairs, len(pairs))
    first, second, third = (
        [set(split) for split in splits(load(str(write_corpus(tmp_path / name, train=text)), "en", "de"))]
        for name, text in (("one", pairs), ("two", pairs), ("three", shuffled))
    )
    assert first == second == third


def test_no_source_is_in_two_splits(tmp_path: Path) -> None:
    """A source with several translations is wholly out of train once held out, and held out once."""
    pairs = [(source, f"{target} {version}") for version in range(3) for source, target in numbered(1_000)]
    train, valid, test = splits(load(str(write_corpus(tmp_path, train=pairs)), "en", "de"))
    sources = [{source for source, _ in split} for split in (train, valid, test)]
    assert [len(valid), len(test)] == [len(sources[1]), len(sources[2])] == [150, 150]
    assert sum(map(len, sources)) == len(set.union(*sources)) == 1_000
    assert len(train) == 3 * len(sources[0])


# What a run makes of it.


def begin(folder: Path, data: Path) -> Result:
    """One update of training on the folder."""
    (folder / "minimal.toml").write_text(MINIMAL)
    return call("train", "--data", data, "--config", folder / "minimal.toml", "-m", folder / "model")


def test_a_run_on_no_pairs_stops(tmp_path: Path) -> None:
    """Where cleaning leaves nothing, the run ends with one sentence that says why."""
    done = begin(tmp_path, write_corpus(tmp_path / "data", train=[("x", "word " * 20)] * 5))
    *_, sentence = done.stderr.splitlines()
    assert done.exit_code == 2
    assert sentence.startswith("nmt: --data data: no training pair is left")
    assert "kept 0, dropped 5: 5 with a length ratio over 3" in sentence


@pytest.mark.parametrize("name", ["demo", "wmt14"])
def test_a_folder_is_not_taken_for_its_name(tmp_path: Path, name: str) -> None:
    """A user's folder that is called `demo` or `wmt14` gets the recipe of its size, as any other folder."""
    assert "preset tiny" in begin(tmp_path, write_corpus(tmp_path / name, train=PAIRS)).stderr


def test_an_empty_validation_file_is_no_validation(tmp_path: Path) -> None:
    """Empty files for valid and test do not end a run."""
    done = begin(tmp_path, write_corpus(tmp_path / "data", train=PAIRS, valid=[], test=[]))
    assert (done.exit_code, "done after" in done.stderr) == (0, True)


# The embedded corpus.


def test_the_demo_corpus_is_whole() -> None:
    """About 20,000 training pairs and 500 each for valid and test, none blank, in both directions."""
    corpus = load("demo", "en", "de")
    train, valid, test = splits(corpus)
    assert 19_000 <= len(train) <= 21_000
    assert [len(valid), len(test)] == [500, 500]
    assert not any(is_blank(text) for pair in train + valid + test for text in pair)
    assert next(iter(load("demo", "de", "en").train)) == (train[0][1], train[0][0])
    assert (corpus.name, corpus.notes) == ("demo", ())


@pytest.mark.parametrize("number", [0, 1], ids=["en", "de"])
def test_the_demo_splits_share_no_sentence(number: int) -> None:
    """No sentence of one split, in either language, is in another, so the demo's score is of unseen text."""
    sentences = [{pair[number] for pair in split} for split in splits(load("demo", "en", "de"))]
    assert sum(map(len, sentences)) == len(set.union(*sentences))
