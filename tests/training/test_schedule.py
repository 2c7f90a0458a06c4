"""The learning rate at the paper's landmarks."""

import pytest

from nmt.training.schedule import learning_rate


@pytest.mark.parametrize(
    ("update", "rate"), [(1, 1.7469e-7), (4_000, 6.9877e-4), (16_000, 3.4939e-4), (100_000, 1.3975e-4)]
)
def test_base_rates(update: int, rate: float) -> None:
    """d_model 512, warm-up 4,000: rises to update 4,000, then falls as the inverse square root; never zero, no infinity."""
    assert learning_rate(update, 512, 4_000) == pytest.approx(rate, rel=1e-4)


def test_peak_is_at_the_end_of_the_warm_up() -> None:
    rates = [learning_rate(update, 256, 50) for update in range(1, 200)]
    assert rates.index(max(rates)) == 49


def test_factor_multiplies() -> None:
    assert learning_rate(7, 256, 50, 2.0) == 2 * learning_rate(7, 256, 50)
