"""The shared BPE: text comes back as it was, special ids never come from text, and any corpus can be learned from."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data import vocabulary as module
from nmt.data.splits import Pair
from nmt.data.vocabulary import Vocabulary, learn
from nmt.errors import UsageError
from nmt.ids import BOS, EOS, FIRST_PIECE, PAD, RESERVED, UNK
from nmt.lines import clean
from tests.conftest import write_corpus

TINY = [("the cat sat", "die Katze sass"), ("the dog sat", "der Hund sass")]
ALPHABET = 363  # pieces of the smallest vocabulary for TINY: special, reserved, bytes, signs and the mark of a space

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\u2581"))
WORDS = st.lists(
    st.sampled_from(["the", "der", " ", "  ", "\u00a0", "\u200b", "<s>", "</s>", "<unk>", "<0x41>", "<0x", "▅", "é"])
).map("".join)
without_clock = settings(deadline=None, derandomize=True, database=None, max_examples=300)

# T2, T3: text that other tools rewrite, join, split, lose, or take for one of their own symbols.
TREACHEROUS = [
    "It costs ½ of 10\u00a0km… m² Zu\u00adsammen ﬁsh Hel\u200blo a  b\tc",
    "Hi 😀! See you at Öl-Markt.",
    "👩\u200d👧 👍🏽 🇩🇪",
    "ŵ ђ 漢 ❄\ufe0f",
    "e\u0301 é Å \u212b ｆｕｌｌ",
    " leading", "trailing ", "two  spaces", "   ", "",
    "a\rb\x00c\x85d\u2028e",
    "</s>", "<s>", "<unk>", "<pad>", "<reserved0>", "<0x41>", "⁇", " ⁇ ", "▅", "\ufffd", "\uffff", "\U0010ffff",
    "! & § € £ [ ] + = # @ * _ % Ä Ö é è ç ñ",
]  # fmt: skip


@given(text=ANY_TEXT | WORDS)
@without_clock
def test_any_text_comes_back(vocabulary: Vocabulary, text: str) -> None:
    """decode(encode(x)) is x with control characters as spaces. No text is encoded to special or reserved ids."""
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == clean(text)
    assert all(FIRST_PIECE <= id < len(vocabulary) for id in ids)


@pytest.mark.parametrize("text", TREACHEROUS)
def test_treacherous_text_comes_back(vocabulary: Vocabulary, text: str) -> None:
    """T2, T3: fractions, ligatures, joiners, rare letters and spaces are kept to the character."""
    assert vocabulary.decode(vocabulary.encode(text)) == clean(text)


def test_ids_are_fixed(vocabulary: Vocabulary) -> None:
    """pad 0, unk 1, bos 2, eos 3, eight reserved ones, then the bytes."""
    names = ["<pad>", "<unk>", "<s>", "</s>", *RESERVED, "<0x00>"]
    assert vocabulary.pieces(range(13)) == names
    assert (PAD, UNK, BOS, EOS, FIRST_PIECE) == (0, 1, 2, 3, 12)


@given(ids=st.lists(st.integers(FIRST_PIECE, FIRST_PIECE + 255)))
@without_clock
def test_decoded_bytes_stay_on_one_line(vocabulary: Vocabulary, ids: list[int]) -> None:
    """Whatever bytes a model emits, such as line feeds and torn UTF-8, the text is a single line that can be written."""
    text = vocabulary.decode(ids)
    assert text == clean(text)
    assert "\n" not in text
    text.encode()


def test_many_lines_are_encoded_as_each(vocabulary: Vocabulary, demo_pairs: list[Pair]) -> None:
    """encode_all, on any number of threads, gives the ids that encode gives line by line."""
    lines = [text for pair in demo_pairs[:200] for text in pair] + TREACHEROUS
    expected = [vocabulary.encode(line) for line in lines]
    assert [vocabulary.encode_all(lines, threads) for threads in (1, 3)] == [expected] * 2


# Learning.


def test_a_tiny_corpus_gets_what_it_fills(demo_pairs: list[Pair]) -> None:
    """T1: two pairs at 32,000 pieces make a vocabulary of a few hundred; a richer corpus gives exactly what is asked for."""
    small = learn(TINY, len(TINY), 32_000, seed=1)
    assert ALPHABET < len(small) < 500
    assert all(small.decode(small.encode(text)) == text for pair in TINY for text in pair)
    assert [len(learn(demo_pairs[:500], 500, size, seed=1)) for size in (400, 500)] == [400, 500]


def test_frequent_words_are_single_pieces(vocabulary: Vocabulary, demo_pairs: list[Pair]) -> None:
    """BPE merges: the most frequent words are one piece each, and text takes far fewer pieces than characters."""
    texts = [text for pair in demo_pairs for text in pair]
    words = Counter(word for text in texts for word in text.split() if word.isalpha())
    assert [word for word, _ in words.most_common(20) if len(vocabulary.encode(word)) > 1] == []
    assert sum(map(len, vocabulary.encode_all(texts))) < 0.5 * sum(map(len, texts))


@pytest.mark.parametrize("pairs", [[], [("", "")]])
def test_a_corpus_without_text_is_refused(pairs: list[Pair]) -> None:
    """T1"""
    with pytest.raises(UsageError, match="no vocabulary to learn"):
        learn(pairs, len(pairs), 1_000, seed=1)


@pytest.mark.parametrize("size", [1, ALPHABET - 1])
def test_a_vocabulary_below_the_alphabet_is_refused(size: int) -> None:
    """T1: too small a --vocab-size is refused with the size, what the corpus needs, and the option."""
    with pytest.raises(UsageError, match=rf"{size:,} is too small .* needs {ALPHABET} pieces; .* --vocab-size"):
        learn(TINY, len(TINY), size, seed=1)
    assert len(learn(TINY, len(TINY), ALPHABET, seed=1)) == ALPHABET


def test_one_long_line_is_learned_from() -> None:
    """T1: a document on one line is neither skipped nor cut: its words, up to the last ones, become pieces."""
    line = "the cat sat " * 700 + "unquestionably " * 150
    assert len(line) > 10_000
    learned = learn([(line, line)], 1, 500, seed=1)
    assert len(learned.encode("unquestionably")) == 1


@pytest.mark.parametrize("sign", ["▁", "▅", "\ufffd", "\u200b", "<s>"])
def test_odd_signs_do_not_stop_learning(sign: str) -> None:
    """Characters that SentencePiece reserves change nothing for the text around them. U+2581 alone comes back as a space."""
    pairs = [*TINY, (f"{sign}a {sign} b{sign}", sign)]
    learned = learn(pairs, len(pairs), 32_000, seed=1)
    assert len(learned.encode("the")) == 1
    assert learned.decode(learned.encode(f"a{sign}b")) == f"a{sign}b".replace("▁", " ")


@pytest.mark.parametrize("sign", "!&[]+=#@*_%~<>$")
def test_ordinary_signs_are_pieces(sign: str) -> None:
    """T3: a keyboard sign that the corpus lacks is still one piece."""
    learned = learn(TINY, len(TINY), 32_000, seed=1)
    assert sign in learned.pieces(learned.encode(f"cat{sign}"))


def test_rare_foreign_letters_do_not_crowd_out_the_words() -> None:
    """T3: thousands of letters seen once take at most half the vocabulary, and all of them come back."""
    foreign = [(chr(0x4E00 + number), chr(0x5E00 + number)) for number in range(2_000)]
    pairs = TINY * 5_000 + foreign
    learned = learn(pairs, len(pairs), 1_000, seed=1)
    single = sum(len(piece) == 1 and piece >= "\u4e00" for piece in learned.pieces(range(len(learned))))
    assert single <= 500
    assert len(learned.encode("the")) == 1
    assert all(learned.decode(learned.encode(source)) == source for source, _ in foreign)


def test_the_same_text_makes_the_same_bytes(demo_pairs: list[Pair], tmp_path: Path) -> None:
    """R6: learning again, in another process with other hashes, gives the same vocabulary to the byte."""
    write_corpus(tmp_path, train=demo_pairs[:300])
    code = """
import sys
from pathlib import Path
from nmt.data.vocabulary import learn
from nmt.lines import read_lines
pairs = list(zip(read_lines(Path("train.en")), read_lines(Path("train.de")), strict=True))
sys.stdout.buffer.write(learn(pairs, len(pairs), 500, seed=1).model)
"""
    environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", code]
    there = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment, check=True).stdout
    assert there == learn(demo_pairs[:300], 300, 500, seed=1).model


def test_a_large_corpus_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """D5: of more pairs than SAMPLE, that many are learned from: the same for one seed, others for another."""
    monkeypatch.setattr(module, "SAMPLE", 7)
    pairs = [(letter := chr(0x4E00 + number), letter) for number in range(300)]

    def letters(seed: int) -> set[str]:
        learned = learn(iter(pairs), len(pairs), 32_000, seed)
        return {piece for piece in learned.pieces(range(FIRST_PIECE + 256, len(learned))) if piece >= "\u4e00"}

    assert len(letters(1)) == 7
    assert letters(1) == letters(1) != letters(2)
    monkeypatch.setattr(module, "SAMPLE", 300)
    assert len(letters(1)) == 300
