"""The translator, with an engine that repeats its source: whatever else comes out is the translator's doing."""

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
from nmt.translation.translator import MAX_SOURCE_PIECES, Translator
from nmt.translation.windows import MAX_WINDOW_CHARACTERS, MAX_WINDOW_LINES, windows

BLANK = ["", " ", "\t", "\u00a0", "\u200b", "\ufeff", " \u2003\u200b ", "\x00", "\r"]
SYMBOLS = ["-", "...", "***", "1.", "3,50 €", "→", "😀", "2017-06-12"]
TAGS = ["</p>", "<br/>", '<a href="x">', "&nbsp;", "<!-- a note -->", "<b></b> &#8211; <i>"]
WORDS = ["the", "dog", "Haus", "a", "über", "unfamiliarities", "3.5", "–"]
SENTENCES = ["Dr. Smith arrived at 3 p.m. on Jan. 5.", 'He said "Stop!" and left.', "Nobody knew why.", "The end."]


class Echo:
    """Translates every source to itself, or to one answer, and records what it was asked."""

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


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def translator(echo: Echo, vocabulary: Vocabulary) -> Translator:
    return Translator(echo, vocabulary, "en", "de")


@settings(max_examples=50, deadline=None)
@given(lines=st.lists(st.lists(st.sampled_from([*WORDS, "Ja.", "Wohin?", *BLANK[1:]]), max_size=30).map(" ".join), max_size=40))
def test_nth_output_is_of_nth_input(vocabulary: Vocabulary, lines: list[str]) -> None:
    """Whatever the lengths and however the lines are batched; no lines give no lines."""
    found = Translator(Echo(), vocabulary, "en", "de", batch_tokens=40).translate(lines)
    assert found == ["" if not line.strip(" \u2003\u200b\ufeff\t\u00a0\x00\r") else clean(line) for line in lines]


def test_batches_hold_similar_lengths_within_the_limit(echo: Echo, vocabulary: Vocabulary) -> None:
    """A batch has at most the requested pieces, including padding, or one line; the longest lines go first."""
    lines = [" ".join((WORDS * 3)[: 1 + number * 7 % 19]) for number in range(60)]
    Translator(echo, vocabulary, "en", "de", batch_tokens=400).translate(lines)
    lengths = [[len(source) for source in batch] for batch in echo.batches]
    assert all(len(batch) * max(batch) <= 400 or len(batch) == 1 for batch in lengths)
    flat = [length for batch in lengths for length in batch]
    assert flat == sorted(flat, reverse=True)
    assert len(flat) == len(lines) > 2 * len(lengths)


def test_blank_lines_and_lines_without_a_letter_never_reach_the_engine(translator: Translator, echo: Echo) -> None:
    """A line that shows nothing comes out empty; digits, punctuation and signs come out as they went in."""
    assert translator.translate([*BLANK, *SYMBOLS]) == [""] * len(BLANK) + SYMBOLS
    assert not echo.batches


@pytest.mark.parametrize("copies", [True, False])
def test_tags_are_copied(vocabulary: Vocabulary, copies: bool) -> None:
    """N16: what has no word outside its tags never reaches the engine, on a line of its own or behind a sentence."""
    engine = Echo(vocabulary.encode("Haus"))
    translator = Translator(engine, vocabulary, "en", "de", copies=copies)
    assert translator.translate(TAGS[:-1]) == TAGS[:-1]
    assert translator.translate(["The dog.</p>", "A dog. </b></p>"]) == ["Haus</p>", "Haus </b></p>"]
    assert sum(map(len, engine.batches)) == 2
    assert translator.translate(["<3 dogs", "a < b"]) == ["Haus", "Haus"]


def test_lines_without_a_letter_are_translated_where_the_model_was_trained_so(vocabulary: Vocabulary) -> None:
    """N44: blank lines stay blank then, and no warning says that numbers differ."""
    translator = Translator(Echo(vocabulary.encode("Haus")), vocabulary, "en", "de", copies=False)
    [blank], *lines = translator.translate_lines([" ", *SYMBOLS], SearchOptions())
    assert blank.text == ""
    assert [(found.text.split()[-1], found.flags) for [found] in lines] == [("Haus", [])] * len(SYMBOLS)


def test_arguments_of_a_wrong_type_are_refused(translator: Translator, echo: Echo) -> None:
    """N1: by a sentence that says what is wanted, before anything is translated; NumPy's numbers are numbers."""
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ("I see.", {}, "lines must be a list of str, one per line, not str"),
        (["a", None], {}, "lines[1] must be a str, not NoneType"),
        (["a"], {"beam": 4.0}, "beam must be an int, not float"),
        (["a"], {"length_penalty": "0.6"}, "length_penalty must be a number, not str"),
    ]
    for lines, options, message in wrong:
        with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
            translator.translate(lines, **options)
    assert not echo.batches
    lines = ["dog", "Haus"]
    of_numpy: dict[str, Any] = {"beam": np.int64(2), "length_penalty": np.float32(1)}
    for right in (lines, tuple(lines), iter(lines), np.array(lines)):
        assert translator.translate(right, **of_numpy) == lines


@pytest.mark.parametrize("options", [{"model": None}, {"model": b"model"}, {"device": 0}, {"engine": None}])
def test_a_model_is_loaded_by_a_path(options: dict[str, Any]) -> None:
    """N1: a str or a Path; other types are refused before a file is looked for."""
    with pytest.raises(TypeError, match=f"^{next(iter(options))} must be a"):
        nmt.load(**options)
    for path in ("nowhere", Path("nowhere")):
        with pytest.raises(UsageError, match="nowhere: no trained model here"):
            nmt.load(path)


@pytest.mark.parametrize("options", [{"beam": 0}, {"length_penalty": float("nan")}, {"n_best": 0}, {"n_best": 5}])
def test_search_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    """The option is named."""
    with pytest.raises(UsageError, match=f"^--{next(iter(options)).replace('_', '-')} "):
        SearchOptions(**options)


def test_long_lines_go_in_parts_and_come_out_whole(translator: Translator, echo: Echo, vocabulary: Vocabulary) -> None:
    """A line over 512 pieces is searched in parts of whole words, and is one line again, in order, and flagged."""
    words = " ".join(f"{WORDS[number % 6]}{number}" for number in range(700))
    [long], [short] = translator.translate_lines([words, "Haus"], SearchOptions())
    assert (long.text, long.flags, short.flags) == (words, ["cut"], [])
    sources = [source for batch in echo.batches for source in batch]
    assert len(sources) > 2
    assert all(len(source) <= MAX_SOURCE_PIECES for source in sources)
    assert all(vocabulary.begins_word(source[0]) for source in sources)


def test_sentences_are_searched_one_by_one(translator: Translator, echo: Echo, vocabulary: Vocabulary) -> None:
    """In one batch, and the white space comes out as it was; without splitting, the line is one search."""
    line = "  {}  {}\u00a0{} {}\u3000".format(*SENTENCES)
    assert translator.translate([line]) == translator.translate([line], split=False) == [line]
    sentences, [whole] = echo.batches
    assert sorted(sentences) == sorted(map(vocabulary.encode, SENTENCES))
    assert whole == vocabulary.encode(line.strip())


def test_sentences_without_a_letter_are_copied(vocabulary: Vocabulary) -> None:
    """What would be copied as a line is copied within one too, and the rest is translated."""
    translator = Translator(Echo(vocabulary.encode("Haus")), vocabulary, "en", "de")
    assert translator.translate(["1. The house. * 2. A dog. ???"]) == ["1. Haus * 2. Haus ???"]


def test_options_reach_the_engine(translator: Translator, echo: Echo) -> None:
    """Beam and length penalty are those asked for; by default the paper's 4 and 0.6."""
    translator.translate(["house"])
    translator.translate(["house"], beam=7, length_penalty=1.5)
    assert [(asked.beam, asked.length_penalty) for asked in echo.options] == [(4, 0.6), (7, 1.5)]


def test_windows_bound_the_memory_and_lose_nothing() -> None:
    """Windows are the lines in order, each of limited lines and characters (or one line beyond them)."""
    lines = ["x"] * (2 * MAX_WINDOW_LINES + 1) + ["y" * (MAX_WINDOW_CHARACTERS // 3)] * 10
    lines += ["z" * (2 * MAX_WINDOW_CHARACTERS), ""]
    found = list(windows(lines))
    assert [line for window in found for line in window] == lines
    assert all(0 < len(window) <= MAX_WINDOW_LINES for window in found)
    assert all(sum(map(len, window[:-1])) <= MAX_WINDOW_CHARACTERS for window in found)
    assert list(windows([])) == []
