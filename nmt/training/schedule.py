"""The learning rate (paper, section 5.3). It depends on the update's number alone, so resuming cannot disturb it."""


def learning_rate(update: int, d_model: int, warmup: int, factor: float = 1.0) -> float:
    """factor x D^-0.5 x min(u^-0.5, u x warmup^-1.5) for update u, counted from 1."""
    return float(factor * d_model**-0.5 * min(update**-0.5, update * warmup**-1.5))
