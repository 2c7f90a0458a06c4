"""Cutting long text: a line into its sentences, and a sentence that is too long for one search into parts.

A model has mostly seen single sentences. Given several at once, it tends to translate the first and forget the others.
"""

import re
from collections.abc import Iterator
from itertools import accumulate, pairwise

from nmt.data.vocabulary import Vocabulary
from nmt.writing import two_letters

# Languages whose abbreviations sentencex 1.0.32 knows. It reads others by the rules of a related language or of English, which
# serve Chinese too: it has no such abbreviations.
RULES = set("am ar bg bn ca da de el en es fi fr gu hi hy it ja kk kn ml mr my nl pa pl pt ru sk ta te uk zh".split())  # noqa: SIM905

# Languages that write an ordinal as a number and a full stop. sentencex takes that for the end of a sentence: always, or (in
# Danish, Finnish, German and Slovak) before a capital letter or a small one that is not ASCII.
ORDINALS = set("bs cs da de et eu fi fo gsw hr hsb hu is lb lv nb nds nn no pl sk sl sr tr".split())  # noqa: SIM905
# Those of them that capitalise nouns. There a capital letter often follows an ordinal, unless it begins one of these words,
# which are capitalised only at the beginning of a sentence.
NOUNS_CAPITALISED = {"de", "gsw", "lb", "nds"}
SENTENCE_OPENERS = set(
    """aber alle als am an auch auf bei da dabei daher damit danach dann das dem den der des die dies diese diesem diesen
    dieser dieses doch dort du durch ein eine einem einen einer er es falls für ich ihr im in man mit nach nur oder seit sie
    siehe so um und von wenn wie wir wird wo zu zum zur""".split()  # noqa: SIM905
)
_FINAL_NUMBER = re.compile(r"(?:^|[^\w.,:;=$])(\d+)\.\s*$")  # a whole number and a full stop
_WORD = re.compile(r"\w+")


def has_rules(language: str) -> bool:
    """Whether there are sentence rules for the language of this code."""
    return two_letters(language) in RULES


def sentences(line: str, language: str) -> list[str]:
    """The sentences of a line, each with the white space around it: joined, they are the line.

    `language` is a code such as `en`, `deu` or `de-AT`, whose abbreviations and ordinals do not end a sentence. A language
    without rules is read by those of another one.
    """
    import sentencex  # here, because --no-split does not need it

    # sentencex 1.0.32 panics at a no-break space between a letter and a full stop, so it sees plain spaces alone.
    code, plain = two_letters(language), re.sub(r"\s", " ", line)
    try:
        found = sentencex.segment(code, plain)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # Rust's; it is not an Exception, and has no name to import
            raise
        return [line]
    if "".join(found) != plain:  # sentencex promises this, but nothing may be lost
        return [line]
    ends = list(accumulate(map(len, found)))
    if code in ORDINALS:
        cuts = zip(ends, found, [*found[1:], ""], strict=True)
        ends = [end for end, before, after in cuts if not _is_ordinal(before, after, code in NOUNS_CAPITALISED)]
    return [line[start:end] for start, end in pairwise([0, *ends])]


def _is_ordinal(before: str, after: str, capitalises_nouns: bool) -> bool:
    """Whether a cut between these texts follows an ordinal. A number over three digits before a capital letter is a year."""
    number, word = _FINAL_NUMBER.search(before), _WORD.search(after)
    if not number or not word:
        return False
    if word[0][0].isupper():
        return capitalises_nouns and len(number[1]) <= 3 and word[0].lower() not in SENTENCE_OPENERS
    return True


def trimmed(sentence: str) -> tuple[str, str, str]:
    """The white space before a sentence, the sentence itself, and the white space behind it."""
    return sentence.partition(sentence.strip() or sentence)


def cut(vocabulary: Vocabulary, ids: list[int], max_length: int) -> Iterator[list[int]]:
    """Cut ids into parts of at most `max_length`, each as long as can be, between words where that is possible."""
    start = 0
    while len(ids) - start > max_length:
        ends = (end for end in range(start + max_length, start, -1) if vocabulary.begins_word(ids[end]))
        end = next(ends, start + max_length)
        yield ids[start:end]
        start = end
    yield ids[start:]
