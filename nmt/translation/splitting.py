"""Long text taken apart: a line into its sentences, and a sentence that is too long for one search into parts.

A model has mostly seen single sentences. Given several at once, it tends to translate the first and forget the others.
"""

import re
from collections.abc import Iterator
from itertools import accumulate, pairwise

from nmt.data.vocabulary import Vocabulary


def sentences(line: str, language: str) -> list[str]:
    """The sentences of a line, each with the white space around it: joined, they are the line.

    `language` is a code such as `en` or `de-AT`, whose abbreviations and ordinals end no sentence. One that sentencex does not
    know is read by general rules.
    """
    import sentencex  # here, as who splits nothing does not need it

    # One space for each white space: sentencex 1.0.32 panics where a no-break space stands between a letter and a full stop.
    plain = re.sub(r"\s", " ", line)
    try:
        found = sentencex.segment(re.split("[-_]", language.lower())[0], plain)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust, which derives it from no Exception, and exports no name
            raise
        return [line]
    if "".join(found) != plain:
        return [line]  # not what it promises
    ends = accumulate(map(len, found), initial=0)
    return [line[start:end] for start, end in pairwise(ends)]


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
