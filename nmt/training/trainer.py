"""The training loop (paper, section 5).

    for each epoch, for each update planned for it:
        for each micro-batch of the update, whose pairs the ranks share:
            loss = summed loss of the micro-batch / target tokens of the whole update
            add its gradient
        sum the gradients over the ranks
        step Adam at the schedule's rate for this update

Dividing by the update's tokens, not the micro-batch's, makes every cut into micro-batches and ranks the same update. Dropout is
drawn from a seed made of (seed, update, rank, micro-batch), so a resumed run needs no generator state, only its place in the
plan. On a CPU two micro-batches are computed side by side, see lanes.py. On a GPU an update never waits for the device, whose
work is prepared ahead: the loss is read only when it is logged.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nmt.config import DEFAULT_MICRO_BATCH, TrainingConfig
from nmt.data.batching import FEWEST_TOKENS, Batch, Plan, micro_batches
from nmt.devices import autocast
from nmt.errors import EverywhereError, is_out_of_memory
from nmt.event_log import Event
from nmt.lanes import Lanes
from nmt.model.dropout import drawn_from, word_dropout
from nmt.model.network import Network
from nmt.training.ahead import ahead
from nmt.training.checkpoint import Progress
from nmt.training.loss import loss, r_drop_loss
from nmt.training.ranks import Ranks
from nmt.training.schedule import learning_rate

LOG_EVERY = 20  # updates
MIN_MICRO_BATCH = 32  # tokens; halving a smaller one frees nothing
MIN_CELLS_ON_GPU = 4_096  # target cells; below them a GPU prefers more padding to another micro-batch


@dataclass(frozen=True)
class Share:
    """This rank's part of an update, cut into micro-batches of at most `size` cells per side."""

    size: int
    batches: list[Batch]
    tokens: int  # target tokens of the whole update, on all ranks


class Trainer:
    """A model, its optimiser and its place in the plan of updates."""

    def __init__(
        self,
        model: Network,
        plan: Plan,
        config: TrainingConfig,
        device: torch.device,
        precision: str,
        ranks: Ranks | None = None,
        compiled: bool = False,
    ) -> None:
        """`compiled`: whether PyTorch compiles the layers and the loss, which pays off on a GPU."""
        self.model, self.plan, self.config, self.device, self.precision = model, plan, config, device, precision
        self.ranks = ranks or Ranks()
        self.lanes = Lanes(device)
        self.optimizer = torch.optim.Adam(
            model.parameters(),
            lr=0.0,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_epsilon,
            fused=True,
        )
        for weights in model.parameters():  # allocated now, so that all remaining memory is for micro-batches
            self.optimizer.state[weights] = {
                "step": torch.zeros((), device=device),
                "exp_avg": torch.zeros_like(weights),
                "exp_avg_sq": torch.zeros_like(weights),
            }
        self.loss = loss
        if compiled:
            # Two sizes that are equal in the first batch differ in the next.
            torch.fx.experimental._config.use_duck_shape = False
            self.loss = torch.compile(loss, dynamic=True)
            for layer in model.layers:
                layer.compile(dynamic=True)  # in place; layers of a kind share the compiled code
        self.begin(Progress(micro_batch_tokens=config.micro_batch_tokens or DEFAULT_MICRO_BATCH))

    def begin(self, progress: Progress) -> None:
        """Continue the run from here."""
        self.progress = progress
        self.summed_loss = torch.tensor(progress.loss, dtype=torch.float64, device=self.device)

    def updates(self) -> Iterator[None]:
        """Train, yielding after every update, until the last one or until patience ends. Raises NmtError as `update` does.

        The time between yields, in which the caller saves or validates, does not count as training time.
        """
        progress = self.progress
        if self.finished():
            return
        began = time.perf_counter()
        for (epoch, pairs), share in ahead(self.plan.updates(progress.epoch, progress.position), self.cut):
            if epoch != progress.epoch:
                progress.epoch, progress.position = epoch, 0
            self.update(pairs, share)
            progress.seconds += time.perf_counter() - began
            yield
            if self.finished():
                return
            began = time.perf_counter()

    def update(self, pairs: np.ndarray, share: Share | None = None) -> None:
        """One update on these pairs of the plan's present epoch; `share` is this rank's part, if it was cut ahead.

        If any device runs out of memory, all ranks halve their micro-batches and the update starts over: nothing is lost.
        Raises EverywhereError where the loss is not finite, or where even the smallest micro-batch does not fit.
        """
        progress = self.progress
        progress.update += 1
        progress.position += 1
        share, sums = share or self.cut((progress.epoch, pairs)), None
        while sums is None:
            if share.size != progress.micro_batch_tokens:
                share = self.cut((progress.epoch, pairs))
            sums = self._sums(share)
            if self.ranks.any(sums is None):
                sums = None
                self._halve()
        self.ranks.sum(sums)
        part, *gradients = sums
        for weights, gradient in zip(self.model.parameters(), gradients, strict=True):
            weights.grad = gradient
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        self.optimizer.step()
        self.summed_loss += part.double() * share.tokens
        progress.updates += 1
        progress.target_tokens += share.tokens
        progress.tokens += sum(batch.tokens for batch in share.batches)
        progress.cells += sum(batch.cells for batch in share.batches)
        if self.device.type == "cpu" or self.log_due():  # on a GPU, reading it waits for the device
            self.check_finite()

    def cut(self, planned: tuple[int, np.ndarray]) -> Share:
        """This rank's share of an update, given with its epoch: every n-th pair of each micro-batch, for all n ranks alike.

        The largest micro-batch comes first: it shows at once whether the memory suffices, and the lanes end together.
        """
        size, ranks, on_gpu = self.progress.micro_batch_tokens, self.ranks, self.device.type == "cuda"
        fewest = MIN_CELLS_ON_GPU * ranks.count if on_gpu else FEWEST_TOKENS
        pairs = self.plan.take(*planned)
        cuts = micro_batches(pairs, size * ranks.count, fewest)
        mine = [cut[ranks.rank :: ranks.count] for cut in cuts if len(cut) > ranks.rank]
        batches = sorted((Batch.of(pairs.take(cut)) for cut in mine), key=lambda batch: batch.cells, reverse=True)
        return Share(size, [batch.pinned() for batch in batches] if on_gpu else batches, int(pairs.targets.sum()))

    def _sums(self, share: Share) -> list[Tensor] | None:
        """The loss of this rank's share and the gradient of each parameter, or None where memory ran out.

        Dropout and the order in which gradients are summed do not depend on the number of lanes.
        """
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        torch.manual_seed(self._seed())  # for a GPU's dropout
        sums: list[Tensor] = []
        try:
            for part in self.lanes.map(
                lambda numbered: self.backward(numbered[1], share.tokens, numbered[0]), enumerate(share.batches)
            ):
                if sums:
                    torch._foreach_add_(sums, part)
                sums = sums or part
                del part  # holds at most two sets at once
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return None
        # The share may be empty.
        return sums or [self.model.output.new_zeros(()), *map(torch.zeros_like, self.model.parameters())]

    def _seed(self, *more: int) -> int:
        seeds = [self.config.seed, self.progress.update, self.ranks.rank, *more]
        return int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0])

    def backward(self, batch: Batch, tokens: int, number: int = 0) -> list[Tensor]:
        """Forward and backward pass of this rank's n-th micro-batch, in an update of `tokens` target tokens.

        Returns its share of the update's loss, then the gradient of each parameter.
        """
        config, batch = self.config, batch.to(self.device)
        with drawn_from(self._seed(number)), autocast(self.device, self.precision):
            passes = 2 if config.r_drop else 1  # side by side, each with dropout of its own
            source, target = (ids.repeat(passes, 1) for ids in (batch.source, batch.target_in))
            memory = self.model.encode(word_dropout(source, config.word_dropout))
            states = self.model.decode(word_dropout(target, config.word_dropout), memory)
            matrix, smoothing = self.model.output, config.label_smoothing
            if config.r_drop:
                share = r_drop_loss(states, matrix, batch.target_out, smoothing, config.r_drop) / tokens
            else:
                share = self.loss(states, matrix, batch.target_out, smoothing) / tokens
            if config.source_loss:
                share = share + self.loss(memory.states, matrix, source[:, 1:], smoothing) / (passes * tokens)
        return [share.detach(), *torch.autograd.grad(share, list(self.model.parameters()))]

    def _halve(self) -> None:
        progress = self.progress
        if progress.micro_batch_tokens < 2 * MIN_MICRO_BATCH:
            raise EverywhereError("out of memory even with the smallest micro-batches; train a smaller model")
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        progress.micro_batch_tokens //= 2

    def learning_rate(self) -> float:
        """The rate of the current update."""
        return learning_rate(self.progress.update, self.model.config.d_model, self.config.warmup, self.config.factor)

    def finished(self) -> bool:
        """Whether the last update is done, or patience has ended."""
        return self.progress.update >= self.config.steps or self.progress.stale(self.config.patience)

    def done(self) -> bool:
        """Whether nothing of the run is left to do, including its last validation."""
        return self.finished() and not self.validation_due()

    def log_due(self) -> bool:
        """Whether the log gets a line after this update."""
        return self.progress.update % LOG_EVERY == 0 or self.progress.update == self.config.steps

    def validation_due(self) -> bool:
        """Whether this update's checkpoint is to be validated, and has not been."""
        update = self.progress.update
        on_the_grid = update > 0 and (update % self.config.validate_every == 0 or update == self.config.steps)
        return on_the_grid and update not in (number for number, _ in self.progress.validations[-1:])

    def check_finite(self, with_state: bool = False) -> None:
        """Copy the summed loss from the device. Raises EverywhereError where it is not finite; or weights or moments, if asked.

        Moments alone can be infinite: the square of a large gradient overflows, and its weight then never changes again.
        """
        self.progress.loss = float(self.summed_loss)
        tensors = [self.summed_loss]
        if with_state:
            tensors += self.model.parameters()
            tensors += (moment for state in self.optimizer.state.values() for moment in state.values())
        if not all(bool(tensor.isfinite().all()) for tensor in tensors):
            raise EverywhereError(  # every rank has the same sum of gradients
                f"loss, weights or moments are no longer finite after update {self.progress.update}: lower the learning rate "
                "(factor) or lengthen the warm-up (warmup) under [training] in a --config file, and use --restart"
            )

    def interval(self) -> Event:
        """The line of the log about the updates since the last one; the next begins here."""
        progress = self.progress
        progress.last_loss = progress.loss / progress.target_tokens
        event = {
            "event": "training",
            "step": progress.update,
            "epoch": progress.epoch,
            "loss": progress.last_loss,  # label-smoothed, nats a target token
            "lr": self.learning_rate(),
            "tokens_per_second": round(progress.target_tokens / progress.seconds),  # target tokens, all ranks together
            "tokens_per_update": round(progress.target_tokens / progress.updates),  # target tokens
            "padding": round(1 - progress.tokens / max(progress.cells, 1), 4),  # share of all cells computed on this rank
        }
        progress.loss, progress.updates, progress.seconds = 0.0, 0, 0.0
        progress.target_tokens, progress.tokens, progress.cells = 0, 0, 0
        self.summed_loss.zero_()
        return event
