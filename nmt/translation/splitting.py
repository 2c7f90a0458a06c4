"""Long text taken apart: a line into its sentences, and a sentence that is too long for one search into parts.

A model has mostly seen single sentences. Given several at once, it tends to translate the first and forget the others.
"""

import re
from collections.abc import Iterator
from itertools import accumulate, pairwise

from nmt.data.vocabulary import Vocabulary
from nmt.writing import two_letters

# Languages whose abbreviations sentencex 1.0.32 knows. Others it reads by the rules of a related language or of English; for
# Chinese, which has no abbreviations of this kind, these do.
RULES = set("am ar bg bn ca da de el en es fi fr gu hi hy it ja kk kn ml mr my nl pa pl pt ru sk ta te uk zh".split())  # noqa: SIM905

# Languages that write an ordinal as a number and a full stop, which sentencex takes for the end of a sentence: always, or (in
# Danish, Finnish, German and Slovak) before a capital letter and before a small one that is not ASCII.
ORDINALS = set("bs cs da de et eu fi fo gsw hr hsb hu is lb lv nb nds nn no pl sk sl sr tr".split())  # noqa: SIM905
# Of them, those that capitalise nouns. There a capital letter behind an ordinal is usual, but not that of one of these words:
# they have it only where a sentence begins.
NOUNS_CAPITALISED = {"de", "gsw", "lb", "nds"}
BEGINNINGS = set(
    """aber alle als am an auch auf bei da dabei daher damit danach dann das dem den der des die dies diese diesem diesen
    dieser dieses doch dort du durch ein eine einem einen einer er es falls für ich ihr im in man mit nach nur oder seit sie
    siehe so um und von wenn wie wir wird wo zu zum zur""".split()  # noqa: SIM905
)
_NUMBER = re.compile(r"(?:^|[^\w.,:;=$])(\d+)\.\s*$")  # a whole one at the end
_WORD = re.compile(r"\w+")


def has_rules(language: str) -> bool:
    """Whether the sentences of the language of this code are told apart by rules of its own."""
    return two_letters(language) in RULES


def sentences(line: str, language: str) -> list[str]:
    """The sentences of a line, each with the white space around it: joined, they are the line.

    `language` is a code such as `en`, `deu` or `de-AT`, whose abbreviations and ordinals end no sentence. One that is not of
    RULES is read by those of another language.
    """
    import sentencex  # here, as who splits nothing does not need it

    # One space for each white space: sentencex 1.0.32 panics where a no-break space stands between a letter and a full stop.
    code, plain = two_letters(language), re.sub(r"\s", " ", line)
    try:
        found = sentencex.segment(code, plain)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust, which derives it from no Exception, and exports no name
            raise
        return [line]
    if "".join(found) != plain:
        return [line]  # not what it promises
    ends = list(accumulate(map(len, found)))
    if code in ORDINALS:
        cuts = zip(ends, found, [*found[1:], ""], strict=True)
        ends = [end for end, before, after in cuts if not _is_ordinal(before, after, code in NOUNS_CAPITALISED)]
    return [line[start:end] for start, end in pairwise([0, *ends])]


def _is_ordinal(before: str, after: str, nouns: bool) -> bool:
    """Whether a cut between these two falls behind an ordinal, in a language that capitalises `nouns` or does not.

    Of a capital letter behind more than three digits it does not: that is a year.
    """
    number, word = _NUMBER.search(before), _WORD.search(after)
    if not number or not word:
        return False
    if word[0][0].isupper():
        return nouns and len(number[1]) <= 3 and word[0].lower() not in BEGINNINGS
    return True


def trimmed(sentence: str) -> tuple[str, str, str]:
    """What a model should see of a sentence, between the white space before and behind it."""
    return sentence.partition(sentence.strip() or sentence)


def cut(vocabulary: Vocabulary, ids: list[int], longest: int) -> Iterator[list[int]]:
    """Cut ids into parts of at most `longest`, before the last piece that begins a word; a word that long is cut too."""
    start = 0
    while len(ids) - start > longest:
        ends = (end for end in range(start + longest, start, -1) if vocabulary.begins_word(ids[end]))
        end = next(ends, start + longest)
        yield ids[start:end]
        start = end
    yield ids[start:]
