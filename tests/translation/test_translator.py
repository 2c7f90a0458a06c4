"""The translator, with an engine that repeats its source: whatever comes out otherwise is the translator's doing."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nmt
from nmt.data.vocabulary import Vocabulary
from nmt.errors import UsageError
from nmt.lines import clean
from nmt.translation.hypothesis import Hypothesis, SearchOptions, Sources
from nmt.translation.translator import (
    LONGEST,
    WINDOW_CHARACTERS,
    WINDOW_LINES,
    Translator,
    windows,
)

BLANK = ["", " ", "\t", "\u00a0", "\u200b", "\ufeff", " \u2003\u200b ", "\x00", "\r"]
SYMBOLS = ["-", "...", "***", "1.", "3,50 €", "→", "😀", "2017-06-12"]
TAGS = ["</p>", "<br/>", '<a href="x">', "&nbsp;", "<!-- a note -->", "<b></b> &#8211; <i>"]
WORDS = ["the", "dog", "Haus", "a", "über", "unfamiliarities", "3.5", "–"]


class Echo:
    """Translates every source to itself, and notes what it was asked."""

    batch_tokens = 2_048

    def __init__(self, answer: Sequence[int] | None = None, at_limit: bool = False) -> None:
        self.answer, self.at_limit = answer, at_limit
        self.batches: list[list[list[int]]] = []
        self.options: list[SearchOptions] = []

    def search_all(self, batches: Iterable[Sources], options: SearchOptions) -> Iterator[list[list[Hypothesis]]]:
        for sources in batches:
            self.batches.append([list(source) for source in sources])
            self.options.append(options)
            answers = [list(source if self.answer is None else self.answer) for source in sources]
            yield [[Hypothesis(ids, -1.0, -1.0, self.at_limit)] for ids in answers]


@settings(max_examples=50, deadline=None)
@given(
    lines=st.lists(
        st.lists(st.sampled_from([*WORDS, "Ja.", "Wohin?", *BLANK[1:]]), max_size=30).map(" ".join), max_size=40
    )
)
def test_nth_output_is_of_nth_input(vocabulary: Vocabulary, lines: list[str]) -> None:
    """Whatever the lengths and however they are batched, each line's own translation stands in its place."""
    found = Translator(Echo(), vocabulary, "en", "de", batch_tokens=40).translate(lines)
    assert found == ["" if not line.strip(" \u2003\u200b\ufeff\t\u00a0\x00\r") else clean(line) for line in lines]


def test_batches_hold_like_lengths_within_the_limit(vocabulary: Vocabulary) -> None:
    """A batch has at most the asked-for pieces, padding included, or one line; the longest lines go first."""
    lines = [" ".join((WORDS * 3)[: 1 + number * 7 % 19]) for number in range(60)]
    engine = Echo()
    Translator(engine, vocabulary, "en", "de", batch_tokens=400).translate(lines)
    lengths = [[len(source) for source in batch] for batch in engine.batches]
    assert all(len(batch) * max(batch) <= 400 or len(batch) == 1 for batch in lengths)
    flat = [length for batch in lengths for length in batch]
    assert flat == sorted(flat, reverse=True)
    assert len(flat) == len(lines) > 2 * len(lengths)


@pytest.mark.parametrize("line", BLANK)
def test_blank_lines_never_reach_the_engine(vocabulary: Vocabulary, line: str) -> None:
    """A line in which a reader sees nothing comes out empty, and the engine is not called."""
    engine = Echo()
    assert Translator(engine, vocabulary, "en", "de").translate([line]) == [""]
    assert not engine.batches


@pytest.mark.parametrize("line", SYMBOLS)
def test_lines_without_a_letter_are_copied(vocabulary: Vocabulary, line: str) -> None:
    """Digits, punctuation and signs alone come out as they went in, and the engine is not called."""
    engine = Echo()
    assert Translator(engine, vocabulary, "en", "de").translate([line]) == [line]
    assert not engine.batches


@pytest.mark.parametrize("copies", [True, False])
def test_tags_are_copied(vocabulary: Vocabulary, copies: bool) -> None:
    """N16: what holds no word but in its tags never reaches the engine, on a line of its own or behind a sentence."""
    engine = Echo(vocabulary.encode("Haus"))
    translator = Translator(engine, vocabulary, "en", "de", copies=copies)
    assert translator.translate(TAGS[:-1]) == TAGS[:-1]
    assert translator.translate(["The dog.</p>", "A dog. </b></p>"]) == ["Haus</p>", "Haus </b></p>"]
    assert sum(map(len, engine.batches)) == 2
    assert translator.translate(["<3 dogs", "a < b"]) == ["Haus", "Haus"]


@pytest.mark.parametrize("line", SYMBOLS)
def test_lines_without_a_letter_are_translated_where_the_model_was_trained_so(
    vocabulary: Vocabulary, line: str
) -> None:
    """N44: all of them go through search then; blank lines stay blank, and numbers that differ are no fault."""
    engine = Echo(vocabulary.encode("Haus"))
    translator = Translator(engine, vocabulary, "en", "de", copies=False)
    [[found]], [[blank]] = (translator.translate_lines([text], SearchOptions()) for text in (line, " "))
    assert (found.text.split()[-1], found.flags, blank.text) == ("Haus", [], "")


def test_arguments_of_another_kind_are_refused(vocabulary: Vocabulary) -> None:
    """N1: in one sentence that says what is wanted, before anything is translated; numbers may be those of numpy."""
    engine = Echo()
    translate = Translator(engine, vocabulary, "en", "de").translate
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ("I see.", {}, "lines must be a list of str, one a line, not str"),
        (b"I see.", {}, "lines must be a list of str, one a line, not bytes"),
        (None, {}, "lines must be a list of str, one a line, not NoneType"),
        (["a", None], {}, "lines[1] must be a str, not NoneType"),
        ([math.nan], {}, "lines[0] must be a str, not float"),
        ([b"a"], {}, "lines[0] must be a str, not bytes"),
        ([["a"]], {}, "lines[0] must be a str, not list"),
        (["a"], {"beam": True}, "beam must be an int, not bool"),
        (["a"], {"beam": 4.0}, "beam must be an int, not float"),
        (["a"], {"beam": "4"}, "beam must be an int, not str"),
        (["a"], {"length_penalty": "0.6"}, "length_penalty must be a number, not str"),
        (["a"], {"split": "no"}, "split must be True or False, not str"),
    ]
    for lines, options, message in wrong:
        with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
            translate(lines, **options)
    assert not engine.batches
    lines = ["dog", "Haus"]
    of_numpy: dict[str, Any] = {"beam": np.int64(2), "length_penalty": np.float32(1)}
    for right in (lines, tuple(lines), iter(lines), np.array(lines)):
        assert translate(right, **of_numpy) == lines


def test_a_model_is_loaded_by_a_path() -> None:
    """N1: of either kind; what is none is refused before a file is looked for."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"model": None}, "model must be a path, not NoneType"),
        ({"model": b"model"}, "model must be a path, not bytes"),
        ({"device": 0}, "device must be a str, not int"),
        ({"engine": None}, "engine must be a str, not NoneType"),
    ]
    for options, message in wrong:
        with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
            nmt.load(**options)
    for path in ("nowhere", Path("nowhere")):
        with pytest.raises(UsageError, match="nowhere: no trained model here"):
            nmt.load(path)


def test_no_lines_give_no_lines(vocabulary: Vocabulary) -> None:
    """No input is no output."""
    assert Translator(Echo(), vocabulary, "en", "de").translate([]) == []


@pytest.mark.parametrize("byte", ["<0x0A>", "<0x0D>", "<0x0B>", "<0x0C>", "<0x1C>", "<0x09>", "<0x00>"])
def test_a_hypothesis_never_breaks_its_line(vocabulary: Vocabulary, byte: str) -> None:
    """A model that emits the bytes of a line break or another control character gives a space."""
    [id] = [id for id in range(len(vocabulary)) if vocabulary.pieces([id]) == [byte]]
    word = vocabulary.encode("Haus")
    assert Translator(Echo([*word, id, *word]), vocabulary, "en", "de").translate(["house"]) == ["Haus  Haus"]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\r", "\t", "\x00"])
def test_separators_within_a_line_are_spaces(vocabulary: Vocabulary, separator: str) -> None:
    """What other programs take for a line break is a space to the model, and no break in the output."""
    engine = Echo()
    assert Translator(engine, vocabulary, "en", "de").translate([f"one{separator}two"]) == ["one two"]
    assert engine.batches == [[vocabulary.encode("one two")]]


def test_long_lines_go_in_parts_and_come_out_whole(vocabulary: Vocabulary) -> None:
    """A line over 512 pieces is searched in parts of whole words, and is one line again, in order, and marked."""
    words = [f"{WORDS[number % 6]}{number}" for number in range(700)]
    engine = Echo()
    translator = Translator(engine, vocabulary, "en", "de")
    [long], [short] = translator.translate_lines([" ".join(words), "Haus"], SearchOptions())
    assert long.text == " ".join(words)
    assert (long.flags, short.flags) == (["cut"], [])
    sources = [source for batch in engine.batches for source in batch]
    assert len(sources) > 2
    assert all(len(source) <= LONGEST for source in sources)
    assert all(vocabulary.begins_word(source[0]) for source in sources)


def test_a_word_longer_than_a_search_is_cut_too(vocabulary: Vocabulary) -> None:
    """Without white space to cut at, every part is still at most 512 pieces, and nothing is lost."""
    engine = Echo()
    [text] = Translator(engine, vocabulary, "en", "de").translate(["猫" * 1_000])
    assert text.replace(" ", "").count("猫") >= 997  # a cut may fall between the bytes of a character
    assert max(len(source) for batch in engine.batches for source in batch) <= LONGEST


def test_the_length_limit_is_reported_of_its_line(vocabulary: Vocabulary) -> None:
    """A search that ended at its limit marks the line; blank and copied lines are never marked."""
    translator = Translator(Echo(at_limit=True), vocabulary, "en", "de")
    found = translator.translate_lines(["house", "", "-"], SearchOptions())
    assert [one[0].flags for one in found] == [["limit"], [], []]


SENTENCES = ["Dr. Smith arrived at 3 p.m. on Jan. 5.", 'He said "Stop!" and left.', "Nobody knew why.", "The end."]


def test_sentences_are_searched_one_by_one(vocabulary: Vocabulary) -> None:
    """Of several sentences in a line each is a search of its own, in one batch, and the white space is as it was."""
    engine = Echo()
    line = "  {}  {}\u00a0{} {}\u3000".format(*SENTENCES)
    assert Translator(engine, vocabulary, "en", "de").translate([line]) == [line]
    [batch] = engine.batches
    assert sorted(batch) == sorted(map(vocabulary.encode, SENTENCES))


def test_unsplit_a_line_is_one_search(vocabulary: Vocabulary) -> None:
    """Where no splitting is asked for, all sentences of a line go through search together, but no white space around."""
    engine = Echo()
    line = " ".join(SENTENCES)
    assert Translator(engine, vocabulary, "en", "de").translate([f"  {line} "], split=False) == [f"  {line} "]
    assert engine.batches == [[vocabulary.encode(line)]]


def test_sentences_end_by_the_rules_of_the_source_language(vocabulary: Vocabulary) -> None:
    """A German date is one sentence in German."""
    for language, count in (("de", 1), ("en", 2)):
        engine = Echo()
        Translator(engine, vocabulary, language, "en").translate(["Am 3. Oktober kam er."])
        assert sum(map(len, engine.batches)) == count


def test_sentences_without_a_letter_are_copied(vocabulary: Vocabulary) -> None:
    """What would be copied as a line is copied within one too, and the rest is translated."""
    engine = Echo(vocabulary.encode("Haus"))
    [found] = Translator(engine, vocabulary, "en", "de").translate_lines(
        ["1. The house. * 2. A dog. ???"], SearchOptions()
    )
    assert found[0].text == "1. Haus * 2. Haus ???"
    assert len(found) == 1


def test_progress_adds_up_to_the_lines(vocabulary: Vocabulary) -> None:
    """Over the batches of a group it is told of every sentence once, and of as many lines as there are."""
    told: list[tuple[int, float]] = []
    lines = ["The dog. The house.", "", "-", *WORDS[:6]]
    translator = Translator(Echo(), vocabulary, "en", "de", batch_tokens=10)
    translator.translate_lines(lines, SearchOptions(), progress=lambda *batch: told.append(batch))
    assert len(told) > 2
    assert sum(sentences for sentences, _ in told) == 8
    assert sum(done for _, done in told) == pytest.approx(len(lines))


def test_options_reach_the_engine(vocabulary: Vocabulary) -> None:
    """Beam and length penalty are those asked for; by default the paper's 4 and 0.6."""
    engine = Echo()
    Translator(engine, vocabulary, "en", "de").translate(["house"])
    Translator(engine, vocabulary, "en", "de").translate(["house"], beam=7, length_penalty=1.5)
    assert [(asked.beam, asked.length_penalty) for asked in engine.options] == [(4, 0.6), (7, 1.5)]


def test_windows_bound_the_memory_and_lose_nothing() -> None:
    """Windows are the lines in order, each window of limited lines and characters (or one line over it)."""
    lines = ["x"] * (2 * WINDOW_LINES + 1) + ["y" * (WINDOW_CHARACTERS // 3)] * 10 + ["z" * (2 * WINDOW_CHARACTERS), ""]
    found = list(windows(lines))
    assert [line for window in found for line in window] == lines
    assert all(0 < len(window) <= WINDOW_LINES for window in found)
    assert all(sum(map(len, window[:-1])) <= WINDOW_CHARACTERS for window in found)
    assert list(windows([])) == []
