"""Long text taken apart: nothing is lost, whatever the text."""

import itertools

import pytest
import sentencex
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
    ("language", "line", "count"),
    [
        ("en", 'Dr. Smith arrived at 3 p.m. on Jan. 5. He said "Stop!" and left. It cost $3.50. The end.', 4),
        ("en-GB", "Mr. Brown is here. He waits.", 2),
        ("de", "Am 3. Oktober kam z. B. Dr. Müller. Er ging.", 2),
        ("DE_at", "Am 3. Oktober kam z. B. Dr. Müller. Er ging.", 2),
        ("zh", "你好。你是谁？我不知道。", 3),
        ("a language never heard of", "One. Two? Three!", 3),
        ("en", "No end", 1),
    ],
)
def test_what_ends_a_sentence(language: str, line: str, count: int) -> None:
    """Abbreviations, dates and quotations end none, by the language's own rules, whatever region its code names."""
    assert len(sentences(line, language)) == count


@pytest.mark.parametrize(
    ("language", "line"),
    [
        ("de", "Im 19. Jahrhundert lebte er.| Er starb am 3. Mai."),
        ("deu", "Am 28. Juli, dem 2. Weltkrieg zum Trotz, kam z. B. Dr. Müller.| Er ging."),
        ("ger_Latn", "Der 1. und 2. Bataillon, das 111. Regiment.| Das 2. ägyptische Jahr."),
        (
            "de",
            "Das war 1990.| Danach ging er.| Die Vorgabe ist 1.| Dies gilt nur hier.| Er zahlte 0,67.| Jahre später.",
        ),
        ("de", "Er wurde 30.| Die Feier begann.| Sie aß 3.| Er nicht."),
        ("da", "Det var i det 19. århundrede.| Han kom den 3. Øen var tom.".replace(" Øen", "| Øen")),
        ("nob", "I det 19. århundre kom han.| Den 5. mai gikk han."),
        ("ces", "V 19. století žil Jan.| Přišel 3. června 1990.| Bylo jich 5.| Potom odešel."),
        ("pl", "W 19. wieku żył.| Przyszedł 3. września."),
        ("hun", "A 19. században élt.| 1990. május 5. napján jött.| A 3. éjszaka."),
        ("hr", "U 19. stoljeću je živio.| Godine 1990. šume su gorjele."),
        ("lv", "Tas bija 19. gadsimtā.| 3. šķira."),
        ("tr", "19. yüzyılda yaşadı.| 3. çocuk geldi."),
        ("eng", "On Jan. 5 Mr. Brown came.| He was 19.| She was 20."),
        ("en", "He was 19.| Jahrhundert is a word."),
    ],
)
def test_an_ordinal_ends_no_sentence(language: str, line: str) -> None:
    """N15: where languages write it as a number and a full stop, by two letters of a code or three; a year may end one."""
    assert [sentence.strip() for sentence in sentences(line.replace("|", ""), language)] == line.split("| ")


def test_codes_name_their_language() -> None:
    """N15: each kind of code that corpora use leads to the rules of its language, and a language without rules is known."""
    for code in ("de", "DE", "deu", "ger", "de_AT", "de-CH", "deu_Latn"):
        assert two_letters(code) == "de"
    assert [
        two_letters(code) for code in ("eng", "fre", "fra", "zho_Hans", "ces", "xyz")
    ] == "en fr fr zh cs xyz".split()  # noqa: SIM905
    assert all(map(has_rules, ("eng", "deu", "zh", "jpn", "nld", "uk")))
    assert not any(map(has_rules, ("sv", "swe", "hu", "src", "")))


def test_a_line_that_comes_back_otherwise_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the splitter ever lose a character, the line is not split."""
    monkeypatch.setattr(sentencex, "segment", lambda _language, line: line.split(" "))
    assert sentences("One. Two.", "en") == ["One. Two."]


def test_a_line_at_which_the_splitter_panics_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A panic of Rust is no Exception, but no reason to end either; what else is none still ends it."""

    class PanicException(BaseException):
        pass

    def fail(_language: str, _line: str) -> list[str]:
        raise reason

    monkeypatch.setattr(sentencex, "segment", fail)
    reason: BaseException = PanicException("byte index 3 is not a char boundary")
    assert sentences("One. Two.", "en") == ["One. Two."]
    reason = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        sentences("One. Two.", "en")


@settings(max_examples=50, deadline=None)
@given(
    text=st.lists(st.sampled_from(["a", "dog", "houses", "Überschwemmungsgebiete", "猫猫"])).map(" ".join),
    longest=st.integers(1, 40),
)
def test_parts_are_the_ids(vocabulary: Vocabulary, text: str, longest: int) -> None:
    """In order they are all ids, each part is short enough, and begins with a word unless none begins in the one before."""
    ids = vocabulary.encode(text)
    found = list(cut(vocabulary, ids, longest))
    assert [id for part in found for id in part] == ids
    assert all(len(part) <= longest for part in found)
    for part, following in itertools.pairwise(found):
        inner = [vocabulary.begins_word(id) for id in part[1:]]
        assert vocabulary.begins_word(following[0]) or (len(part) == longest and not any(inner))
