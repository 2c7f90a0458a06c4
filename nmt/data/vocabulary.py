"""The shared vocabulary: one SentencePiece BPE over both languages (paper, section 5.1), reversible for any text."""

import hashlib
import io
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import sentencepiece as spm

from nmt.errors import UsageError
from nmt.ids import BOS, EOS, FIRST_PIECE, PAD, RESERVED, UNK
from nmt.lines import clean, replace_bytes

SAMPLE = 500_000  # pairs at most that the BPE is learned from, so that memory does not grow with the corpus
CHARACTERS = 300_000_000  # of them at most, however long their lines are
LONGEST = 2_000  # characters; longer lines are learned from in slices, for SentencePiece would skip them in silence

# The alphabet: signs that are pieces of their own however rare, then every character that makes up a millionth of the
# sample, the most frequent first, as far as half the vocabulary. All others are spelled in bytes.
SIGNS = "".join(map(chr, range(0x21, 0x7F)))
RARE = 1e-6
SENTENCEPIECES_OWN = "\u2581\u2585"  # it skips lines that hold the second, and takes neither as a required character


class Vocabulary:
    """Text to ids and back. `decode(encode(text))` is `clean(text)`, except that a literal U+2581 becomes a space."""

    def __init__(self, model: bytes) -> None:
        """From the bytes of a SentencePiece model. Raises UsageError if they are none, or not one of nmt's."""
        self.model = model
        self._processor = spm.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError:
            raise UsageError("the vocabulary is damaged: it is no SentencePiece model") from None
        ids = [getattr(self._processor, name)() for name in ("pad_id", "unk_id", "bos_id", "eos_id")]
        if ids != [PAD, UNK, BOS, EOS] or len(self) <= FIRST_PIECE:
            raise UsageError("the vocabulary was not made by nmt: its special ids differ")

    def __len__(self) -> int:
        return int(self._processor.GetPieceSize())

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.model).hexdigest()

    def __reduce__(self) -> tuple[type["Vocabulary"], tuple[bytes]]:
        return Vocabulary, (self.model,)  # on its way to another process

    def encode(self, text: str) -> list[int]:
        """The ids of a line's pieces, without BOS or EOS."""
        return list(self._processor.encode(clean(text)))

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of many lines at once, on one core: more of them are put to use by processes (workers.py)."""
        return list(self._processor.encode([clean(text) for text in texts], num_threads=1))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, on one line whatever bytes they spell."""
        return clean(self._processor.decode(list(ids)))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces of the ids as SentencePiece writes them, a word's first one marked by U+2581."""
        return [self._processor.IdToPiece(int(id)) for id in ids]

    def begins_word(self, id: int) -> bool:
        """Whether white space comes before the piece."""
        return bool(self._processor.IdToPiece(id).startswith("\u2581"))

    def save(self, path: Path) -> None:
        replace_bytes(path, self.model)


def learn(pairs: Iterable[tuple[str, str]], count: int, size: int, seed: int) -> Vocabulary:
    """Learn a BPE of at most `size` pieces, the 256 bytes and the reserved ids among them, over both sides of the pairs.

    A small corpus gets what it can fill; of a large one (`count` pairs), SAMPLE pairs are drawn. Raises UsageError for a
    corpus without text, and where `size` is below the alphabet.
    """
    sample = list(_sample(pairs, count, seed))
    model = io.BytesIO()
    try:
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(sample),
            model_writer=model,
            model_type="bpe",
            vocab_size=max(size, FIRST_PIECE),  # below it, the special ids alone would not fit
            hard_vocab_limit=False,
            character_coverage=0.98,  # the least it takes, so that required_chars decides for all but rare letters
            required_chars=_alphabet(sample, size // 2),
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            max_sentence_length=4 * LONGEST + 1,
            pad_id=PAD, unk_id=UNK, bos_id=BOS, eos_id=EOS,
            control_symbols=RESERVED,
            minloglevel=2,
        )  # fmt: skip
    except RuntimeError as error:
        if "required_chars" in str(error):
            raise UsageError(
                f"a vocabulary of {size:,} is too small for its alphabet, which with bytes and reserved ids "
                f"{_needed(str(error))}; ask for more with --vocab-size"
            ) from None
        if "sentences_.empty()" in str(error):
            raise UsageError("holds no text to learn a vocabulary from") from None
        raise
    return Vocabulary(model.getvalue())


def _sample(pairs: Iterable[tuple[str, str]], count: int, seed: int) -> Iterator[str]:
    chosen = np.ones(count, dtype=bool)
    if count > SAMPLE:
        chosen[:] = False
        chosen[np.random.default_rng(seed).choice(count, SAMPLE, replace=False)] = True
    characters = 0
    for pair in itertools.compress(pairs, chosen):
        for text in (clean(side).replace("\u2585", " ") for side in pair):
            characters += len(text)
            if characters > CHARACTERS:
                return
            yield from (text[start : start + LONGEST] for start in range(0, len(text), LONGEST))


def _alphabet(sample: list[str], most: int) -> str:
    counts: Counter[str] = Counter()
    for text in sample:
        counts.update(text)
    least = RARE * counts.total()
    common = [character for character, n in counts.most_common(most) if n >= least and character != " "]
    return SIGNS + "".join(character for character in common if character not in SIGNS + SENTENCEPIECES_OWN)


def _needed(message: str) -> str:
    # SentencePiece ends with "... required_chars. 300 vs 350. ..."
    numbers = [word for word in message.replace(".", " ").split() if word.isdigit()]
    return f"needs {numbers[-1]} pieces" if numbers else "needs more pieces"
