"""Any text at all: as many lines come out as went in, and nothing crashes."""

import json

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nmt.config import ModelConfig
from nmt.data.vocabulary import Vocabulary
from nmt.lines import clean, is_blank, needs_no_translation
from nmt.model.transformer import Transformer
from nmt.translation.engine import TorchEngine
from nmt.translation.hypothesis import SearchOptions
from nmt.translation.output import output_format
from nmt.translation.translator import Translator

CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\n")  # whatever UTF-8 can spell in a line
TRICKY = st.sampled_from(
    'Aa1. .!?。…"“”)\u00a0\u2009\u200b\u200d\ufeff\u0301\x00\t\r\x85\u2028\u2581\u2585猫😀ß\ufffd\U0010ffff<>&\\'
)
SHORT = st.one_of(st.text(CHARACTERS, max_size=200), st.text(TRICKY, max_size=200))
LINES = st.lists(SHORT, min_size=1, max_size=4)


@pytest.fixture(scope="module")
def translator(vocabulary: Vocabulary) -> Translator:
    """A random model of one layer, which says anything; all parts of a line go through it at once."""
    torch.manual_seed(0)
    config = ModelConfig(layers=1, d_model=16, heads=2, d_ff=16, dropout=0.0)
    return Translator(TorchEngine(Transformer(config, len(vocabulary))), vocabulary, "en", "de", batch_tokens=100_000)


def check(translator: Translator, lines: list[str]) -> None:
    """Each line has its translations in every format, and none breaks a line."""
    options = SearchOptions(beam=2, n_best=2, extra=2)
    found = translator.translate_lines(lines, options)
    text, table, records = (output_format(*form) for form in (("text", None), ("text", 2), ("json", 2)))
    for number, (line, translations) in enumerate(zip(lines, found, strict=True), 1):
        alone = text(number, line, translations)
        assert clean(alone) == alone
        alone.encode()  # no half of a character is in it
        if needs_no_translation(line):
            assert alone == ("" if is_blank(line) else clean(line))
        rows = [row.split("\t") for row in table(number, line, translations).split("\n")]
        assert [row[:2] for row in rows] == [[str(number), str(rank + 1)] for rank in range(len(translations))]
        assert [row[3] for row in rows] == [translation.text for translation in translations]
        record = records(number, line, translations)
        assert "\n" not in record
        assert json.loads(record)["source"] == line


@settings(max_examples=190, deadline=None, suppress_health_check=list(HealthCheck))
@given(lines=LINES)
@example(lines=["Herr A\u00a0. Meier kam.", "x A\u2009. Yes."])
def test_short_lines(translator: Translator, lines: list[str]) -> None:
    """Any Unicode that a file can hold."""
    check(translator, lines)
