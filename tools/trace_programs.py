"""The programs whose allocations are recorded: two networks in training.

Both are small in the number of their parameters and of ordinary size in what they
keep for the backward pass, so that a CPU trains them in a minute and yet sizes,
lifetimes and peaks are those of a training run on a GPU. What arrives varies from
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

    def forward(self, x, hidden):
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(x).view(shape).permute(2, 0, 3, 1, 4).unbind(0)
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

    def forward(self, x, hidden):
        x = x + self.attention(self.norm1(x), hidden)
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

    def forward(self, tokens):
        length = tokens.shape[1]
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = self.token(tokens) + self.position(torch.arange(length))
        for block in self.blocks:
            x = block(x, hidden)
        return self.head(self.norm(x))


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


def train_step(optimizer, loss, clipped=()):
    """Goes back from the loss and lets the optimizer take its step."""
    loss.backward()
    if clipped:
        nn.utils.clip_grad_norm_(clipped, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


PROGRAMS = {"convolution": convolution, "transformer": transformer}
