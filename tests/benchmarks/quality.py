"""How well trained models translate: their held-out test set as it is, and as people type it.

    .venv/bin/python -m tests.benchmarks.quality scores MODEL MODEL ...
    .venv/bin/python -m tests.benchmarks.quality robust MODEL MODEL ...

`scores`: cased BLEU with sacreBLEU's 13a, BLEU of the tokens as they are (for text that is tokenised already), chrF, minutes.
`robust`: BLEU without regard to case of the test set in upper case, in title case, with the typing errors of training,
and with others, where a letter is replaced by its neighbour on a keyboard.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from nmt.data.variation import CHARACTERS_PER_TYPO, mistyped, titled
from nmt.event_log import EventLog
from nmt.saved_model import SavedModel
from nmt.translation.translator import load_translator
from tests.benchmarks.architectures import table

NEIGHBOURS = {key: row[place - 1 : place] + row[place + 1 : place + 2]
              for row in ("qwertyuiop", "asdfghjkl", "zxcvbnm") for place, key in enumerate(row)}  # fmt: skip


def slipped(text: str, random: np.random.Generator) -> str:
    """The text with a letter replaced by its neighbour on a keyboard in every CHARACTERS_PER_TYPO characters, at least one."""
    letters = list(text)
    places = [place for place, letter in enumerate(letters) if letter in NEIGHBOURS]
    count = min(len(places), max(1, len(letters) // CHARACTERS_PER_TYPO))
    for place in random.choice(places, count, replace=False) if places else []:
        keys = NEIGHBOURS[letters[place]]
        letters[place] = keys[random.integers(len(keys))]
    return "".join(letters)


def scores(names: list[Path]) -> None:
    rows = []
    for path in names:
        model = SavedModel.open(path)
        test = model.heldout("test")
        assert test
        events = EventLog(model.directory.metrics_path).read()
        minutes = max(event["minutes"] for event in events if "minutes" in event)
        found = load_translator(model).translate(test[0])
        plain, as_it_is, chrf = BLEU(), BLEU(tokenize="none"), CHRF()
        values = [f"{metric.corpus_score(found, [test[1]]).score:.2f}" for metric in (plain, as_it_is, chrf)]
        rows.append([path.name, *values, f"{events[-1]['step']:,}", f"{minutes:.0f}"])
    table(["model", "BLEU", "BLEU of tokens", "chrF", "updates", "minutes"], rows)


def robust(names: list[Path]) -> None:
    random = np.random.default_rng(7)
    forms: dict[str, Callable[[str], str]] = {
        "plain": str, "upper case": str.upper, "title case": titled,
        "typing errors": lambda text: mistyped(text, random), "slips": lambda text: slipped(text, random),
    }  # fmt: skip
    rows = []
    for path in names:
        model = SavedModel.open(path)
        test = model.heldout("test")
        assert test
        translator, bleu, row = load_translator(model), BLEU(lowercase=True), [path.name]
        for form in forms.values():
            random = np.random.default_rng(7)
            found = translator.translate([form(line) for line in test[0]])
            row.append(f"{bleu.corpus_score(found, [test[1]]).score:.2f}")
        rows.append(row)
    table(["BLEU without case", *forms], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["scores", "robust"])
    parser.add_argument("models", nargs="+", type=Path)
    options = parser.parse_args()
    {"scores": scores, "robust": robust}[options.what](options.models)


if __name__ == "__main__":
    main()
