"""In which decoder layer a word looks at its translation: python -m tests.benchmarks.alignment --model german --data multi30k

The answers are words that hardly ever occur without each other in the training text (a Dice coefficient over 0.5), where one
of them is in the source and one in the translation. The translation is the test set's own; the pieces of a word count together.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

from nmt.data import corpus
from nmt.saved_model import SavedModel
from nmt.translation.alignment import words
from nmt.translation.attentions import attention_maps
from nmt.translation.engine import load

SENTENCES = 300
LEAST, DICE = 5, 0.5  # occurrences of two words together, and their coefficient

Pair = tuple[str, str]


def plain(line: str) -> list[str]:
    return [word.strip('.,?!"').lower() for word in line.split()]


def dictionary(pairs: Iterator[Pair]) -> dict[str, set[str]]:
    """The source words that go with each target word."""
    sources: Counter[str] = Counter()
    targets: Counter[str] = Counter()
    together: Counter[Pair] = Counter()
    for line, translation in pairs:
        spoken, written = set(plain(line)), set(plain(translation))
        sources.update(spoken)
        targets.update(written)
        together.update(product(spoken, written))
    found: dict[str, set[str]] = defaultdict(set)
    for (source, target), count in together.items():
        if count >= LEAST and 2 * count > DICE * (sources[source] + targets[target]):
            found[target].add(source)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", default="demo", help="the corpus that the model was trained on")
    options = parser.parse_args()
    saved = SavedModel.open(options.model)
    languages = saved.description.languages
    text = corpus.load(options.data, *languages)
    vocabulary = saved.vocabulary
    model = load(saved, "auto", "fp32").model
    if "test" not in text.splits:
        parser.error("the corpus has no test set")
    known = dictionary(iter(text.train))
    right = []
    for line, translation in list(text.splits["test"])[:SENTENCES]:
        source, target = vocabulary.encode(line), vocabulary.encode(translation)
        columns, rows = words(source, vocabulary), words(target, vocabulary)
        spoken, written = plain(line), plain(translation)
        mean = attention_maps(model, source, target)[2].mean(1)  # [layers, T, S]
        for place, word in enumerate(written):
            answers = [i for i, other in enumerate(spoken) if other in known.get(word, ())]
            if len(answers) == 1 and written.count(word) == 1:
                looks = mean[:, rows[place]].sum(1)
                most = np.stack([looks[:, pieces].sum(1) for pieces in columns]).argmax(0)
                right.append(most == answers[0])
    print(f"{len(right):,} words; right by layer, the mean of its heads:")
    for layer, share in enumerate(np.mean(right, 0), 1):
        print(f"  {layer}  {share:.1%}")


if __name__ == "__main__":
    main()
