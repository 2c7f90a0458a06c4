"""The output formats of `nmt translate`: the best text, a table of the n best, or JSON."""

from collections.abc import Callable
from dataclasses import asdict

from nmt.errors import UsageError
from nmt.formatting import check_format
from nmt.lines import json_line
from nmt.translation.joining import Translation

Format = Callable[[int, str, list[Translation]], str]  # (line number, source, translations) -> output without a last \n


def output_format(name: str, n_best: int | None, details: bool = False) -> Format:
    """The format of this name. As text, the best translation alone, or a table if `n_best` is given.

    Raises UsageError for an unknown name, and for details as text.
    """
    check_format(name)
    if name == "json":
        return as_json
    if details:
        raise UsageError("--details: needs --format json; text has no place for them")
    return as_text if n_best is None else as_table


def as_text(_number: int, _source: str, translations: list[Translation]) -> str:
    """The best translation."""
    return translations[0].text


def as_table(number: int, _source: str, translations: list[Translation]) -> str:
    """One line per translation: line number, rank, score and text, separated by tabs. The text contains no tab."""
    return "\n".join(f"{number}\t{rank}\t{each.score:.4f}\t{each.text}" for rank, each in enumerate(translations, 1))


def as_json(number: int, source: str, translations: list[Translation]) -> str:
    """One object with the source as it was read. Only what JSON requires is escaped."""
    hypotheses = [asdict(translation) for translation in translations]
    for hypothesis in hypotheses:
        hypothesis |= hypothesis.pop("details") or {}
    return json_line({"line": number, "source": source, "hypotheses": hypotheses})
