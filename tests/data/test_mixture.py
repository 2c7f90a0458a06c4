"""Several corpora in one run: parsed, drawn from by weight, counted one by one, each pass whole."""

from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from nmt.config import TrainingConfig
from nmt.data.batching import Plan
from nmt.data.cache import Cache
from nmt.data.mixture import DataOption, data_options, load_all, shares
from nmt.data.preparation import JoinedPairs, PreparedPairs, Side, encode, learn_vocabulary, prepare_corpus
from nmt.data.splits import Pair
from nmt.data.vocabulary import Vocabulary
from nmt.errors import UsageError
from nmt.ids import SYNTHETIC
from tests.conftest import write_corpus


def some_pairs(count: int, seed: int, first: int = 20) -> PreparedPairs:
    """Pairs of 1 to 40 pieces, all with the id `first`."""
    lengths = np.random.default_rng(seed).integers(1, 41, (2, count)).tolist()
    return PreparedPairs(*(Side.of([[first] * length for length in side], "<u2") for side in lengths))


def test_corpora_and_weights_are_parsed(tmp_path: Path) -> None:
    """A name may hold = where such a folder exists; hub configurations keep their colon."""
    assert data_options(["demo"], None) == (DataOption("demo"),)
    assert data_options(["a/b:c", "letters=0.3"], None) == (DataOption("a/b:c", 1.0), DataOption("letters", 0.3))
    assert data_options(["a"], "made") == (DataOption("a"), DataOption("made", synthetic=True))
    folder = tmp_path / "x=2"
    folder.mkdir()
    assert data_options([str(folder)], None) == (DataOption(str(folder)),)
    assert data_options([f"{folder}=3"], None) == (DataOption(str(folder), 3.0),)


@pytest.mark.parametrize("wrong", ["letters=", "letters=0", "letters=-1", "letters=much", "letters=inf", "letters=1e3"])
def test_a_weight_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match=r"--data letters=.*a number above 0"):
        data_options(["demo", wrong], None)


def test_the_same_corpus_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="named twice"):
        data_options(["demo", "demo=2"], None)


def test_shares_follow_weights_else_sizes() -> None:
    """Synthetic text takes its own share of the whole, whatever its size."""
    a, b, made = DataOption("a"), DataOption("b"), DataOption("made", synthetic=True)
    assert shares([a], [10], 0.5) == [1.0]
    assert shares([a, b], [300, 100], 0.5) == [0.75, 0.25]
    assert shares([DataOption("a", 1.0), DataOption("b", 0.25)], [300, 100], 0.5) == [0.8, 0.2]
    assert shares([a, b, made], [300, 100, 10**6], 0.4) == pytest.approx([0.45, 0.15, 0.4])


def test_every_update_draws_from_each_corpus_by_its_share() -> None:
    """Over updates that are not an epoch's last, the tokens of each corpus are its share, to a sentence a chunk."""
    parts = [some_pairs(3_000, 1), some_pairs(400, 2)]
    plan = Plan(JoinedPairs(parts), 2_048, 1, None, [(3_000, 0.7), (400, 0.3)])
    found = [
        [int(plan.pairs.targets[own].sum()) for own in (u[u < 3_000], u[u >= 3_000])] for _, u in islice(plan.updates(), 60)
    ]
    medians = np.median(found, axis=0)
    assert medians == pytest.approx([0.7 * 2_048, 0.3 * 2_048], abs=2 * 41)


def test_a_corpus_is_gone_through_whole_before_it_begins_again() -> None:
    """Passes of the small corpus go on across the epochs of the whole, each in another order."""
    plan = Plan(JoinedPairs([some_pairs(3_000, 1), some_pairs(400, 2)]), 2_048, 1, None, [(3_000, 0.5), (400, 0.5)])
    small = plan.orders[1].count
    updates = [update for _, update in islice(plan.updates(), 5 * small)]
    passes = [np.concatenate([u[u >= 3_000] for u in updates[n * small : (n + 1) * small]]) for n in range(5)]
    for one in passes:
        assert np.array_equal(np.sort(one), np.arange(3_000, 3_400))
    assert not np.array_equal(passes[0], passes[1])
    large = plan.orders[0].count
    assert len(plan.epoch(0)) == len(plan.epoch(7)) == large
    assert Counter(np.concatenate([u[u < 3_000] for u in plan.epoch(2)]).tolist()) == Counter(range(3_000))


@pytest.mark.parametrize("start", [1, 17, 40])
def test_a_resumed_plan_goes_on_where_it_was(start: int) -> None:
    plan = Plan(JoinedPairs([some_pairs(900, 1), some_pairs(400, 2)]), 2_048, 1, None, [(900, 0.5), (400, 0.5)])
    straight = list(islice(plan.updates(), start + 20))
    epoch, position = straight[start][0], start % len(plan.epoch(0))
    for (_, one), (_, other) in zip(straight[start:], plan.updates(epoch, position), strict=False):
        assert np.array_equal(one, other)


def test_joined_pairs_are_those_of_the_parts() -> None:
    parts = [some_pairs(50, 1, first=20), some_pairs(30, 2, first=30)]
    joined = JoinedPairs(parts)
    taken = joined.take(np.array([70, 3, 55, 49]))
    assert len(joined) == 80
    assert taken.source.sentences() == [parts[0].source.sentences()[n] for n in (3, 49)] + [
        parts[1].source.sentences()[n] for n in (20, 5)
    ]
    assert joined.targets.tolist() == [*parts[0].targets, *parts[1].targets]


def test_marks_stand_in_front_of_every_source(vocabulary: Vocabulary, demo_pairs: list[Pair]) -> None:
    """And count as pieces: nothing gets longer than max_pieces."""
    plain, marked = (encode(demo_pairs[:50], vocabulary, marks=marks)[0] for marks in ((), (SYNTHETIC,)))
    assert marked.source.sentences() == [[SYNTHETIC, *ids] for ids in plain.source.sentences()]
    assert marked.target.sentences() == plain.target.sentences()
    longest = int(plain.source.lengths.max())
    kept, _, dropped = encode(demo_pairs[:50], vocabulary, longest, marks=(SYNTHETIC,))
    assert kept.source.lengths.max() <= longest
    assert dropped


def test_each_corpus_is_counted_and_compared_with_the_held_out_text(tmp_path: Path, demo_pairs: list[Pair]) -> None:
    """The first one's validation and test text is the run's; of another one only the training text is used, all of it."""
    first = write_corpus(tmp_path / "first", train=demo_pairs[:100], valid=demo_pairs[100:110], test=demo_pairs[110:120])
    other = write_corpus(tmp_path / "other", train=[*demo_pairs[105:305], ("", "x")], valid=demo_pairs[:5], test=demo_pairs[:5])
    cache, config = Cache([tmp_path / "cache"]), TrainingConfig(vocab_size=500)
    mixture = load_all([DataOption(str(first)), DataOption(str(other))], "en", "de", cache)
    assert {split: text.count for split, text in mixture.main.splits.items()} == {"train": 100, "valid": 10, "test": 10}
    assert {split: text.count for split, text in mixture.corpora[1].splits.items()} == {"train": 201}
    assert str(mixture.clean(config)) == "read 301 pairs, kept 300, dropped 1: 1 with an empty source"
    assert list(mixture.usable(config)) == [*demo_pairs[:100], *demo_pairs[105:305]]
    vocabulary = learn_vocabulary(mixture, config, cache)
    _, report, facts = prepare_corpus(mixture.corpora[1], vocabulary, config, cache, mixture.main)
    assert (report.read, report.kept) == (201, 200)
    assert facts["overlap"]["valid"]["source"]["lines"] >= 5
    assert facts["overlap"]["test"]["source"]["lines"] == 10
