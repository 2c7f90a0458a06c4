"""The recurrent network beside a loop over `torch.nn.GRUCell` that follows Bahdanau et al. 2015, appendix A."""

import torch
from torch import nn

from nmt.config import ModelConfig
from nmt.ids import BOS, EOS, PAD
from nmt.model.rnn import RecurrentNetwork


def cell_of(gru: nn.GRU, suffix: str) -> nn.GRUCell:
    cell = nn.GRUCell(gru.input_size, gru.hidden_size)
    weights = {name.removesuffix(suffix): value for name, value in gru.named_parameters() if name.endswith(suffix)}
    cell.load_state_dict(weights)
    return cell


@torch.no_grad()
def test_states_equal_a_loop_over_cells() -> None:
    torch.manual_seed(1)
    model = RecurrentNetwork(ModelConfig(architecture="rnn", layers=1, d_model=16, heads=2, dropout=0.0), 40).eval()
    for parameter in model.parameters():
        parameter.copy_(torch.randn_like(parameter) * 0.3)
    sources = [[15, 20, 25, 30, EOS], [31, 32, EOS]]
    targets = torch.tensor([[BOS, 17, 18, 19], [BOS, 33, 34, 35]])
    ids = nn.utils.rnn.pad_sequence(list(map(torch.tensor, sources)), batch_first=True, padding_value=PAD)
    found = model.decode(targets, model.encode(ids))
    forward, backward = (cell_of(model.encoder, f"_l0{end}") for end in ("", "_reverse"))
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        words = model.embedding.weight[source]
        state, right = torch.zeros(1, 16), []
        for word in words:
            state = forward(word.unsqueeze(0), state)
            right.append(state)
        state, left = torch.zeros(1, 16), list[torch.Tensor]()
        for word in words.flip(0):
            state = backward(word.unsqueeze(0), state)
            left.insert(0, state)
        annotations = torch.cat([torch.cat(right), torch.cat(left)], 1)
        state = torch.tanh(model.bridge(state))
        for step, token in enumerate(target):
            word = model.embedding.weight[token].unsqueeze(0)
            scores = [
                model.attention.score(torch.tanh(model.attention.query(state) + model.attention.key(h))) for h in annotations
            ]
            context = torch.softmax(torch.cat(scores, 1), 1) @ annotations
            state = model.decoder(torch.cat([word, context], 1), state)
            expected = torch.tanh(model.readout(torch.cat([state, word, context], 1)))
            torch.testing.assert_close(found[row, step], expected[0], atol=1e-6, rtol=0)
