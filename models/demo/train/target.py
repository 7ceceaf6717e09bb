"""The target model and its MTP head."""

import torch
from torch import nn

from layers import Layer, Norm, linear


def chat_mask(positions):
    """[B, 1, T, T] mask: causal, and only within the chat that starts where the position is 0."""
    chat = (positions == 0).cumsum(1)
    t = positions.shape[1]
    same = chat[:, :, None] == chat[:, None, :]
    return (same & torch.ones(t, t, dtype=torch.bool, device=positions.device).tril())[:, None]


class Target(nn.Module):
    """Token ids and in-chat positions [B, T] to final hidden states [B, T, hidden] and tapped layer outputs."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        nn.init.normal_(self.embed_tokens.weight, std=shape.hidden**-0.5)
        self.layers = nn.ModuleList(Layer(shape, shape.full(i)) for i in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.eps)

    def forward(self, ids, positions, taps=()):
        x, mask, tapped = self.embed_tokens(ids), chat_mask(positions), []
        for i, layer in enumerate(self.layers):
            x = layer(x, positions, mask)
            if i in taps:
                tapped.append(x)
        return self.norm(x), torch.cat(tapped, -1) if tapped else None

    def logits(self, hidden):
        """Scores over the padded vocabulary by the tied head."""
        return nn.functional.linear(hidden, self.embed_tokens.weight)


class Mtp(nn.Module):
    """Predicts the token after next from the next token and the target's final hidden state."""

    def __init__(self, shape):
        super().__init__()
        self.pre_fc_norm_embedding = Norm(shape.hidden, shape.eps)
        self.pre_fc_norm_hidden = Norm(shape.hidden, shape.eps)
        self.fc = linear(2 * shape.hidden, shape.hidden)
        self.layers = nn.ModuleList([Layer(shape, True)])
        self.norm = Norm(shape.hidden, shape.eps)

    def forward(self, embedded, hidden, positions, mask):
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)], -1))
        return self.norm(self.layers[0](x, positions, mask))
