"""The programs whose allocations are recorded: two networks in training, and one that
generates text.

All are small in the number of their parameters and of ordinary size in what they
keep for the backward pass, so that a CPU runs them in a minute and yet sizes,
lifetimes and peaks are those of a run on a GPU. What arrives varies from
batch to batch, as it does in practice: the resolution of the images, the length of
the longest sentence, the last batch of an epoch that is not full. The contents of a
batch are random numbers; no allocation depends on them.
"""

import math

import torch
from torch import nn
from torch.nn import functional


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions around which the input takes a short cut."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False),
                nn.BatchNorm2d(channels),
            )

    def forward(self, x):
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def residual_network(classes):
    """The 18 layers of a residual network for images of any resolution."""
    layers = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels_in = 64
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers.append(ResidualBlock(channels_in, channels, stride))
        layers.append(ResidualBlock(channels, channels, 1))
        channels_in = channels
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes)]
    return nn.Sequential(*layers)


class Attention(nn.Module):
    """Causal attention of several heads, with the scores written out."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, hidden, cache=None):
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(x).view(shape).permute(2, 0, 3, 1, 4).unbind(0)
        if cache is not None:
            k, v = cache.extended(self, k, v)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        weights = functional.softmax(scores.masked_fill(hidden, -math.inf), dim=-1)
        y = self.dropout(weights) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class TransformerBlock(nn.Module):
    """Attention and a feed-forward layer, each behind its normalisation."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, x, hidden, cache=None):
        x = x + self.attention(self.norm1(x), hidden, cache)
        return x + self.feed_forward(self.norm2(x))


class LanguageModel(nn.Module):
    """A decoder-only transformer that predicts the next token."""

    def __init__(self, tokens, length, width, heads, layers, dropout=0.1):
        super().__init__()
        self.token = nn.Embedding(tokens, width)
        self.position = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(
            TransformerBlock(width, heads, dropout) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens, bias=False)

    def forward(self, tokens, cache=None):
        length = tokens.shape[1]
        before = 0 if cache is None else cache.length
        hidden = torch.ones(length, before + length, dtype=torch.bool).triu(before + 1)
        x = self.token(tokens) + self.position(torch.arange(before, before + length))
        for block in self.blocks:
            x = block(x, hidden, cache)
        if cache is not None:
            cache.length += length
            x = x[:, -1:]
        return self.head(self.norm(x))


class Cache:
    """Keys and values of the tokens so far, of each layer in one tensor that is made
    anew with each token: how most programs that generate text begin."""

    def __init__(self):
        self.length = 0
        self.kept = {}

    def extended(self, layer, keys, values):
        """Puts the new ones behind the old ones, and returns all."""
        if layer in self.kept:
            old_keys, old_values = self.kept[layer]
            keys = torch.cat((old_keys, keys), dim=2)
            values = torch.cat((old_values, values), dim=2)
        self.kept[layer] = keys, values
        return keys, values


def convolution():
    """Trains the residual network for two epochs at changing resolutions."""
    classes = 100
    model = residual_network(classes)
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    sizes = ((32, 128), (32, 96), (32, 160), (20, 112))

    def batch_loss(count, pixels):
        images = torch.randn(count, 3, pixels, pixels)
        labels = torch.randint(classes, (count,))
        return functional.cross_entropy(model(images), labels)

    for _ in range(2):
        model.train()
        for count, pixels in sizes:
            train_step(optimizer, batch_loss(count, pixels))
        model.eval()
        with torch.no_grad():
            batch_loss(64, 128).item()


def transformer():
    """Trains the language model on batches as long as their longest sentence."""
    tokens = 8192
    model = LanguageModel(tokens, length=256, width=256, heads=8, layers=6)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    lengths = (192, 248, 136, 256, 168, 224, 112, 240)

    for length in lengths:
        text = torch.randint(tokens, (8, length + 1))
        logits = model(text[:, :-1])
        loss = functional.cross_entropy(
            logits.reshape(-1, tokens), text[:, 1:].reshape(-1)
        )
        del logits
        train_step(optimizer, loss, list(model.parameters()))


def generation():
    """Answers requests one after the other, each a batch of prompts: reads the prompts
    at once, and then appends a token at a time to all of them."""
    tokens = 8192
    model = LanguageModel(tokens, length=512, width=512, heads=8, layers=4).eval()
    requests = ((4, 96, 14), (1, 310, 9), (8, 61, 16), (2, 200, 11), (6, 128, 12))

    with torch.no_grad():
        for batch, length, more in requests:
            cache = Cache()
            text = torch.randint(tokens, (batch, length))
            fresh = text
            for _ in range(more):
                fresh = model(fresh, cache)[:, -1].argmax(dim=-1, keepdim=True)
                text = torch.cat((text, fresh), dim=1)


def train_step(optimizer, loss, clipped=()):
    """Goes back from the loss and lets the optimizer take its step."""
    loss.backward()
    if clipped:
        nn.utils.clip_grad_norm_(clipped, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


PROGRAMS = {
    "convolution": convolution,
    "transformer": transformer,
    "generation": generation,
}
