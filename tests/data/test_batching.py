"""Updates and micro-batches: every pair once, the requested size, little padding, the same plan for the same seed."""

import numpy as np
import pytest
import torch

from nmt.data.batching import Batch, Plan, micro_batches
from nmt.data.preparation import PreparedPairs, Side
from nmt.ids import BOS, EOS, PAD


def side(sentences: list[list[int]]) -> Side:
    ids = np.array([id for sentence in sentences for id in sentence], np.uint16)
    return Side(ids, np.cumsum([0, *map(len, sentences)], dtype=np.int64))


def of_lengths(lengths: list[tuple[int, int]]) -> PreparedPairs:
    """Pairs with these numbers of pieces in source and target."""
    return PreparedPairs(side([[20] * source for source, _ in lengths]), side([[30] * target for _, target in lengths]))


@pytest.fixture(scope="module")
def varied() -> PreparedPairs:
    """20,000 pairs of 1 to 80 pieces, the target about as long as the source, as in real text."""
    random = np.random.default_rng(4)
    sources = np.clip(random.gamma(3, 8, 20_000), 1, 80).astype(int)
    targets = np.clip(sources * random.normal(1.1, 0.15, 20_000), 1, 90).astype(int)
    return of_lengths(list(zip(sources.tolist(), targets.tolist(), strict=True)))


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return len(one) == len(other) and all(map(np.array_equal, one, other))


@pytest.mark.parametrize("tokens", [50, 2_048, 10**9])
def test_every_pair_is_in_one_update(varied: PreparedPairs, tokens: int) -> None:
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


@pytest.mark.parametrize("tokens", [1_000, 25_000])
def test_updates_hold_the_asked_tokens(varied: PreparedPairs, tokens: int) -> None:
    """An update has the requested target tokens (pieces and EOS), within a sentence per chunk. Two may be smaller."""
    plan = Plan(varied, tokens, 1)
    updates = plan.epoch(0)
    sizes = np.array([int(varied.targets[update].sum()) for update in updates])
    assert sizes.tolist() == [int((varied.target.lengths[update] + 1).sum()) for update in updates]
    slack = plan.orders[0].chunks * int(varied.targets.max())
    assert sizes.max() <= tokens + slack
    short = np.flatnonzero(sizes < tokens - slack)  # the one with the remainder of the longest pairs, and the last one
    assert len(short) <= 2
    assert all(number == len(sizes) - 1 or sizes[number] >= tokens - slack - plan.orders[0].chunk_tokens for number in short)


def test_lengths_are_mixed_over_an_epoch(varied: PreparedPairs) -> None:
    """Short sentences do not come first, and neighbouring updates are no more alike in length than any two."""
    for tokens in (1_000, 2_048):  # one chunk per update, and two
        plan = Plan(varied, tokens, 1)
        means = np.array([varied.targets[update].mean() for update in plan.epoch(0)])
        ranks = np.argsort(np.argsort(means))
        assert len(ranks) > 200
        assert abs(np.corrcoef(ranks[:-1], ranks[1:])[0, 1]) < 0.2
        assert abs(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1]) < 0.2


@pytest.mark.parametrize("limit", [1, 300, 10**9])
def test_micro_batches_cut_an_update_to_fit(varied: PreparedPairs, limit: int) -> None:
    """They hold each pair once and fit, or are a single pair. The order of the update's pairs does not matter."""
    plan = Plan(varied, 8_192, 1)
    for number, update in enumerate(plan.epoch(0)[:5]):
        pairs = plan.take(0, update)
        parts = list(micro_batches(pairs, limit))
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(update)))
        for part in parts:
            widest = max(pairs.sources[part].max(), pairs.targets[part].max())
            assert len(part) == 1 or len(part) * widest <= limit
            batch = Batch.of(pairs.take(part))
            assert batch.source.numel() == len(part) * pairs.sources[part].max()
            assert batch.target_in.numel() == len(part) * pairs.targets[part].max()
        shuffled = varied.take(np.random.default_rng(number).permutation(update))
        assert [len(part) for part in micro_batches(shuffled, limit)] == [len(part) for part in parts]


def test_micro_batches_fill_the_limit() -> None:
    """Pairs of one length are cut no finer than the limit requires, so that no device idles."""
    assert [len(part) for part in micro_batches(of_lengths([(9, 9)] * 100), 200)] == [20] * 5


@pytest.mark.parametrize(("tokens", "limit"), [(2_048, 1_280), (8_192, 4_096), (25_000, 4_096)])
def test_little_is_padding(varied: PreparedPairs, tokens: int, limit: int) -> None:
    """Over an epoch less than a tenth of the batches' cells is padding."""
    plan = Plan(varied, tokens, 1)
    cells = real = 0
    for update in plan.epoch(0):
        pairs = plan.take(0, update)
        for part in micro_batches(pairs, limit):
            cells += len(part) * int(pairs.sources[part].max() + pairs.targets[part].max())
            real += int(pairs.sources[part].sum() + pairs.targets[part].sum())
    assert real == varied.sources.sum() + varied.targets.sum()
    assert 1 - real / cells < 0.1


def test_a_batch_is_what_the_model_reads() -> None:
    """Source x EOS, decoder input BOS y, expected output y EOS, padded at the end, in the order asked for."""
    pairs = PreparedPairs(side([[20, 21], [22], [23]]), side([[30], [31, 32, 33], [34, 35]]))
    batch = Batch.of(pairs.take(np.array([1, 0])))
    assert batch.source.tolist() == [[22, EOS, PAD], [20, 21, EOS]]
    assert batch.target_in.tolist() == [[BOS, 31, 32, 33], [BOS, 30, PAD, PAD]]
    assert batch.target_out.tolist() == [[31, 32, 33, EOS], [30, EOS, PAD, PAD]]
    assert {ids.dtype for ids in (batch.source, batch.target_in, batch.target_out)} == {torch.int64}
    assert batch.tokens == 2 + 3 + 4 + 2
