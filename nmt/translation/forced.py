"""What the model says of a given translation: one teacher-forced pass, with every token's log-probability and attention."""

import torch
from torch.nn import functional as F

from nmt.ids import BOS, EOS
from nmt.model.transformer import Transformer, padded
from nmt.translation.alignment import aligning_layer
from nmt.translation.hypothesis import Forced, Sources


@torch.no_grad()
def force(model: Transformer, sources: Sources, targets: Sources) -> list[Forced]:
    """The targets, given as ids without BOS and EOS as the sources are, in one batch; in the precision around it.

    The attention is that of `aligning_layer` to the source, the mean of its heads. Row t is of the step that predicts piece t.
    """
    device = model.embedding.weight.device
    cross_attention = model.decoder[aligning_layer(model.config.layers)].cross_attention
    with cross_attention.watched() as seen:  # type: ignore[operator, union-attr]
        memory = model.encode(padded([[*source, EOS] for source in sources], device))
        states = model.decode(padded([[BOS, *target] for target in targets], device), memory)
    outputs = padded([[*target, EOS] for target in targets], device)
    with torch.autocast(device.type, enabled=False):
        rows = [  # one by one: all at once would be as many logits as a whole search has
            F.linear(state, model.embedding.weight).log_softmax(-1).gather(1, output.unsqueeze(1)).squeeze(1)
            for state, output in zip(states.float(), outputs, strict=True)
        ]
    log_p = torch.stack(rows).tolist()
    [weights] = seen
    attention = weights.float().mean(1).cpu().numpy()
    return [
        Forced(row[: len(target) + 1], maps[: len(target) + 1, : len(source) + 1].copy())
        for row, maps, source, target in zip(log_p, attention, sources, targets, strict=True)
    ]
