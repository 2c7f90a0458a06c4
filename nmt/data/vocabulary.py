"""The shared vocabulary: one SentencePiece BPE over both languages (paper, section 5.1), reversible for any text."""

import hashlib
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import sentencepiece as spm

from nmt.errors import UsageError
from nmt.ids import BOS, EOS, FIRST_PIECE, PAD, RESERVED, UNK
from nmt.lines import clean
from nmt.storage import replace_bytes

SAMPLE = 500_000  # pairs at most to learn the BPE from, so that memory does not grow with the corpus ...
SAMPLE_CHARACTERS = 300_000_000  # ... and characters at most, however long the lines are
MAX_SLICE = 2_000  # characters; longer lines are learned from in slices, because SentencePiece silently skips long ones

# The alphabet: keyboard signs are always pieces of their own. So is every character that makes up a millionth of the sample,
# the most frequent first, up to half the vocabulary. All other characters are spelled in bytes.
KEYBOARD_SIGNS = "".join(map(chr, range(0x21, 0x7F)))
MIN_CHARACTER_SHARE = 1e-6
NEVER_REQUIRED = "\u2581\u2585"  # SentencePiece takes neither as a required character, and skips lines with the second


class Vocabulary:
    """Text to ids and back. `decode(encode(text))` is `clean(text)`, except that a literal U+2581 becomes a space."""

    def __init__(self, model: bytes) -> None:
        """From the bytes of a SentencePiece model that `learn` made."""
        self.model = model
        self._processor = spm.SentencePieceProcessor(model_proto=model)

    def __len__(self) -> int:
        return int(self._processor.GetPieceSize())

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.model).hexdigest()

    def __reduce__(self) -> tuple[type["Vocabulary"], tuple[bytes]]:
        return Vocabulary, (self.model,)  # for pickle

    def encode(self, text: str) -> list[int]:
        """The ids of a line's pieces, without BOS or EOS."""
        return list(self._processor.encode(clean(text)))

    def encode_all(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """`encode` of many lines at once."""
        return list(self._processor.encode([clean(text) for text in texts], num_threads=threads))

    def sample_all(self, texts: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """`encode_all` with BPE-dropout (Provilkov et al. 2020): each merge is skipped with this probability."""
        if not dropout:
            return self.encode_all(texts)
        texts = [clean(text) for text in texts]
        spm.set_random_generator_seed(seed)  # each call's one thread begins to draw from here
        return list(self._processor.encode(texts, enable_sampling=True, alpha=dropout, nbest_size=-1, num_threads=1))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids: always a single line, whatever bytes they spell."""
        return clean(self._processor.decode(list(ids)))

    def decode_all(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        """`decode` of many sentences at once."""
        return [clean(text) for text in self._processor.decode(list(sentences))]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces of the ids as SentencePiece writes them: U+2581 marks the first one of a word."""
        return [self._processor.IdToPiece(int(id)) for id in ids]

    def begins_word(self, id: int) -> bool:
        """Whether white space comes before the piece."""
        return bool(self._processor.IdToPiece(id).startswith("\u2581"))

    def save(self, path: Path) -> None:
        replace_bytes(path, self.model)


def learn(pairs: Iterable[tuple[str, str]], count: int, size: int, seed: int) -> Vocabulary:
    """Learn a BPE of at most `size` pieces, including the 256 bytes and the reserved ids, over both sides of `count` pairs.

    A small corpus yields as many pieces as it can; of a large one, SAMPLE random pairs are used. Raises UsageError if the
    corpus holds no text, or `size` is below the size of its alphabet.
    """
    sample = list(_sample(pairs, count, seed))
    model = io.BytesIO()
    try:
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(sample), model_writer=model, model_type="bpe",
            vocab_size=max(size, FIRST_PIECE),  # with fewer, SentencePiece fails for want of room for the special ids
            hard_vocab_limit=False,
            character_coverage=0.98,  # SentencePiece's minimum: required_chars decides for all but rare letters
            required_chars=_alphabet(sample, size // 2),
            byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
            max_sentence_length=4 * MAX_SLICE + 1,
            pad_id=PAD, unk_id=UNK, bos_id=BOS, eos_id=EOS, control_symbols=RESERVED, minloglevel=2,
        )  # fmt: skip
    except RuntimeError as error:
        if "sentences_.empty()" in str(error):
            raise UsageError("the training text is empty, so there is no vocabulary to learn") from None
        # The message ends with "... required_chars. 300 vs 350. ..."
        needed = re.search(r"required_chars.* vs (\d+)", str(error))
        if not needed:
            raise
        raise UsageError(
            f"a vocabulary of {size:,} is too small for its alphabet, which with bytes and reserved ids "
            f"needs {needed[1]} pieces; ask for more with --vocab-size"
        ) from None
    return Vocabulary(model.getvalue())


def _sample(pairs: Iterable[tuple[str, str]], count: int, seed: int) -> Iterator[str]:
    """The lines of both sides of at most SAMPLE pairs, in slices that SentencePiece accepts."""
    chosen = np.ones(count, dtype=bool)
    if count > SAMPLE:
        chosen[:] = False
        chosen[np.random.default_rng(seed).choice(count, SAMPLE, replace=False)] = True
    characters = 0
    for pair in itertools.compress(pairs, chosen):
        for text in (clean(side).replace("\u2585", " ") for side in pair):
            characters += len(text)
            if characters > SAMPLE_CHARACTERS:
                return
            yield from (text[start : start + MAX_SLICE] for start in range(0, len(text), MAX_SLICE))


def _alphabet(sample: list[str], most: int) -> str:
    """The characters that must be pieces: the keyboard's signs, and up to `most` frequent ones."""
    counts: Counter[str] = Counter()
    for text in sample:
        counts.update(text)
    least = MIN_CHARACTER_SHARE * counts.total()
    common = [character for character, n in counts.most_common(most) if n >= least and character != " "]
    return KEYBOARD_SIGNS + "".join(character for character in common if character not in KEYBOARD_SIGNS + NEVER_REQUIRED)
