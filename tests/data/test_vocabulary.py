"""The shared BPE: text comes back as it was, special ids never come from text, and any corpus can be learned from."""

import io
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import sentencepiece as spm
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data import vocabulary as module
from nmt.data.splits import Pair
from nmt.data.vocabulary import Vocabulary, learn
from nmt.errors import UsageError
from nmt.ids import BOS, EOS, FIRST_PIECE, PAD, RESERVED, UNK
from nmt.lines import clean
from tests.conftest import call, write_corpus

TINY = [("the cat sat", "die Katze sass"), ("the dog sat", "der Hund sass")]
ALPHABET = 363  # pieces of the smallest vocabulary for TINY: special, reserved, bytes, signs and the mark of a space

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\u2581"))
WORDS = st.lists(
    st.sampled_from(["the", "der", " ", "  ", "\u00a0", "\u200b", "<s>", "</s>", "<unk>", "<0x41>", "<0x", "▅", "é"])
).map("".join)
without_clock = settings(deadline=None, derandomize=True, database=None, max_examples=300)

# What other tools were seen to change: rewritten, joined, split, lost, or taken for a symbol of the tool's own.
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
    """decode(encode(x)) is x with its control characters as spaces, whatever x is, but for a literal U+2581."""
    assert vocabulary.decode(vocabulary.encode(text)) == clean(text)


@pytest.mark.parametrize("text", TREACHEROUS)
def test_treacherous_text_comes_back(vocabulary: Vocabulary, text: str) -> None:
    """Fractions, ligatures, joiners, rare letters, spaces and the names of special pieces are kept to the character."""
    assert vocabulary.decode(vocabulary.encode(text)) == clean(text)


def test_the_one_exception(vocabulary: Vocabulary) -> None:
    """A literal U+2581, which marks spaces inside the vocabulary, comes back as a space, and nothing else is lost."""
    assert vocabulary.decode(vocabulary.encode("a▁b")) == "a b"


@given(text=ANY_TEXT | WORDS)
@without_clock
def test_special_ids_never_come_from_text(vocabulary: Vocabulary, text: str) -> None:
    """No text, the names of the special and reserved pieces included, is encoded to one of their ids."""
    ids = vocabulary.encode(text)
    assert all(FIRST_PIECE <= id < len(vocabulary) for id in ids)


@pytest.mark.parametrize("name", ["<pad>", "<unk>", "<s>", "</s>", *RESERVED])
def test_names_of_special_pieces_are_text(vocabulary: Vocabulary, name: str) -> None:
    """The name of each special piece, alone and inside a sentence, is spelled in ordinary pieces."""
    assert min(vocabulary.encode(name)) >= FIRST_PIECE
    assert min(vocabulary.encode(f"the {name} cat")) >= FIRST_PIECE


def test_ids_are_fixed(vocabulary: Vocabulary) -> None:
    """pad 0, unk 1, bos 2, eos 3, eight reserved ones, then the bytes: in every vocabulary of this format."""
    names = ["<pad>", "<unk>", "<s>", "</s>", *RESERVED, "<0x00>"]
    assert vocabulary.pieces(range(13)) == names
    assert (PAD, UNK, BOS, EOS, FIRST_PIECE) == (0, 1, 2, 3, 12)


@given(ids=st.lists(st.integers(FIRST_PIECE, FIRST_PIECE + 255)))
@without_clock
def test_decoded_bytes_stay_on_one_line(vocabulary: Vocabulary, ids: list[int]) -> None:
    """Whatever bytes a model emits, line feeds and torn UTF-8 among them, the text is one line that can be written."""
    text = vocabulary.decode(ids)
    assert text == clean(text)
    assert "\n" not in text
    text.encode()


def test_a_spelled_line_feed_is_a_space(vocabulary: Vocabulary) -> None:
    """The byte piece of a line feed does not break the output line."""
    line_feed = FIRST_PIECE + 0x0A
    assert vocabulary.pieces([line_feed]) == ["<0x0A>"]
    assert vocabulary.decode([*vocabulary.encode("a"), line_feed, *vocabulary.encode("b")[1:]]).startswith("a ")


def test_many_lines_are_encoded_as_each(vocabulary: Vocabulary, demo_pairs: list[Pair]) -> None:
    """encode_all of a corpus holds the ids that encode gives line by line."""
    lines = [text for pair in demo_pairs[:200] for text in pair] + TREACHEROUS
    assert vocabulary.encode_all(lines) == [vocabulary.encode(line) for line in lines]


def test_pieces_tell_where_words_begin(vocabulary: Vocabulary) -> None:
    """As many pieces begin a word as the line has words, so that a line can be cut between words."""
    ids = vocabulary.encode("The old teacher unquestionably sees a house")
    assert sum(map(vocabulary.begins_word, ids)) == 7
    assert "".join(vocabulary.pieces(ids)).replace("\u2581", " ") == " The old teacher unquestionably sees a house"


# Learning.


def test_a_tiny_corpus_gets_what_it_fills() -> None:
    """Two pairs at 32,000 pieces make a vocabulary of a few hundred, and their text comes back."""
    small = learn(TINY, len(TINY), 32_000, seed=1)
    assert ALPHABET < len(small) < 500
    assert all(small.decode(small.encode(text)) == text for pair in TINY for text in pair)


def test_frequent_words_are_single_pieces(vocabulary: Vocabulary, demo_pairs: list[Pair]) -> None:
    """BPE merges: the commonest words are one piece, and the corpus takes far fewer pieces than characters."""
    texts = [text for pair in demo_pairs for text in pair]
    words = Counter(word for text in texts for word in text.split() if word.isalpha())
    assert [word for word, _ in words.most_common(20) if len(vocabulary.encode(word)) > 1] == []
    assert sum(map(len, vocabulary.encode_all(texts))) < 0.5 * sum(map(len, texts))


def test_the_size_is_never_exceeded(demo_pairs: list[Pair]) -> None:
    """A corpus rich enough gives exactly the pieces asked for, the special and byte pieces counted."""
    assert [len(learn(demo_pairs[:500], 500, size, seed=1)) for size in (400, 500)] == [400, 500]


@pytest.mark.parametrize("pairs", [[], [("", "")]])
def test_a_corpus_without_text_is_refused(pairs: list[Pair]) -> None:
    """Nothing to learn from is the user's error, and said so."""
    with pytest.raises(UsageError, match="no text to learn a vocabulary from"):
        learn(pairs, len(pairs), 1_000, seed=1)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 12, 256, ALPHABET - 1])
def test_a_vocabulary_below_the_alphabet_is_refused(size: int) -> None:
    """Too small a --vocab-size is the user's error, with the option, the size, and what the corpus needs."""
    with pytest.raises(
        UsageError, match=rf"a vocabulary of {size:,} is too small .* needs {ALPHABET} pieces; .* --vocab-size"
    ):
        learn(TINY, len(TINY), size, seed=1)
    assert len(learn(TINY, len(TINY), ALPHABET, seed=1)) == ALPHABET


def test_one_long_line_is_learned_from() -> None:
    """A document on a line is neither skipped nor cut nor refused: its words, the last ones too, become pieces."""
    line = "the cat sat " * 700 + "unquestionably " * 150
    assert len(line) > 10_000
    learned = learn([(line, line)], 1, 500, seed=1)
    assert len(learned.encode("unquestionably")) == 1
    dense = "漢字" * 5_000
    assert len(learn([(dense, dense)], 1, 500, seed=1).encode("漢字")) < 6  # 6 bytes spell them


@pytest.mark.parametrize("sign", ["▁", "▅", "\u2047", "\ufffd", "\u200b", "\ufeff", "<s>"])
def test_odd_signs_do_not_stop_learning(sign: str) -> None:
    """Characters that SentencePiece keeps for itself, in the corpus, change nothing for the text around them."""
    pairs = [*TINY, (f"{sign}a {sign} b{sign}", sign)]
    learned = learn(pairs, len(pairs), 32_000, seed=1)
    assert len(learned.encode("the")) == 1
    assert learned.decode(learned.encode(f"a{sign}b")) == f"a{sign}b".replace("▁", " ")


@pytest.mark.parametrize("sign", "!&[]+=#@*_%~<>$")
def test_ordinary_signs_are_pieces(sign: str) -> None:
    """A sign of the keyboard is one piece though the corpus never held it, so it is neither lost nor spelled in bytes."""
    learned = learn(TINY, len(TINY), 32_000, seed=1)
    assert sign in learned.pieces(learned.encode(f"cat{sign}"))


def test_letters_of_the_corpus_are_pieces() -> None:
    """An accented letter that the text uses is one piece, in capitals too where those occur."""
    pairs = [("Öl and Äpfel", "Öl über Straße")] * 3
    learned = learn(pairs, 3, 32_000, seed=1)
    assert [letter for letter in "ÖÄüß" if letter not in learned.pieces(learned.encode(f"x{letter}x"))] == []


def test_rare_foreign_letters_do_not_crowd_out_the_words() -> None:
    """Thousands of letters seen once take at most half the vocabulary; all of them still come back."""
    foreign = [(chr(0x4E00 + number), chr(0x5E00 + number)) for number in range(2_000)]
    pairs = TINY * 5_000 + foreign
    learned = learn(pairs, len(pairs), 1_000, seed=1)
    single = sum(len(piece) == 1 and piece >= "\u4e00" for piece in learned.pieces(range(len(learned))))
    assert single <= 500
    assert len(learned.encode("the")) == 1
    assert all(learned.decode(learned.encode(source)) == source for source, _ in foreign)


def test_the_same_text_makes_the_same_bytes(demo_pairs: list[Pair], tmp_path: Path) -> None:
    """Learning again, and in another process with other hashes, gives the same vocabulary to the byte."""
    write_corpus(tmp_path, train=demo_pairs[:300])
    code = """
import sys
from pathlib import Path
from nmt.data.vocabulary import learn
from nmt.lines import read_lines
pairs = list(zip(read_lines(Path("train.en")), read_lines(Path("train.de")), strict=True))
sys.stdout.buffer.write(learn(pairs, len(pairs), 500, seed=1).model)
"""
    there = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            cwd=tmp_path,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert there == [learn(demo_pairs[:300], 300, 500, seed=1).model] * 2


def test_a_large_corpus_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more pairs than SAMPLE, just so many are learned from, the same for a seed and others for another."""
    monkeypatch.setattr(module, "SAMPLE", 7)
    pairs = [(letter := chr(0x4E00 + number), letter) for number in range(300)]

    def letters(seed: int) -> set[str]:
        learned = learn(iter(pairs), len(pairs), 32_000, seed)
        return {piece for piece in learned.pieces(range(FIRST_PIECE + 256, len(learned))) if piece >= "\u4e00"}

    assert len(letters(1)) == 7
    assert letters(1) == letters(1) != letters(2)
    monkeypatch.setattr(module, "SAMPLE", 300)
    assert len(letters(1)) == 300


def test_a_damaged_vocabulary_is_refused(vocabulary: Vocabulary) -> None:
    """Bytes that are no model, or only part of one, are the user's error."""
    for damaged in (b"", b"no model", vocabulary.model[:-10], vocabulary.model[: len(vocabulary.model) // 2]):
        with pytest.raises(UsageError, match="vocabulary is damaged"):
            Vocabulary(damaged)


def test_a_foreign_vocabulary_is_refused() -> None:
    """A SentencePiece model of another tool, with other special ids, is not taken for one of ours."""
    model = io.BytesIO()
    sentences = iter(["the quick brown fox jumps over the lazy dog"] * 20)
    spm.SentencePieceTrainer.train(
        sentence_iterator=sentences, model_writer=model, model_type="bpe", vocab_size=40, minloglevel=2
    )
    with pytest.raises(UsageError, match="not made by nmt"):
        Vocabulary(model.getvalue())


def test_the_command_learns_from_a_tiny_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`nmt train` on two pairs in a folder with commas and spaces in its name adapts the vocabulary and says so."""
    monkeypatch.chdir(tmp_path)
    write_corpus(Path("a,b, c"), train=TINY)
    Path("small.toml").write_text("[model]\nlayers = 1\nd_model = 8\nheads = 2\n[training]\nsteps = 1\n")
    done = call("train", "--data", "a,b, c", "--config", "small.toml", "--vocab-size", "32000", "-m", "model")
    assert done.exit_code == 0, done.stderr
    size = len(Vocabulary(Path("model", "tokenizer.model").read_bytes()))
    assert f"vocabulary: {size} pieces instead of 32,000" in done.stderr
    assert "read 2 pairs, kept 2" in done.stderr
