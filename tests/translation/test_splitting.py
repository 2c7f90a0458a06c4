"""Cutting long text: nothing is lost, whatever the text."""

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nmt.data.vocabulary import Vocabulary
from nmt.translation.splitting import cut, has_rules, sentences, trimmed
from nmt.writing import two_letters

# Text in which much ends a sentence, or nearly does.
MARKS = st.text(st.sampled_from('.!?。！？…"”»)’A.aB1. \u00a0\u2009\u3000\u200bДж।Ä\u0301😀'), max_size=60)
LANGUAGES = st.sampled_from(["en", "de", "zh", "ja", "ar", "hi", "ru", "fr", "am", "en-GB", "xx", "", "src", "日本"])


@settings(max_examples=300, deadline=None)
@given(line=st.one_of(MARKS, st.text(min_size=1, max_size=100)).filter(str.strip), language=LANGUAGES)
@example(line="Herr A\u00a0. Meier.", language="de")  # at these sentencex 1.0.32 itself panics
@example(line="x A\u2009. Yes.", language="xx")
def test_sentences_are_the_line(line: str, language: str) -> None:
    """Joined they are the line, none of them is empty, and each is white space around a core."""
    found = sentences(line, language)
    assert "".join(found) == line
    assert all(found)
    for sentence in found:
        before, core, after = trimmed(sentence)
        assert before + core + after == sentence
        assert core == core.strip() or (before, after) == ("", "")
        assert core


@pytest.mark.parametrize(
    ("language", "line"),
    [
        ("en-GB", 'Dr. Smith arrived at 3 p.m. on Jan. 5.| He said "Stop!" and left.| It cost $3.50.| The end.'),
        ("zh", "你好。|你是谁？|我不知道。"),
        ("a language never heard of", "One.| Two?| Three!"),
        ("en", "No end"),
        ("deu", "Am 28. Juli, dem 2. Weltkrieg zum Trotz, kam z. B. Dr. Müller.| Er ging."),
        ("de", "Das war 1990.| Danach ging er.| Im 19. Jahrhundert lebte er.| Er zahlte 0,67.| Jahre später."),
        ("de", "Er wurde 30.| Die Feier begann.| Sie aß 3.| Er nicht."),
        ("nob", "I det 19. århundre kom han.| Den 5. mai gikk han."),
        ("ces", "V 19. století žil Jan.| Přišel 3. června 1990.| Bylo jich 5.| Potom odešel."),
        ("hun", "A 19. században élt.| 1990. május 5. napján jött.| A 3. éjszaka."),
        ("eng", "On Jan. 5 Mr. Brown came.| He was 19.| She was 20."),
        ("en", "He was 19.| Jahrhundert is a word."),
    ],
)
def test_what_ends_a_sentence(language: str, line: str) -> None:
    """N15: not abbreviations, dates, quotations or ordinals, by the language's own rules; a year may end one."""
    assert sentences(line.replace("|", ""), language) == line.replace("| ", " |").split("|")


def test_codes_name_their_language() -> None:
    """N15: each kind of code that corpora use leads to the rules of its language, and missing rules are noticed."""
    assert {two_letters(code) for code in ("de", "DE", "deu", "ger", "de_AT", "de-CH", "deu_Latn")} == {"de"}
    assert [*map(two_letters, ("eng", "fre", "fra", "zho_Hans", "ces", "xyz"))] == ["en", "fr", "fr", "zh", "cs", "xyz"]
    assert all(map(has_rules, ("eng", "deu", "zh", "jpn", "nld", "uk")))
    assert not any(map(has_rules, ("sv", "swe", "hu", "src", "")))


@settings(max_examples=50, deadline=None)
@given(
    text=st.lists(st.sampled_from(["a", "dog", "houses", "Überschwemmungsgebiete", "猫猫"])).map(" ".join),
    longest=st.integers(1, 40),
)
def test_parts_are_the_ids(vocabulary: Vocabulary, text: str, longest: int) -> None:
    """In order they are all ids; each is short enough, and begins a word unless none begins in the part before."""
    ids = vocabulary.encode(text)
    found = list(cut(vocabulary, ids, longest))
    assert [id for part in found for id in part] == ids
    assert all(len(part) <= longest for part in found)
    for part, following in itertools.pairwise(found):
        inner = [vocabulary.begins_word(id) for id in part[1:]]
        assert vocabulary.begins_word(following[0]) or (len(part) == longest and not any(inner))
