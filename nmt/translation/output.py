"""How the translations of a line are written: the best one's text, the n best with their scores, or JSON."""

from collections.abc import Callable
from dataclasses import asdict

from nmt.errors import UsageError
from nmt.formatting import check_format
from nmt.lines import json_line
from nmt.translation.joining import Translation

Format = Callable[[int, str, list[Translation]], str]  # (line number, source, translations) -> what is written of them


def output_format(name: str, n_best: int | None, details: bool = False) -> Format:
    """The format of this name; of text, n_best lists every translation.

    Raises UsageError for a name that is none, and for one that has no place for details.
    """
    check_format(name)
    if name == "json":
        return as_json
    if details:
        raise UsageError("--details: text has no place for them; add --format json")
    return best if n_best is None else as_table


def best(_number: int, _source: str, translations: list[Translation]) -> str:
    return translations[0].text


def as_table(number: int, _source: str, translations: list[Translation]) -> str:
    """A line for each translation: line number, rank, score and text, with tabs between; the text has none itself."""
    return "\n".join(f"{number}\t{rank}\t{one.score:.4f}\t{one.text}" for rank, one in enumerate(translations, 1))


def as_json(number: int, source: str, translations: list[Translation]) -> str:
    """One object with the source as it was read; nothing but what JSON demands is escaped."""
    hypotheses = [asdict(translation) for translation in translations]
    for hypothesis in hypotheses:
        hypothesis |= hypothesis.pop("details") or {}
    return json_line({"line": number, "source": source, "hypotheses": hypotheses})
