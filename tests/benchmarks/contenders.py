"""The contenders of training.py: one model and its training loop, in a process that computes only when it is told to.

    PYTHON -m tests.benchmarks.contenders NAME PRECISION FOLDER

FOLDER holds workload.pt (sizes, recipe, the updates as padded batches) and pairs.pickle (the same pairs before they are
batched, for nmt alone). A request is a number of updates to make. Peers run under a Python that lacks what nmt needs, so nmt is
imported for nmt's own model only.
"""

import importlib.metadata
import itertools
import math
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.benchmarks.turns import open_channel, peak_memory, serve

PAD, UNK, BOS, EOS = 0, 1, 2, 3  # as in nmt/ids.py
JOEY_UNK, JOEY_PAD = 0, 1  # the other way round
LONGEST = 1_024  # positions

Batch = tuple[Tensor, Tensor, Tensor]  # source [B, S], decoder input [B, T], expected output [B, T]
Loss = Callable[[Batch], Tensor]  # label-smoothed, summed over the target tokens, in nats
Contender = tuple[nn.Module, Loss, Callable[[], None]]  # the last makes the next update


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """[B, T, V], [B, T] -> a scalar."""
    return F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="sum"
    )


def sinusoids(d_model: int) -> Tensor:
    """The table of positions, sines and cosines in turn: [LONGEST, D]."""
    angles = torch.arange(LONGEST).unsqueeze(1) * 10_000.0 ** (-torch.arange(0, d_model, 2).double() / d_model)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).float()


def nmt_contender(workload: dict[str, Any], precision: str, folder: Path) -> Contender:
    """The tool's own update, batch making included."""
    from nmt.config import PRESETS
    from nmt.data.batching import Plan
    from nmt.model.transformer import Transformer
    from nmt.training.trainer import Trainer

    config = PRESETS["tiny"].training.model_copy(update=workload["recipe"])
    model = Transformer(PRESETS["tiny"].model.model_copy(update=workload["sizes"]), workload["vocabulary_size"])
    plan = Plan(pickle.loads((folder / "pairs.pickle").read_bytes()), config.tokens_per_update, config.seed)
    trainer = Trainer(model, plan, config, torch.device("cpu"), precision)
    updates = itertools.chain.from_iterable(map(plan.epoch, itertools.count()))

    def loss(batch: Batch) -> Tensor:
        source, target_in, target_out = batch
        logits = F.linear(model.decode(target_in, model.encode(source)), model.embedding.weight)
        return cross_entropy(logits, target_out, config.label_smoothing)

    return model, loss, lambda: trainer.update(next(updates))


class TorchTransformer(nn.Module):
    """The 2017 model around `torch.nn.Transformer`, as its documentation would have one write it."""

    positions: Tensor

    def __init__(self, sizes: dict[str, Any], vocabulary_size: int) -> None:
        super().__init__()
        d_model, dropout = sizes["d_model"], sizes["dropout"]
        self.embedding = nn.Embedding(vocabulary_size, d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.register_buffer("positions", sinusoids(d_model), persistent=False)
        self.dropout = nn.Dropout(dropout)
        layers = sizes["layers"]
        self.transformer = nn.Transformer(
            d_model, sizes["heads"], layers, layers, sizes["d_ff"], dropout, layer_norm_eps=1e-6, batch_first=True
        )
        self.transformer.encoder.norm = self.transformer.decoder.norm = None  # the paper has none after the stacks

    def embed(self, ids: Tensor) -> Tensor:
        scaled = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(scaled + self.positions[: ids.size(1)])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """[B, S], [B, T] -> logits [B, T, V]."""
        causal = torch.ones(target.size(1), target.size(1), dtype=torch.bool).triu(1)
        states = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=source == PAD,
            tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=source == PAD,
        )
        return F.linear(states, self.embedding.weight)


def torch_transformer(workload: dict[str, Any]) -> tuple[nn.Module, Loss]:
    model = TorchTransformer(workload["sizes"], workload["vocabulary_size"])
    return model, lambda batch: cross_entropy(model(*batch[:2]), batch[2], workload["recipe"]["label_smoothing"])


def marian_model(workload: dict[str, Any]) -> Any:
    """Dropout where the paper has it, as in nmt. LayerNorm's epsilon is 1e-5, sines come before cosines: no difference
    in work.
    """
    from transformers import MarianConfig, MarianMTModel

    sizes = workload["sizes"]
    config = MarianConfig(
        vocab_size=workload["vocabulary_size"], d_model=sizes["d_model"], max_position_embeddings=LONGEST,
        encoder_layers=sizes["layers"], decoder_layers=sizes["layers"],
        encoder_attention_heads=sizes["heads"], decoder_attention_heads=sizes["heads"],
        encoder_ffn_dim=sizes["d_ff"], decoder_ffn_dim=sizes["d_ff"],
        dropout=sizes["dropout"], activation_function="relu", scale_embedding=True, init_std=sizes["d_model"] ** -0.5,
        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=BOS, forced_eos_token_id=EOS,
        attn_implementation="sdpa",
    )  # fmt: skip
    return MarianMTModel(config)


def marian(workload: dict[str, Any]) -> tuple[nn.Module, Loss]:
    model = marian_model(workload)

    def loss(batch: Batch) -> Tensor:
        source, target_in, target_out = batch
        logits = model(source, attention_mask=source != PAD, decoder_input_ids=target_in, use_cache=False).logits
        return cross_entropy(logits, target_out, workload["recipe"]["label_smoothing"])

    return model, loss


def joey_model(workload: dict[str, Any]) -> Any:
    """Its one dropout falls on attention weights and inside the feed-forward layers too."""
    from joeynmt.model import build_model  # type: ignore[import-not-found]
    from joeynmt.vocabulary import Vocabulary  # type: ignore[import-not-found]

    sizes = workload["sizes"]
    special = SimpleNamespace(
        unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", sep_token=None, lang_tags=[],
        unk_id=JOEY_UNK, pad_id=JOEY_PAD, bos_id=BOS, eos_id=EOS, sep_id=None,
    )  # fmt: skip
    vocabulary = Vocabulary([str(number) for number in range(4, workload["vocabulary_size"])], special)
    stack = {
        "type": "transformer", "num_layers": sizes["layers"], "num_heads": sizes["heads"],
        "hidden_size": sizes["d_model"], "ff_size": sizes["d_ff"], "dropout": sizes["dropout"], "layer_norm": "post",
        "embeddings": {"embedding_dim": sizes["d_model"], "scale": True, "dropout": sizes["dropout"]},
    }  # fmt: skip
    config = {"encoder": stack, "decoder": stack, "tied_embeddings": True, "tied_softmax": True}
    return build_model(config, vocabulary, vocabulary)


def joey(workload: dict[str, Any]) -> tuple[nn.Module, Loss]:
    """With its own batches and its own loss: a divergence, lower than the cross-entropy by the entropy of the smoothed
    targets.
    """
    from joeynmt.batch import Batch as JoeyBatch  # type: ignore[import-not-found]

    model = joey_model(workload)
    model.loss_function = ("crossentropy", workload["recipe"]["label_smoothing"])

    def loss(batch: Batch) -> Tensor:
        source, target_in, target_out = (torch.where(ids == PAD, JOEY_PAD, ids) for ids in batch)
        target = torch.cat([target_in[:, :1], target_out], 1)
        lengths, indices = (source != JOEY_PAD).sum(1), torch.arange(len(source))
        made = JoeyBatch(source, lengths, None, target, None, indices, torch.device("cpu"), JOEY_PAD, EOS)
        made.sort_by_src_length()
        total: Tensor = model(return_type="loss", **vars(made))[0]
        return total

    return model, loss


def peer_contender(build: Callable[[dict[str, Any]], tuple[nn.Module, Loss]]) -> Callable[..., Contender]:
    """A model in the plain training loop, over the batches of the workload."""

    def contender(workload: dict[str, Any], precision: str, _folder: Path) -> Contender:
        model, loss = build(workload)
        warmup, scale = workload["recipe"]["warmup"], workload["sizes"]["d_model"] ** -0.5
        optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: scale * min((step + 1) ** -0.5, (step + 1) * warmup**-1.5)
        )
        updates = iter(workload["updates"])

        def update() -> None:
            model.train()
            optimizer.zero_grad()
            batches, tokens = next(updates)
            for batch in batches:
                with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                    share = loss(batch) / tokens
                share.backward()
            optimizer.step()
            schedule.step()

        return model, loss, update

    return contender


CONTENDERS: dict[str, tuple[str, Callable[..., Contender]]] = {  # the package that it comes in, and how it is built
    "nmt": ("nmt", nmt_contender),
    "torch.nn.Transformer": ("torch", peer_contender(torch_transformer)),
    "Hugging Face MarianMT": ("transformers", peer_contender(marian)),
    "Joey NMT": ("joeynmt", peer_contender(joey)),
}


def main() -> None:
    name, precision, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    answer = open_channel()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(1)
    package, build = CONTENDERS[name]
    workload = torch.load(folder / "workload.pt")
    model, loss, update = build(workload, precision, folder)

    def train(updates: int) -> dict[str, Any]:
        for _ in range(updates):
            update()
        return {}

    parameters = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    answer(version=importlib.metadata.version(package), parameters=parameters, memory=peak_memory())
    serve(answer, train)
    model.eval()
    batches, tokens = workload["updates"][0]
    with torch.no_grad():
        answer(loss=sum(loss(batch).item() for batch in batches) / tokens)


if __name__ == "__main__":
    main()
