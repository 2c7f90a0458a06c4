"""Updates and micro-batches: every pair once, the asked size, little padding, the same plan for the same seed."""

import numpy as np
import pytest
import torch

from nmt.data.batching import Plan
from nmt.data.cleaning import CleaningReport
from nmt.data.corpus import load
from nmt.data.encoding import Encoder
from nmt.data.prepared import PreparedPairs, Side, prepare
from nmt.data.vocabulary import Vocabulary
from nmt.ids import BOS, EOS, PAD


def side(sentences: list[list[int]]) -> Side:
    ids = np.array([id for sentence in sentences for id in sentence], np.uint16)
    return Side(ids, np.cumsum([0, *map(len, sentences)], dtype=np.int64))


def of_lengths(lengths: list[tuple[int, int]]) -> PreparedPairs:
    """Pairs of so many pieces in source and target."""
    return PreparedPairs(side([[20] * source for source, _ in lengths]), side([[30] * target for _, target in lengths]))


@pytest.fixture(scope="module")
def varied() -> PreparedPairs:
    """20,000 pairs of 1 to 80 pieces, target near source in length as in real text."""
    random = np.random.default_rng(4)
    sources = np.clip(random.gamma(3, 8, 20_000), 1, 80).astype(int)
    targets = np.clip(sources * random.normal(1.1, 0.15, 20_000), 1, 90).astype(int)
    return of_lengths(list(zip(sources.tolist(), targets.tolist(), strict=True)))


@pytest.fixture(scope="module")
def demo(vocabulary: Vocabulary) -> PreparedPairs:
    """All training pairs of the demo corpus, real if simple sentences."""
    return prepare(load("demo", "en", "de").train, Encoder(vocabulary, 256, 3.0), CleaningReport())


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return len(one) == len(other) and all(map(np.array_equal, one, other))


@pytest.mark.parametrize("tokens", [50, 1_000, 2_048, 25_000, 10**9])
def test_every_pair_is_in_one_update(varied: PreparedPairs, tokens: int) -> None:
    """An epoch holds each pair exactly once, whatever the size of the updates."""
    for epoch in (0, 1):
        order = np.concatenate(Plan(varied, tokens, 1).epoch(epoch))
        assert np.array_equal(np.sort(order), np.arange(len(varied)))


def test_the_plan_is_of_seed_and_epoch(varied: PreparedPairs) -> None:
    """The same seed and epoch give the same updates in the same order; another epoch or seed gives others."""
    first = Plan(varied, 2_048, 1).epoch(3)
    again = Plan(varied, 2_048, 1)
    again.epoch(0)
    assert same(again.epoch(3), first)
    assert not same(again.epoch(4), first)
    assert not same(Plan(varied, 2_048, 2).epoch(3), first)
    assert not same(Plan(varied, 2_048, 2).epoch(2), Plan(varied, 2_048, 3).epoch(1))


def test_epochs_mix_the_pairs_anew(varied: PreparedPairs) -> None:
    """A later epoch is no reordering of the same updates: other pairs meet in them, even in those of one chunk."""
    updates = [{frozenset(update.tolist()) for update in Plan(varied, 1_000, 1).epoch(epoch)} for epoch in (0, 1)]
    assert len(updates[0] & updates[1]) < 0.2 * len(updates[0])


@pytest.mark.parametrize("tokens", [1_000, 2_048, 8_192, 25_000])
def test_updates_hold_the_asked_tokens(varied: PreparedPairs, tokens: int) -> None:
    """An update has the asked target tokens, give or take a sentence a chunk; two of an epoch may fall short of it."""
    plan = Plan(varied, tokens, 1)
    sizes = np.array([plan.target_tokens(update) for update in plan.epoch(0)])
    slack = plan.chunks * int(plan.targets.max())
    assert sizes.max() <= tokens + slack
    short = np.flatnonzero(sizes < tokens - slack)  # that with the remainder of the longest pairs, and the last one
    assert len(short) <= 2
    assert all(number == len(sizes) - 1 or sizes[number] >= tokens - slack - plan.chunk_tokens for number in short)
    assert sizes.sum() == plan.targets.sum()


def test_target_tokens_count_eos_and_no_padding() -> None:
    """The tokens of an update are those to be predicted: the pieces and one EOS a sentence."""
    plan = Plan(of_lengths([(5, 2), (1, 3), (9, 1)]), 100, 1)
    assert plan.target_tokens(np.array([0, 2])) == 5


def test_lengths_are_mixed_over_an_epoch(varied: PreparedPairs) -> None:
    """Short sentences do not come first: neighbouring updates are no more alike in length than any two."""
    for tokens in (1_000, 2_048):  # one chunk an update, and two
        plan = Plan(varied, tokens, 1)
        means = np.array([plan.targets[update].mean() for update in plan.epoch(0)])
        ranks = np.argsort(np.argsort(means))
        assert len(ranks) > 200
        assert abs(np.corrcoef(ranks[:-1], ranks[1:])[0, 1]) < 0.2
        assert abs(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1]) < 0.2


def test_an_update_mixes_lengths(varied: PreparedPairs) -> None:
    """A large update holds short and long sentences, as the paper's eight devices together did."""
    plan = Plan(varied, 25_000, 1)
    overall = plan.targets.std()
    assert np.median([plan.targets[update].std() for update in plan.epoch(0)]) > 0.5 * overall


@pytest.mark.parametrize("limit", [1, 64, 300, 1_280, 4_096, 10**9])
def test_micro_batches_cut_an_update_to_fit(varied: PreparedPairs, limit: int) -> None:
    """Micro-batches hold each pair of the update once, and on neither side more padded cells than fit, or one pair."""
    plan = Plan(varied, 8_192, 1)
    for update in plan.epoch(0)[:5]:
        before = update.copy()
        parts = list(plan.micro_batches(update, limit))
        assert np.array_equal(np.sort(np.concatenate(parts)), np.sort(update))
        assert np.array_equal(update, before)
        for part in parts:
            widest = max(plan.sources[part].max(), plan.targets[part].max())
            assert len(part) == 1 or len(part) * widest <= limit
            batch = plan.batch(part)
            assert batch.source.numel() == len(part) * plan.sources[part].max()
            assert batch.target_in.numel() == len(part) * plan.targets[part].max()


def test_micro_batches_fill_the_limit() -> None:
    """Pairs of one length are cut no finer than the limit asks, so that no device idles."""
    plan = Plan(of_lengths([(9, 9)] * 100), 10**6, 1)
    (update,) = plan.epoch(0)
    assert [len(part) for part in plan.micro_batches(update, 200)] == [20] * 5


def test_micro_batches_are_of_like_length(varied: PreparedPairs) -> None:
    """In whatever order an update lists its pairs, they are cut by length, so into batches of the same sizes."""
    plan = Plan(varied, 8_192, 1)
    update = plan.epoch(0)[0]
    sizes = [len(part) for part in plan.micro_batches(update, 1_280)]
    shuffled = np.random.default_rng(0).permutation(update)
    assert [len(part) for part in plan.micro_batches(shuffled, 1_280)] == sizes


def test_a_pair_over_the_limit_passes_alone() -> None:
    """A pair longer than the micro-batch is neither dropped nor cut, and takes no other with it."""
    plan = Plan(of_lengths([(3, 3), (50, 2), (3, 3), (2, 60)]), 1_000, 1)
    (update,) = plan.epoch(0)
    parts = sorted(sorted(part.tolist()) for part in plan.micro_batches(update, 10))
    assert parts == [[0, 2], [1], [3]]


def test_the_plan_does_not_depend_on_the_micro_batches(varied: PreparedPairs) -> None:
    """Cutting an update, in whatever sizes, changes neither it nor the updates to come."""
    plan = Plan(varied, 2_048, 1)
    untouched = plan.epoch(0)
    for number, update in enumerate(untouched):
        list(plan.micro_batches(update, 100 + number))
    assert same(plan.epoch(0), untouched)
    assert same(plan.epoch(1), Plan(varied, 2_048, 1).epoch(1))


@pytest.mark.parametrize(
    ("corpus", "tokens", "limit"),
    [
        ("demo", 2_048, 1_280),
        ("demo", 8_192, 4_096),
        ("demo", 25_000, 4_096),
        ("varied", 2_048, 1_280),
        ("varied", 8_192, 4_096),
        ("varied", 25_000, 4_096),
    ],
)
def test_little_is_padding(request: pytest.FixtureRequest, corpus: str, tokens: int, limit: int) -> None:
    """Over an epoch less than a tenth of the cells of the batches is padding."""
    plan = Plan(request.getfixturevalue(corpus), tokens, 1)
    cells = real = 0
    for update in plan.epoch(0):
        for part in plan.micro_batches(update, limit):
            cells += len(part) * int(plan.sources[part].max() + plan.targets[part].max())
            real += int(plan.sources[part].sum() + plan.targets[part].sum())
    assert real == plan.sources.sum() + plan.targets.sum()
    assert 1 - real / cells < 0.1


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("tokens", [1, 25_000])
def test_one_or_two_pairs_are_a_corpus(count: int, tokens: int) -> None:
    """The smallest corpora have epochs and batches like any other."""
    plan = Plan(of_lengths([(4, 5)] * count), tokens, 1)
    updates = plan.epoch(0)
    assert sorted(np.concatenate(updates).tolist()) == list(range(count))
    assert all(len(update) for update in updates)
    batches = [plan.batch(part) for update in updates for part in plan.micro_batches(update, 4_096)]
    assert sum(batch.tokens for batch in batches) == 11 * count


def test_a_batch_is_what_the_model_reads() -> None:
    """Source x EOS, decoder input BOS y, expected output y EOS, padded behind, of the pairs in the order asked for."""
    plan = Plan(PreparedPairs(side([[20, 21], [22], [23]]), side([[30], [31, 32, 33], [34, 35]])), 100, 1)
    batch = plan.batch(np.array([1, 0]))
    assert batch.source.tolist() == [[22, EOS, PAD], [20, 21, EOS]]
    assert batch.target_in.tolist() == [[BOS, 31, 32, 33], [BOS, 30, PAD, PAD]]
    assert batch.target_out.tolist() == [[31, 32, 33, EOS], [30, EOS, PAD, PAD]]
    assert {ids.dtype for ids in (batch.source, batch.target_in, batch.target_out)} == {torch.int64}
    assert batch.tokens == 2 + 3 + 4 + 2


def test_a_batch_moves_whole() -> None:
    """Moved to a device, a batch has the same ids and token count, all on it."""
    batch = Plan(of_lengths([(2, 3), (1, 1)]), 100, 1).batch(np.array([0, 1]))
    moved = batch.to(torch.device("meta"))
    assert {ids.device.type for ids in (moved.source, moved.target_in, moved.target_out)} == {"meta"}
    assert (moved.source.shape, moved.target_out.shape, moved.tokens) == ((2, 3), (2, 4), batch.tokens)
