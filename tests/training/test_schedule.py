"""The learning rate at the paper's landmarks."""

import pytest

from nmt.training.schedule import learning_rate


@pytest.mark.parametrize(("update", "rate"), [(1, 1.7469e-7), (4_000, 6.9877e-4), (16_000, 3.4939e-4), (100_000, 1.3975e-4)])
def test_base_rates(update: int, rate: float) -> None:
    """D = 512, warm-up 4,000: the rate rises to update 4,000, then falls as the inverse square root."""
    assert learning_rate(update, 512, 4_000) == pytest.approx(rate, rel=1e-4)
    assert learning_rate(update, 512, 4_000, 2.0) == 2 * learning_rate(update, 512, 4_000)
