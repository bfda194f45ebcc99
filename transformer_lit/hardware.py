"""5.2 Hardware and schedule.

From book/05_2_hardware.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import contextlib
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from transformer_lit.config import TransformerConfig
from transformer_lit.model import count_parameters


# 05_2_hardware: What one step costs
def check_positive(**values: float) -> None:
    """Raise a ValueError that names the first value that is not above 0."""
    for name, value in values.items():
        if not isinstance(value, int | float) or not 0 < value < 1e30:
            raise ValueError(f"{name}={value!r} must be a number above 0")


def forward_parts(
    config: TransformerConfig,
    src_tokens: float,
    tgt_tokens: float,
    *,
    src_length: float,
    tgt_length: float,
) -> dict[str, float]:
    """The operations of a forward pass by part, as in `forward_flops`."""
    check_positive(src_tokens=src_tokens, tgt_tokens=tgt_tokens)
    check_positive(src_length=src_length, tgt_length=tgt_length)
    D, N, H = config.d_model, config.n_layers, config.n_heads
    heads = H * sum(config.head_sizes)  # A
    tokens = src_tokens + tgt_tokens
    pairs = src_tokens * src_length + tgt_tokens * (tgt_length + src_length)
    return {
        "maps": 2.0 * N * D * heads * 3 * tokens,
        "scores": 2.0 * N * heads * pairs,
        "feed-forward": 2.0 * N * 2 * D * config.d_ff * tokens,
        "vocabulary": 2.0 * tgt_tokens * D * config.vocab_size,
    }


def forward_flops(
    config: TransformerConfig,
    src_tokens: float,
    tgt_tokens: float,
    *,
    src_length: float,
    tgt_length: float,
) -> float:
    """The floating-point operations of a forward pass: its matrix products.

    A multiply-add counts as two. The scores that the decoder's mask throws
    away are counted, for they are computed; looking up embeddings is not.

    Args:
        config: the sizes.
        src_tokens, tgt_tokens: positions on each side, padding included.
        src_length, tgt_length: S and T, positions in a row.

    Raises:
        ValueError: a count is not above 0.
    """
    parts = forward_parts(
        config,
        src_tokens,
        tgt_tokens,
        src_length=src_length,
        tgt_length=tgt_length,
    )
    return sum(parts.values())


# 05_2_hardware: Backward is twice forward
def training_flops(
    config: TransformerConfig,
    src_tokens: float,
    tgt_tokens: float,
    *,
    src_length: float,
    tgt_length: float,
    recompute: bool = False,
) -> float:
    """The operations of forward and backward: three times forward.

    Args:
        config, src_tokens, tgt_tokens, src_length, tgt_length: as in
            `forward_flops`, and the ValueError too.
        recompute: count the layers' forward pass once more, as when nothing
            but each layer's input was kept.
    """
    parts = forward_parts(
        config,
        src_tokens,
        tgt_tokens,
        src_length=src_length,
        tgt_length=tgt_length,
    )
    again = sum(parts.values()) - parts["vocabulary"] if recompute else 0.0
    return 3 * sum(parts.values()) + again


# 05_2_hardware: The formula
# Bytes of a number in a product; bf16: autocast over fp32 weights.
BYTES = {"fp32": 4, "bf16": 2}


def check_precision(precision: str) -> None:
    """Raise a ValueError if there is no such precision."""
    if precision not in BYTES:
        raise ValueError(
            f"precision={precision!r} must be one of {list(BYTES)}"
        )


def matrix_entries(config: TransformerConfig) -> int:
    """The parameters that stand in a matrix product: no biases, no gains."""
    D, heads = config.d_model, config.n_heads * sum(config.head_sizes)
    a_layer_of_each = 6 * D * heads + 4 * D * config.d_ff
    return config.n_layers * a_layer_of_each + config.vocab_size * D


@dataclass(frozen=True)
class Memory:
    """Bytes that one process holds when the backward pass begins.

    Attributes:
        weights: the parameters, and their 16-bit copies if there are any.
        gradients: one for each parameter.
        optimizer: what the optimiser remembers.
        activations: what the layers keep for the backward pass.
        logits: the logits and the logarithms of the probabilities, or what
            the fused loss has in their place.
    """

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float

    @property
    def total(self) -> float:
        """All of it."""
        state = self.weights + self.gradients + self.optimizer
        return state + self.activations + self.logits


def frame_bytes(
    config: TransformerConfig, sublayers: int, casts: int, size: int
) -> float:
    """What a stack keeps for each position, attention left out.

    Args:
        config: the sizes.
        sublayers: in a layer, 2 or 3.
        casts: how many maps read a vector of the residual path.
        size: bytes of a number in a product; 4: nothing is cast.
    """
    D, frames = config.d_model, config.n_layers * sublayers
    norms = frames + config.pre_norm
    inputs = frames + 1 if size == 4 else casts
    noise = frames + 1 if config.p_drop else 0  # a byte each
    inner = 2 * size + 1 if config.p_drop_relu else size
    return (
        norms * (4 * D + 8)
        + inputs * size * D
        + noise * D
        + config.n_layers * inner * config.d_ff
    )


def attention_bytes(
    config: TransformerConfig,
    queries: float,
    keys: float,
    length: float,
    *,
    fused: bool,
    size: int,
) -> float:
    """What one attention keeps between its maps.

    Args:
        config: the sizes.
        queries, keys: positions on either side.
        length: keys that a query meets.
        fused: without the weights of attention.
        size: bytes of a number.
    """
    H, (K, V) = config.n_heads, config.head_sizes
    kept = size * H * (K + V) * (queries + keys)
    if fused:
        return kept + queries * H * (V * size + 4)
    weights = 3 if config.p_drop_attention else 2
    return kept + weights * queries * length * H * size


def activation_bytes(
    config: TransformerConfig,
    *,
    src_tokens: float,
    tgt_tokens: float,
    src_length: float,
    tgt_length: float,
    fused: bool,
    size: int,
) -> float:
    """What both stacks keep for the backward pass."""
    n, m, N = src_tokens, tgt_tokens, config.n_layers
    kept = partial(attention_bytes, config, fused=fused, size=size)
    encoder = frame_bytes(config, 2, 4 * N + 2 * N, size)
    decoder = frame_bytes(config, 3, 5 * N + 1, size)
    attention = (
        kept(n, n, src_length) + kept(m, m, tgt_length) + kept(m, n, src_length)
    )
    return n * encoder + m * decoder + N * attention


SLICE = 2**22
"""So many logits are there at once in the fused loss, chapter 5.4."""


def logits_bytes(
    config: TransformerConfig, tgt_tokens: float, *, fused: bool, size: int
) -> float:
    """What the loss needs for so many target positions."""
    logits = tgt_tokens * config.vocab_size
    if not fused:
        return (size + 4) * logits
    gradients = 4 * config.d_model * (config.vocab_size + tgt_tokens)
    return gradients + (size + 4) * min(logits, SLICE)


def memory_bytes(
    config: TransformerConfig,
    *,
    src_tokens: float,
    tgt_tokens: float,
    src_length: float,
    tgt_length: float,
    precision: str = "fp32",
    optimizer: str = "adam",
    fused: bool = True,
    recompute: bool = False,
) -> Memory:
    """What a training step of `Transformer` holds, by formula.

    Left out are masks and ids, temporaries, and what the allocator wastes.

    Args:
        config: the sizes.
        src_tokens, tgt_tokens: positions that one process computes at once,
            padding included.
        src_length, tgt_length: S and T, positions in a row.
        precision: "fp32", or "bf16" for autocast over fp32 weights.
        optimizer: "adam", which keeps two numbers a parameter, or "sgd",
            which keeps none.
        fused: attention without its weights, which needs heads with K = V,
            and the loss without its logits; False: the plain formulas.
        recompute: keep what enters each layer, and one layer of each stack.

    Raises:
        ValueError: a count is not above 0, or a name is not known.
    """
    check_positive(src_tokens=src_tokens, tgt_tokens=tgt_tokens)
    check_positive(src_length=src_length, tgt_length=tgt_length)
    check_precision(precision)
    if optimizer not in ("adam", "sgd"):
        raise ValueError(f"optimizer={optimizer!r} must be 'adam' or 'sgd'")
    size, parameters = BYTES[precision], count_parameters(config)
    copies = 0 if size == 4 else size * matrix_entries(config)
    kept = replace(config, n_layers=1) if recompute else config
    activations = activation_bytes(
        kept,
        src_tokens=src_tokens,
        tgt_tokens=tgt_tokens,
        src_length=src_length,
        tgt_length=tgt_length,
        fused=fused,
        size=size,
    )
    if recompute:
        layers = config.n_layers * (src_tokens + tgt_tokens)
        activations += 4 * config.d_model * layers
    return Memory(
        weights=4 * parameters + copies,
        gradients=4 * parameters,
        optimizer=(8 if optimizer == "adam" else 0) * parameters,
        activations=activations,
        logits=logits_bytes(config, tgt_tokens, fused=fused, size=size),
    )


# 05_2_hardware: Then and now
@dataclass(frozen=True)
class Device:
    """A machine with one or more equal processors.

    Attributes:
        name: in words.
        peak: floating-point operations a second of one processor, by
            precision.
        memory: bytes of one processor.
        count: how many there are.
        price: dollars an hour for one; None: unknown.
        utilisation: the share of the peak to expect, of models narrower
            than 1024 and of the others.
    """

    name: str
    peak: dict[str, float]
    memory: float
    count: int = 1
    price: float | None = None
    utilisation: tuple[float, float] = (0.40, 0.40)

    @property
    def precision(self) -> str:
        """The precision with the highest peak."""
        return max(self.peak, key=lambda name: self.peak[name])

    def expected(self, config: TransformerConfig) -> float:
        """The utilisation to expect of a model."""
        return self.utilisation[config.d_model >= 1024]


# Datasheet peaks of dense products; the P100's is the paper's.
DEVICES = {
    "p100x8": Device(
        "8 x P100", {"fp32": 9.5e12}, 16e9, 8, utilisation=(0.30, 0.43)
    ),
    "h100x8": Device(
        "8 x H100", {"fp32": 67e12, "bf16": 989e12}, 80e9, 8, price=3.0
    ),
    "h200x1": Device(
        "1 x H200", {"fp32": 67e12, "bf16": 989e12}, 141e9, 1, price=3.5
    ),
}


def training_time(
    config: TransformerConfig,
    *,
    steps: float,
    tokens: float,
    device: Device,
    utilisation: float | None = None,
    precision: str | None = None,
    length: float = 30,
    recompute: bool = False,
) -> float:
    """Seconds that a training takes.

    Args:
        config: the sizes.
        steps: how many updates.
        tokens: positions an update, on each side.
        device: on which machine, all of it.
        utilisation: the share of its peak; None: what it expects.
        precision: of the products; None: the fastest it has.
        length: positions in a row, on each side.
        recompute: as in `training_flops`.

    Raises:
        ValueError: a count is not above 0, the utilisation not in (0, 1], or
            the machine does not have the precision.
    """
    check_positive(steps=steps, tokens=tokens, length=length)
    if utilisation is None:
        utilisation = device.expected(config)
    if not 0 < utilisation <= 1:
        raise ValueError(f"utilisation={utilisation!r} must lie in (0, 1]")
    precision = precision or device.precision
    if precision not in device.peak:
        raise ValueError(
            f"precision={precision!r} must be one of {list(device.peak)} on "
            f"{device.name}"
        )
    flops = steps * training_flops(
        config,
        tokens,
        tokens,
        src_length=length,
        tgt_length=length,
        recompute=recompute,
    )
    return flops / (utilisation * device.count * device.peak[precision])


@dataclass(frozen=True)
class Plan:
    """What a training will need.

    Attributes:
        device: on which machine.
        parameters: how many numbers are learnt.
        steps: updates.
        tokens: positions an update, on each side, over all processes.
        tokens_per_process: those that one process computes at once.
        memory: of one process.
        flops: matrix products of the whole training, as trained.
        hours: how long.
    """

    device: Device
    parameters: int
    steps: int
    tokens: int
    tokens_per_process: float
    memory: Memory
    flops: float
    hours: float

    @property
    def price(self) -> float | None:
        """In dollars; None: the machine's price is unknown."""
        if self.device.price is None:
            return None
        return self.hours * self.device.price * self.device.count

    @property
    def fits(self) -> bool:
        """Whether one process's memory holds it; temporaries come on top."""
        return self.memory.total <= self.device.memory


def plan(
    config: TransformerConfig,
    device: Device,
    *,
    steps: int,
    tokens: int,
    length: float = 30,
    utilisation: float | None = None,
    precision: str | None = None,
    accumulate: int = 1,
    fused: bool = True,
    recompute: bool = False,
) -> Plan:
    """Time, memory and price of a training, one process a processor.

    Every process holds the whole model, its gradients and the optimiser.

    Args:
        config: the sizes.
        device: on which machine.
        steps, tokens, length, utilisation, precision, recompute: as in
            `training_time`.
        accumulate: passes an update; each takes its share of the tokens.
        fused: as in `memory_bytes`.

    Raises:
        ValueError: as `training_time` and `memory_bytes` do.
    """
    check_positive(accumulate=accumulate, count=device.count)
    seconds = training_time(
        config,
        steps=steps,
        tokens=tokens,
        device=device,
        utilisation=utilisation,
        precision=precision,
        length=length,
        recompute=recompute,
    )
    sides: dict[str, Any] = {"src_length": length, "tgt_length": length}
    sides["recompute"] = recompute
    share = tokens / (device.count * accumulate)
    memory = memory_bytes(
        config,
        src_tokens=share,
        tgt_tokens=share,
        precision=precision or device.precision,
        fused=fused,
        **sides,
    )
    flops = steps * training_flops(config, tokens, tokens, **sides)
    size, hours = count_parameters(config), seconds / 3600
    return Plan(device, size, steps, tokens, share, memory, flops, hours)


# 05_2_hardware: And on the machine before you
def product_rate(dtype: torch.dtype, size: int = 1024) -> float:
    """Operations a second of square matrix products, in half a second.

    The best of several: others may be using the machine.

    Args:
        dtype: of the matrices.
        size: rows and columns.
    """
    a, b = torch.ones(2, size, size, dtype=dtype).unbind()
    (a @ b).sum()  # the first product sets things up
    best, end = float("inf"), time.perf_counter() + 0.5
    while time.perf_counter() < end:
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def memory_of_this_machine() -> float:
    """Bytes of main memory; 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError):  # Windows
        return 0


def this_machine() -> Device:
    """This machine's processor, its matrix products measured in a second.

    The peak is what torch reaches with its threads as they are set.
    """
    peak = {
        "fp32": product_rate(torch.float32),
        "bf16": product_rate(torch.bfloat16),
    }
    return Device("this machine", peak, memory_of_this_machine())


# 05_2_hardware: Two routes to one product
ROUTE = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
"""Its `fp32_precision` says how oneDNN may round; "none": MKL multiplies."""
WORTH = 1.3
"""How many times as fast the other route must be to be taken."""


@contextlib.contextmanager
def route(precision: str) -> Iterator[None]:
    """Set `ROUTE.fp32_precision` for a while."""
    before = ROUTE.fp32_precision
    ROUTE.fp32_precision = precision
    try:
        yield
    finally:
        ROUTE.fp32_precision = before


def gain_of_route(width: int = 512) -> float:
    """How many times as fast oneDNN multiplies in fp32; 0: it rounds.

    Args:
        width: of the model whose products it is about, D.
    """
    if not torch.backends.mkldnn.is_available():
        return 0.0
    made = torch.Generator().manual_seed(0)
    x = torch.randn(400, width, generator=made)
    weight = torch.randn(width, 4 * width, generator=made)
    products, seconds = {}, {"none": math.inf, "bf16": math.inf}
    for _ in range(6):  # in turn, as others may be using the machine
        for precision in seconds:
            with route(precision):
                start = time.perf_counter()
                products[precision] = x @ weight
                passed = time.perf_counter() - start
            seconds[precision] = min(seconds[precision], passed)
    exact = x.double() @ weight.double()
    errors = {name: (y - exact).abs().max() for name, y in products.items()}
    rounds = errors["bf16"] > 2 * errors["none"]
    return 0.0 if rounds else seconds["none"] / seconds["bf16"]


@contextlib.contextmanager
def fast_matmul(width: int = 512) -> Iterator[float]:
    """Let oneDNN multiply in fp32, where that is faster and as precise.

    Nothing changes elsewhere, nor after it, nor on a GPU.

    Args:
        width: of the model whose products it is about, D.

    Yields:
        How many times as fast it is; 1 where nothing was changed.
    """
    gain = gain_of_route(width)
    if gain < WORTH:
        yield 1.0
        return
    with route("bf16"):
        yield gain


__all__ = [
    "BYTES",
    "DEVICES",
    "Device",
    "Memory",
    "Plan",
    "ROUTE",
    "SLICE",
    "WORTH",
    "activation_bytes",
    "attention_bytes",
    "check_positive",
    "check_precision",
    "fast_matmul",
    "forward_flops",
    "forward_parts",
    "frame_bytes",
    "gain_of_route",
    "logits_bytes",
    "matrix_entries",
    "memory_bytes",
    "memory_of_this_machine",
    "plan",
    "product_rate",
    "route",
    "this_machine",
    "training_flops",
    "training_time",
]
