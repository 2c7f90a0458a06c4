"""The training loop (paper, section 5).

    for each epoch, for each update planned for it:
        for each micro-batch of the update:
            loss = summed loss of the micro-batch / target tokens of the whole update
            add its gradient
        step Adam at the schedule's rate for this update
        every so many updates: save, then validate

Dividing by the update's tokens, not the micro-batch's, makes any cut into micro-batches the same update. Dropout is drawn
from a seed made of (seed, update), so that a resumed run needs no generator's state: its place in the plan says it all.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from nmt.config import TrainingConfig
from nmt.data.batching import Batch, Plan
from nmt.devices import autocast
from nmt.errors import NmtError
from nmt.model.transformer import Transformer
from nmt.training.checkpoint import Progress
from nmt.training.loss import loss
from nmt.training.schedule import learning_rate

LOG_EVERY = 20  # updates


@dataclass(frozen=True)
class Interval:
    """What the log says of the updates since its last line."""

    update: int
    epoch: int
    loss: float  # label-smoothed, nats a target token
    learning_rate: float
    tokens_per_second: float  # target tokens
    tokens_per_update: float  # target tokens, the mean
    padding: float  # share of the cells that went through the model


class Trainer:
    """A model, its optimiser and its place in the plan."""

    def __init__(
        self, model: Transformer, plan: Plan, config: TrainingConfig, device: torch.device, precision: str
    ) -> None:
        self.model, self.plan, self.config, self.device, self.precision = model, plan, config, device, precision
        self.optimizer = torch.optim.Adam(
            model.parameters(),
            lr=0.0,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_epsilon,
            fused=True,
        )
        self.progress = Progress()

    def run(
        self,
        save: Callable[[], None],
        validate: Callable[[], None],
        log: Callable[[Interval], None],
        stop: Callable[[], bool],
    ) -> None:
        """Train to the last update, or until `stop` says so after one; either way what was done is saved.

        `save` writes a checkpoint; where it is due, `validate` follows and adds to the progress's validations, so that
        whatever happens in validation the checkpoint is there. `log` gets a line every LOG_EVERY updates. Raises NmtError
        where the loss is no longer a number.
        """
        progress, config = self.progress, self.config
        if self.validation_due():  # the run was interrupted between saving and validating
            validate()
        for pairs in self._updates():
            began = time.perf_counter()
            self.update(pairs)
            progress.seconds += time.perf_counter() - began
            if progress.update % LOG_EVERY == 0 or progress.update == config.steps:
                log(self._interval())
            stopping = stop()
            if self.validation_due():
                self._refuse_nonsense()
                save()
                validate()
            elif stopping:
                self._refuse_nonsense()
                save()
            if stopping:
                return

    def update(self, pairs: np.ndarray) -> None:
        """One update on these pairs of the plan. Raises NmtError where the loss is no number."""
        progress, config, model = self.progress, self.config, self.model
        progress.update += 1
        progress.position += 1
        seed = np.random.SeedSequence([config.seed, progress.update]).generate_state(1, np.uint64)
        torch.manual_seed(int(seed[0]))
        model.train()
        self.optimizer.zero_grad(set_to_none=True)
        tokens = self.plan.target_tokens(pairs)
        total = torch.zeros((), device=self.device)
        for micro_batch in self.plan.micro_batches(pairs, config.micro_batch_tokens):
            total += self.accumulate(self.plan.batch(micro_batch).to(self.device), tokens)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        self.optimizer.step()
        progress.loss += float(total) * tokens
        progress.updates += 1
        progress.target_tokens += tokens
        if not math.isfinite(progress.loss):  # at once: the next checkpoint may be hours away
            self._refuse_nonsense()

    def accumulate(self, batch: Batch, tokens: int) -> torch.Tensor:
        """Add the gradient of a micro-batch of an update with so many target tokens; returns its share of the loss."""
        self.progress.tokens += batch.tokens
        self.progress.cells += batch.source.numel() + batch.target_in.numel()
        with autocast(self.device, self.precision):
            states = self.model.decode(batch.target_in, self.model.encode(batch.source))
            share = loss(states, self.model.embedding.weight, batch.target_out, self.config.label_smoothing) / tokens
        share.backward()
        return share.detach()

    def learning_rate(self) -> float:
        """Of the update last begun."""
        return learning_rate(self.progress.update, self.model.config.d_model, self.config.warmup, self.config.factor)

    def _updates(self) -> Iterator[np.ndarray]:
        progress = self.progress
        while True:
            for pairs in self.plan.epoch(progress.epoch)[progress.position :]:
                if progress.update >= self.config.steps:
                    return
                yield pairs
            progress.epoch, progress.position = progress.epoch + 1, 0

    def validation_due(self) -> bool:
        update = self.progress.update
        on_the_grid = update > 0 and (update % self.config.validate_every == 0 or update == self.config.steps)
        return on_the_grid and update not in (number for number, _ in self.progress.validations[-1:])

    def _refuse_nonsense(self) -> None:
        """Raises NmtError where loss or weights are no longer numbers, before such weights replace good ones."""
        finite = math.isfinite(self.progress.loss) and all(
            bool(weights.isfinite().all()) for weights in self.model.parameters()
        )
        if not finite:
            raise NmtError(
                f"loss or weights are no longer numbers after update {self.progress.update}: lower the learning rate "
                "(factor) or lengthen the warm-up (warmup) under [training] in a --config file, and use --restart"
            )

    def _interval(self) -> Interval:
        progress = self.progress
        interval = Interval(
            progress.update,
            progress.epoch,
            progress.loss / progress.target_tokens,
            self.learning_rate(),
            progress.target_tokens / progress.seconds,
            progress.target_tokens / progress.updates,
            1 - progress.tokens / progress.cells,
        )
        progress.last_loss = interval.loss
        progress.loss, progress.updates, progress.seconds = 0.0, 0, 0.0
        progress.target_tokens, progress.tokens, progress.cells = 0, 0, 0
        return interval
