"""Five small models, one for each use that the HadarE paper's Table IV names, on data made here.

Nothing is downloaded: digits come with scikit-learn, text is this project's own documents, ratings
and sentences are generated. Everything that is random follows from a seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

ROOT = Path(__file__).parents[1]

Batch = Callable[[torch.Generator], tuple[Tensor, ...]]
Loss = Callable[[nn.Module, tuple[Tensor, ...]], Tensor]


@dataclass(frozen=True)
class Model:
    """A model, its data and its measure of quality.

    Attributes:
        name: Of the model.
        metric: Name of the value that `measure` gives.
        larger: Whether more of it is better.
        steps: Steps of a whole training.
        rate: The learning rate that somebody would choose for one node.
        network: Makes it, from torch's random numbers.
        optimiser: Makes the optimiser from the weights and the rate.
        batch: Draws a mini-batch.
        loss: Loss of a mini-batch.
        measure: Of the network, on data that is not trained on.
    """

    name: str
    metric: str
    larger: bool
    steps: int
    rate: float
    network: Callable[[], nn.Module]
    optimiser: Callable[[Any, float], torch.optim.Optimizer]
    batch: Batch
    loss: Loss
    measure: Callable[[nn.Module], float]


def _sgd(parameters: Any, rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9)


def _adam(parameters: Any, rate: float) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=rate)


def _drawn(count: int, size: int, random: torch.Generator) -> Tensor:
    return torch.randint(count, (size,), generator=random)


def _digits(seed: int) -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    pixels = torch.tensor(images[order] / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    return pixels, torch.tensor(labels[order])


def images(noise: float = 0.5, batch: int = 16, steps: int = 600) -> Model:
    """A convolutional network on digits with so much noise that it cannot be always right."""
    pixels, labels = _digits(7)
    known, random = 1_200, torch.Generator().manual_seed(7)
    held_out = pixels[known:] + noise * torch.randn(pixels[known:].shape, generator=random)

    def draw(random: torch.Generator) -> tuple[Tensor, ...]:
        pick = _drawn(known, batch, random)
        blurred = pixels[pick] + noise * torch.randn(batch, 1, 8, 8, generator=random)
        return blurred, labels[pick]

    def network() -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(128, 10)),
        )

    def measure(net: nn.Module) -> float:
        return 100.0 * (net(held_out).argmax(1) == labels[known:]).double().mean().item()

    def loss(net: nn.Module, drawn: tuple[Tensor, ...]) -> Tensor:
        return functional.cross_entropy(net(drawn[0]), drawn[1])

    return Model(
        "image classification",
        *("accuracy %", True, steps, 0.02, network, _sgd, draw, loss, measure),
    )


class _Characters(nn.Module):
    def __init__(self, letters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(letters, 32)
        self.recurrent = nn.GRU(32, 96, batch_first=True)
        self.out = nn.Linear(96, letters)

    def forward(self, text: Tensor) -> Tensor:
        return self.out(self.recurrent(self.embedding(text))[0])


def characters(batch: int = 16, length: int = 48, steps: int = 912) -> Model:
    """A recurrent language model on the characters of this project's documents."""
    files = sorted((ROOT / "docs").rglob("*.md"))
    text = "\n".join(file.read_text() for file in files if "experiments" not in file.parts)
    codes = np.frombuffer(text.encode("ascii", "replace"), dtype=np.uint8).astype(np.int64)
    letters, numbered = np.unique(codes, return_inverse=True)
    numbers = torch.tensor(numbered)
    known = len(numbers) * 9 // 10
    starts = torch.linspace(known, len(numbers) - length - 1, 96).long()

    def windows(begin: Tensor) -> tuple[Tensor, ...]:
        rows = numbers[begin[:, None] + torch.arange(length + 1)]
        return rows[:, :-1], rows[:, 1:]

    def draw(random: torch.Generator) -> tuple[Tensor, ...]:
        return windows(_drawn(known - length - 1, batch, random))

    def loss(net: nn.Module, drawn: tuple[Tensor, ...]) -> Tensor:
        return functional.cross_entropy(net(drawn[0]).flatten(0, 1), drawn[1].flatten())

    def measure(net: nn.Module) -> float:
        return loss(net, windows(starts)).item()

    return Model(
        "language model",
        *("loss", False, steps, 2e-3, lambda: _Characters(len(letters)), _adam),
        *(draw, loss, measure),
    )


class _Tastes(nn.Module):
    def __init__(self, users: int, items: int) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(users, 16), nn.Embedding(items, 16)
        self.out = nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        user, item = self.user(users), self.item(items)
        return self.out(torch.cat([user, item, user * item], 1)).squeeze(1)


def ratings(batch: int = 128, steps: int = 1_200) -> Model:
    """A neural recommendation system on ratings that follow from four tastes, and noise."""
    users, items, count = 200, 150, 24_000
    numbers = np.random.default_rng(11)
    tastes, kinds = numbers.normal(size=(users, 4)), numbers.normal(size=(items, 4))
    pairs = np.argwhere(np.ones((users, items)))[numbers.permutation(users * items)[:count]]
    true = (tastes[pairs[:, 0]] * kinds[pairs[:, 1]]).sum(1) / 2 + numbers.normal(0, 0.4, count)
    rows, values = torch.tensor(pairs), torch.tensor(true, dtype=torch.float32)
    known = count * 9 // 10

    def draw(random: torch.Generator) -> tuple[Tensor, ...]:
        pick = _drawn(known, batch, random)
        return rows[pick, 0], rows[pick, 1], values[pick]

    def loss(net: nn.Module, drawn: tuple[Tensor, ...]) -> Tensor:
        return functional.mse_loss(net(drawn[0], drawn[1]), drawn[2])

    def measure(net: nn.Module) -> float:
        return loss(net, (rows[known:, 0], rows[known:, 1], values[known:])).item()

    return Model(
        "recommendation",
        *("MSE", False, steps, 2e-2, lambda: _Tastes(users, items), _adam, draw, loss, measure),
    )


_ENGLISH = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_ENGLISH_TENS = ["-", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy"]
_ENGLISH_TENS += ["eighty", "ninety"]
_GERMAN = ["null", "eins", "zwei", "drei", "vier", "fuenf", "sechs", "sieben", "acht", "neun"]
_GERMAN_TENS = ["-", "zehn", "zwanzig", "dreissig", "vierzig", "fuenfzig", "sechzig"]
_GERMAN_TENS += ["siebzig", "achtzig", "neunzig"]


def _spoken(number: int) -> tuple[list[str], list[str]]:
    """A number in English and in German words, in which the ones come before the tens."""
    hundreds, tens, ones = number // 100 % 10, number // 10 % 10, number % 10
    english = [_ENGLISH[number // 1000], "thousand", _ENGLISH[hundreds], "hundred"]
    german = [_GERMAN[number // 1000], "tausend", _GERMAN[hundreds], "hundert"]
    if ones or not tens:
        german.append(_GERMAN[ones])
    if tens:
        english.append(_ENGLISH_TENS[tens])
        german += ["und", _GERMAN_TENS[tens]] if ones else [_GERMAN_TENS[tens]]
    if ones or not tens:
        english.append(_ENGLISH[ones])
    return english, german


class _Translator(nn.Module):
    def __init__(self, words: int, width: int = 32) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.zeros(16, width))
        self.transformer = nn.Transformer(width, 4, 1, 1, 64, 0.0, batch_first=True)
        self.out = nn.Linear(width, words)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        ahead = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        read = self.words(source) + self.places[: source.shape[1]]
        said = self.words(target) + self.places[: target.shape[1]]
        return self.out(self.transformer(read, said, tgt_mask=ahead))


def translation(batch: int = 32, steps: int = 360) -> Model:
    """A transformer that translates the names of numbers from English to German."""
    pairs = [_spoken(number) for number in range(10_000)]
    vocabulary = sorted({word for pair in pairs for words in pair for word in words})
    index = {word: place + 2 for place, word in enumerate(vocabulary)}  # 0 pads, 1 begins

    def rows(which: int, length: int) -> Tensor:
        coded = [[index[word] for word in pair[which]] for pair in pairs]
        return torch.tensor([row + [0] * (length - len(row)) for row in coded])

    sources, targets = rows(0, 6), functional.pad(rows(1, 8), (1, 0), value=1)
    order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(5))
    known, held_out = order[:9_500], order[9_500:]

    def draw(random: torch.Generator) -> tuple[Tensor, ...]:
        pick = known[_drawn(len(known), batch, random)]
        return sources[pick], targets[pick]

    def loss(net: nn.Module, drawn: tuple[Tensor, ...]) -> Tensor:
        said = net(drawn[0], drawn[1][:, :-1])
        return functional.cross_entropy(said.flatten(0, 1), drawn[1][:, 1:].flatten())

    def measure(net: nn.Module) -> float:
        source, target = sources[held_out], targets[held_out]
        right = net(source, target[:, :-1]).argmax(2) == target[:, 1:]
        return 100.0 * right[target[:, 1:] > 0].double().mean().item()

    return Model(
        "translation",
        *("accuracy %", True, steps, 1e-3, lambda: _Translator(len(index) + 2), _adam),
        *(draw, loss, measure),
    )


def restoration(noise: float = 0.5, batch: int = 16, steps: int = 600) -> Model:
    """An encoder and decoder that takes the noise from images of digits."""
    pixels, _ = _digits(9)
    known, random = 1_200, torch.Generator().manual_seed(9)
    held_out = pixels[known:] + noise * torch.randn(pixels[known:].shape, generator=random)

    def draw(random: torch.Generator) -> tuple[Tensor, ...]:
        clean = pixels[_drawn(known, batch, random)]
        return clean + noise * torch.randn(clean.shape, generator=random), clean

    def network() -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.ConvTranspose2d(32, 16, 2, stride=2), nn.ReLU()),
            nn.ConvTranspose2d(16, 1, 2, stride=2),
        )

    def loss(net: nn.Module, drawn: tuple[Tensor, ...]) -> Tensor:
        return functional.mse_loss(net(drawn[0]), drawn[1])

    def measure(net: nn.Module) -> float:
        return loss(net, (held_out, pixels[known:])).item()

    return Model(
        "image to image", *("MSE", False, steps, 2e-3, network, _adam, draw, loss, measure)
    )


MODELS: dict[str, Callable[..., Model]] = {
    "images": images,
    "characters": characters,
    "ratings": ratings,
    "translation": translation,
    "restoration": restoration,
}
"""By the names on the command line."""
