"""Several corpora as one training text: which they are, and how much of every update comes from each."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.config import TrainingConfig
from nmt.data.cache import Cache, key_of
from nmt.data.cleaning import CleaningReport
from nmt.data.corpus import Corpus, Warn, load
from nmt.data.splits import Pair
from nmt.errors import UsageError


@dataclass(frozen=True)
class DataOption:
    """What one --data or --synthetic asks for."""

    data: str
    weight: float | None = None  # relative to the other corpora; None where none has a weight, and all pairs count alike
    synthetic: bool = False  # whether a machine wrote the sources


def data_options(texts: Sequence[str], synthetic: str | None) -> tuple[DataOption, ...]:
    """Parse each --data, `corpus` or `corpus=weight`. Raises UsageError for a weight that is no number above 0."""
    options = []
    for text in texts:
        name, sign, weight = text.rpartition("=")
        if not sign or Path(text).exists():
            options.append(DataOption(text))
            continue
        if not re.fullmatch(r"\d+\.?\d*|\.\d+", weight) or not float(weight):
            raise UsageError(f"--data {text}: after = stands the weight of {name}, a number above 0")
        options.append(DataOption(name, float(weight)))
    if any(option.weight for option in options):  # then a corpus without one has the weight 1
        options = [DataOption(option.data, option.weight or 1.0) for option in options]
    if synthetic:
        options.append(DataOption(synthetic, synthetic=True))
    names = [option.data for option in options]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"--data {repeated}: named twice; give it a larger weight, {repeated}=2, to see it more often")
    return tuple(options)


def shares(options: Sequence[DataOption], tokens: Sequence[int], synthetic: float) -> list[float]:
    """The share of each corpus in the target tokens of every update.

    Synthetic text has the share `synthetic`. The others divide the rest by their weights, or by their target `tokens` where
    none has a weight.
    """
    sizes = [option.weight or count for option, count in zip(options, tokens, strict=True)]
    real = sum(size for option, size in zip(options, sizes, strict=True) if not option.synthetic)
    machine = synthetic if any(option.synthetic for option in options) else 0.0
    return [machine if option.synthetic else (1 - machine) * size / real for option, size in zip(options, sizes, strict=True)]


@dataclass(frozen=True)
class Mixture:
    """The corpora of a run. Validation and test text are the first one's."""

    corpora: tuple[Corpus, ...]

    @property
    def main(self) -> Corpus:
        return self.corpora[0]

    @property
    def name(self) -> str:
        return " + ".join(corpus.name for corpus in self.corpora)

    @property
    def key(self) -> str:
        """A digest of the text of all corpora."""
        keys = [corpus.key for corpus in self.corpora]
        return keys[0] if len(keys) == 1 else key_of(mixture=keys)

    def clean(self, settings: TrainingConfig) -> CleaningReport:
        """What the filters of text keep and drop of all corpora, without reading any text."""
        total = CleaningReport()
        for corpus in self.corpora:
            total += corpus.clean(settings)
        return total

    def usable(self, settings: TrainingConfig) -> Iterator[Pair]:
        """The training pairs of all corpora that pass the filters of text."""
        for corpus in self.corpora:
            yield from corpus.usable(settings)


def load_all(
    options: Sequence[DataOption],
    source: str,
    target: str,
    cache: Cache | None = None,
    warn: Warn = lambda text: None,
    clean: bool = False,
) -> Mixture:
    """Load every corpus asked for; of all but the first the training text alone. Raises as `load` does."""
    first, *others = options
    main = load(first.data, source, target, cache, warn, clean=clean)
    return Mixture((main, *(load(other.data, source, target, cache, warn, True, clean) for other in others)))
