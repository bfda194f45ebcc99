"""Training as software.

From book/10_training.md.
"""

# Written by tools/export.py. Edit the chapter instead.

import hashlib
import json
import math
import os
import shutil
import sys
import time
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, fields
from functools import cache, partial
from pathlib import Path
from textwrap import shorten
from typing import Any, TypeVar

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from tqdm import tqdm

from transformer_lit.batches import Batch, Ints, make_batch, plan_epoch
from transformer_lit.bleu import score
from transformer_lit.checkpoints import (
    checkpoint_folders,
    newest_checkpoint,
    remove_oldest,
    save_checkpoint,
)
from transformer_lit.config import OURS, TABLE_3, TransformerConfig
from transformer_lit.corpus import (
    CorpusConfig,
    EncodedSplit,
    prepare,
    read_text,
)
from transformer_lit.hardware import product_rate, training_flops
from transformer_lit.loss import fused_loss, label_smoothed_loss
from transformer_lit.model import Transformer, save_model
from transformer_lit.numbers import english, german
from transformer_lit.optimizer import cooled, noam, noam_rate
from transformer_lit.tokenizer import load_vocabulary, write_file
from transformer_lit.translator import Translator


# 10_training: One update
@dataclass(frozen=True)
class Progress:
    """What one update did.

    Attributes:
        step: counted from 1.
        rate: the learning rate.
        loss: the smoothed objective, nats a token.
        nll: the true negative log-likelihood, nats a token.
    """

    step: int
    rate: float
    loss: float
    nll: float


T = TypeVar("T")


class Alone:
    """One process on one device.

    Attributes:
        rank, size: which process this is, and of how many.
        device: where its model lies.
    """

    def __init__(self) -> None:
        self.rank, self.size = 0, 1
        cuda = torch.cuda.is_available()
        self.device = torch.device("cuda" if cuda else "cpu")

    def share(self, model: nn.Module) -> nn.Module:
        """The model as the processes train it together."""
        return model

    def adding_up(
        self, model: nn.Module, last: bool
    ) -> AbstractContextManager[None]:
        """The context of one batch; with the last, gradients are shared."""
        return nullcontext()

    def total(self, sums: Tensor) -> Tensor:
        """The sum of all processes' numbers."""
        return sums

    def whole(self, tensor: Tensor) -> Tensor:
        """A parameter, or what belongs to one, in one piece."""
        return tensor

    def part(self, whole: Tensor, like: Tensor) -> Tensor:
        """This process's part of a tensor, as `like` is divided."""
        return whole.to(like.device)

    def save_parts(
        self, run: "Run", folder: Path, state: dict[str, Any]
    ) -> None:
        """Write a checkpoint, each process its part; one alone has none."""
        raise NotImplementedError

    def first(self, work: Callable[[], T]) -> T:
        """Let the first process do some work before the others do it."""
        return work()

    def wait(self) -> None:
        """Go on when all processes have come here."""


ALONE = Alone()


PRECISIONS = {"fp32": None, "bf16": torch.bfloat16}


def seed_all(*numbers: int) -> None:
    """Let all random numbers that follow depend on these alone."""
    digest = hashlib.sha256(repr(numbers).encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:6], "big"))


def accumulate(
    model: nn.Module,
    batches: Sequence[Batch],
    *,
    tokens: float,
    pad_id: int,
    smoothing: float = 0.1,
    precision: str = "fp32",
    seed: tuple[int, ...] | None = None,
    processes: Alone = ALONE,
) -> Tensor:
    """Add the gradient of the mean loss over `tokens` tokens.

    Args:
        model: in train mode.
        batches: this process's share of the update, at least one.
        tokens: the real target tokens of the whole update, of all processes.
        pad_id, smoothing: as in `label_smoothed_loss`.
        precision: "fp32", or "bf16" for the products of the forward pass.
        seed: what the dropout of this update depends on, together with each
            batch's number; None: on torch's generator as it is.
        processes: who else works at this update.

    Returns:
        The sums [loss, nll, tokens] over this process's batches.
    """
    device = batches[0].src.device
    found = torch.zeros(3, dtype=torch.float64, device=device)
    number = PRECISIONS[precision]
    for i, batch in enumerate(batches, start=1):
        if seed is not None:
            seed_all(*seed, batch.number)
        with processes.adding_up(model, last=i == len(batches)):
            with torch.autocast(
                device.type, number, enabled=number is not None
            ):
                head = partial(
                    fused_loss,
                    targets=batch.tgt_out,
                    pad_id=pad_id,
                    smoothing=smoothing,
                )
                sums = model(batch.src, batch.tgt_in, head=head)
            # Processes share the mean of their gradients: make it a sum.
            (sums.loss * (processes.size / tokens)).backward()
        found += torch.stack([sums.loss.detach(), sums.nll, sums.tokens])
    return found


def fit(
    model: Transformer,
    batches: Iterator[Batch],
    *,
    steps: int,
    warmup: int,
    smoothing: float = 0.1,
) -> Iterator[Progress]:
    """Train by the recipe of section 5, one update at a time.

    Args:
        model: is put into train mode before each update, and changed in
            place.
        batches: where the sentence pairs come from.
        steps: how many updates.
        warmup: of the schedule, section 5.3.
        smoothing: of the labels, section 5.4.

    Yields:
        What each update did.

    Raises:
        ValueError: the batches end before the updates do.
    """
    pad_id = model.config.pad_id
    adam, schedule = noam(model, warmup)
    for step in range(1, steps + 1):
        batch = next(batches, None)
        if batch is None:
            raise ValueError(f"the batches end before update {step} of {steps}")
        tokens = int((batch.tgt_out != pad_id).sum())
        model.train()
        adam.zero_grad()
        loss, nll, _ = accumulate(
            model, [batch], tokens=tokens, pad_id=pad_id, smoothing=smoothing
        ).tolist()
        adam.step()
        rate = float(schedule.get_last_lr()[0])
        schedule.step()
        yield Progress(step, rate, loss / tokens, nll / tokens)


# 10_training: How good is it?
def exact_match(translator: Translator, numbers: list[int]) -> float:
    """The share of numbers whose German word comes out letter for letter.

    Args:
        translator: of number words.
        numbers: what to translate, each in 0 ... 999,999.
    """
    outputs = translator.translate([english(n) for n in numbers])
    pairs = zip(outputs, numbers, strict=True)
    return sum(word == german(n) for word, n in pairs) / len(numbers)


# 10_training: A run as a file
@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train; the defaults are the paper's base model's.

    Attributes:
        steps: updates in all.
        warmup, factor: of the schedule, section 5.3.
        cooldown: the last updates, in which the rate falls to 0; ours.
        tokens: about how many tokens on each side make one update.
        positions: what fits a device at once, padding included, on each side.
        smoothing: of the labels, section 5.4.
        seed: of the weights, of the order, and of dropout.
        precision: "fp32", or "bf16" by autocast.
        compile: let torch.compile translate the model first.
        recompute: keep less for the backward pass, and compute it twice.
        tensorboard: draw the log's curves in TensorBoard, too.
        log_every, save_every, valid_every: counted in updates.
        keep: how many checkpoints stay.
        checkpoint: "whole", or "sharded": several processes write a part each.
        patience: stop after so many validations without a better NLL;
            0: never.

    Raises:
        ValueError: an impossible recipe; the message names the field.
    """

    steps: int = 100_000
    warmup: int = 4000
    factor: float = 1.0
    cooldown: int = 0
    tokens: int = 25_000
    positions: int = 4096
    smoothing: float = 0.1
    seed: int = 0
    precision: str = "fp32"
    compile: bool = False
    recompute: bool = False
    tensorboard: bool = False
    log_every: int = 100
    save_every: int = 1000
    valid_every: int = 1000
    keep: int = 20
    checkpoint: str = "whole"
    patience: int = 0

    def __post_init__(self) -> None:
        check_training(self)


INTERVALS = ("log_every", "save_every", "valid_every")
POSITIVE = ("steps", "warmup", "tokens", "positions", "keep", *INTERVALS)


def check_training(config: TrainConfig) -> None:
    """Raise a ValueError that names the first impossible field."""
    for name in POSITIVE:
        if (value := getattr(config, name)) < 1:
            raise ValueError(f"{name}={value!r} must be at least 1")
    for name in ("factor", "seed", "patience"):
        if (value := getattr(config, name)) < 0:
            raise ValueError(f"{name}={value!r} must not be below 0")
    cooled(1, config.steps, config.cooldown)  # refuses an impossible one
    if config.precision not in PRECISIONS:
        names = ", ".join(PRECISIONS)
        raise ValueError(
            f"precision={config.precision!r} must be one of {names}"
        )
    if (form := config.checkpoint) not in ("whole", "sharded"):
        raise ValueError(f"checkpoint={form!r} must be one of whole, sharded")
    if not 0 <= config.smoothing < 1:
        raise ValueError(f"smoothing={config.smoothing} must lie in [0, 1)")
    for name in ("save_every", "valid_every"):
        if (value := getattr(config, name)) % config.log_every:
            raise ValueError(
                f"{name}={value} must be a multiple of "
                f"log_every={config.log_every}"
            )


TYPES: dict[Any, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    float: (int, float),
    str: (str,),
}
"""What a file may give for a field of a type; others are not checked."""


def from_table(kind: type[T], table: dict[str, Any], name: str) -> T:
    """A dataclass from a table of a file.

    Raises:
        ValueError: the table has a key that is no field, or lacks one, or a
            value cannot be; the message names table and key.
    """
    known = {f.name: f.type for f in fields(kind)}  # type: ignore[arg-type]
    for key, value in table.items():
        if key not in known:
            names = ", ".join(known)
            raise ValueError(f"[{name}] has no {key!r}; there are {names}")
        allowed = TYPES.get(known[key])
        if allowed and type(value) not in allowed:
            names = " or ".join(one.__name__ for one in allowed)
            raise ValueError(f"[{name}] {key}={value!r} must be {names}")
    try:
        return kind(**table)
    except (TypeError, ValueError) as error:
        raise ValueError(f"[{name}] {error}") from None


def model_config(table: dict[str, Any], vocab_size: int) -> TransformerConfig:
    """A model's configuration from the table [model] of a file.

    Raises:
        ValueError: it cannot be; the message names the key.
    """
    table, presets = dict(table), {**TABLE_3, **OURS}
    for key in {"vocab_size", "pad_id", "bos_id", "eos_id"} & set(table):
        raise ValueError(f"[model] {key!r} is given by the corpus")
    preset = table.pop("preset", "base")
    if preset not in presets:
        names = ", ".join(presets)
        raise ValueError(f"[model] preset={preset!r} must be one of {names}")
    table = {**presets[preset], **table, "vocab_size": vocab_size}
    return from_table(TransformerConfig, table, "model")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A run: what to train on, which model, and how.

    Attributes:
        corpus: the text.
        model: fields of `TransformerConfig`, and perhaps `preset`, the name
            of a row of Table 3 or of a model of ours.
        training: the recipe.
    """

    corpus: CorpusConfig
    model: dict[str, Any]
    training: TrainConfig

    @classmethod
    def load(cls, path: str | Path) -> "RunConfig":
        """Read a TOML file.

        Raises:
            ValueError: the file is missing or says what cannot be.
        """
        return read_run(Path(path))

    def transformer(self, vocab_size: int) -> TransformerConfig:
        """The model's configuration for a vocabulary of that size."""
        return model_config(self.model, vocab_size)


def read_run(path: Path) -> RunConfig:
    """See `RunConfig.load`."""
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:  # TOML's error is a ValueError
        raise ValueError(f"cannot read {path}: {error}") from None
    if set(tables) != {"corpus", "model", "training"}:
        raise ValueError(
            f"{path} must have the tables [corpus], [model] and [training], "
            f"and has {sorted(tables)}"
        )
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ValueError(f"{path}: [{name}] must be a table, not {table!r}")
    run = RunConfig(
        corpus=from_table(CorpusConfig, tables["corpus"], "corpus"),
        model=tables["model"],
        training=from_table(TrainConfig, tables["training"], "training"),
    )
    run.transformer(run.corpus.vocab_size)  # refuses what cannot be
    return run


# 10_training: A run in memory
class Run:
    """What a training run consists of: model, optimiser, data, position.

    Args:
        config: the run as its file says.
        processes: who works at it.

    Attributes:
        model: what is trained.
        shared: the same model, wrapped for several processes; alone, itself.
        step: the updates done.
        epoch, index: the next update is number `index` of that epoch.
        best: the least validation NLL so far; None: no validation yet.
        stale: validations since then.
    """

    def __init__(self, config: RunConfig, processes: Alone = ALONE) -> None:
        self.config, self.processes = config, processes
        self.data = processes.first(lambda: prepare(config.corpus))
        self.vocabulary = load_vocabulary(self.data)
        self.pairs = EncodedSplit(self.data, "train")
        self.lengths = self.pairs.lengths()
        training = config.training
        seed_all(training.seed)
        sizes = config.transformer(len(self.vocabulary))
        self.model = Transformer(sizes).to(processes.device)
        if training.recompute:
            recompute_layers(self.model)
        self.shared = processes.share(self.model)
        end = {"steps": training.steps, "cooldown": training.cooldown}
        self.adam, self.schedule = noam(
            self.model, training.warmup, training.factor, **end
        )
        if training.compile:
            compile_model(self.shared, processes)
        self.step = self.epoch = self.index = self.stale = 0
        self.best: float | None = None

    @property
    def is_over(self) -> bool:
        """All updates are done, or patience is at its end."""
        training = self.config.training
        out_of_patience = 0 < training.patience <= self.stale
        return out_of_patience or self.step >= training.steps


def updates(run: Run) -> Iterator[list[Ints]]:
    """The rectangles of one update after another, from where the run is."""
    training = run.config.training
    while True:
        plan = plan_epoch(
            run.lengths,
            tokens=training.tokens,
            positions=training.positions,
            seed=training.seed,
            epoch=run.epoch,
        )
        while run.index < len(plan):
            rectangles = plan[run.index]
            run.index += 1
            yield rectangles
        run.epoch, run.index = run.epoch + 1, 0


def load_batches(
    run: Run, pairs: EncodedSplit, rectangles: list[Ints]
) -> list[Batch]:
    """This process's share of the rectangles, as batches on its device.

    All processes get equally many, since they must go on together: a process
    for which nothing is left gets a batch of nothing but padding, whose loss
    and gradient are zero.
    """
    config, processes = run.model.config, run.processes
    turns = math.ceil(len(rectangles) / processes.size)
    found = []
    for turn in range(turns):
        number = turn * processes.size + processes.rank
        ids = [([config.pad_id], [config.pad_id])]
        if number < len(rectangles):
            ids = [pairs[int(i)] for i in rectangles[number]]
        batch = make_batch(ids, pad_id=config.pad_id, bos_id=config.bos_id)
        src, tgt_in, tgt_out = (
            part.to(processes.device)
            for part in (batch.src, batch.tgt_in, batch.tgt_out)
        )
        found.append(Batch(src, tgt_in, tgt_out, number))
    return found


def gradient_norm(model: nn.Module) -> float:
    """The length of the gradient of all parameters together."""
    found = [p.grad for p in model.parameters() if p.grad is not None]
    norm: Any = nn.utils.get_total_norm(found)
    if hasattr(norm, "full_tensor"):  # each process has a part of the model
        norm = norm.full_tensor()
    return float(norm)


def check_finite(norm: float, run: Run, rectangles: list[Ints]) -> None:
    """Raise a FloatingPointError that names the pairs of a bad update."""
    if not math.isfinite(norm):
        pairs = [int(i) for rectangle in rectangles for i in rectangle]
        raise FloatingPointError(
            f"update {run.step + 1}: the gradient is not finite; its "
            f"{len(pairs)} pairs are {shorten(str(pairs), 80)} of epoch "
            f"{run.epoch}"
        )


def one_update(run: Run, rectangles: list[Ints]) -> tuple[Tensor, float]:
    """Compute a gradient and take a step.

    Returns:
        The sums [loss, nll, tokens] of this process, and the norm of the
        gradient.

    Raises:
        FloatingPointError: the gradient is not finite; nothing was changed.
    """
    training = run.config.training
    tokens = sum(int(run.lengths[pairs, 1].sum()) for pairs in rectangles)
    run.shared.train()
    run.adam.zero_grad()
    sums = accumulate(
        run.shared,
        load_batches(run, run.pairs, rectangles),
        tokens=tokens,
        pad_id=run.model.config.pad_id,
        smoothing=training.smoothing,
        precision=training.precision,
        seed=(training.seed, run.step),
        processes=run.processes,
    )
    norm = gradient_norm(run.model)
    check_finite(norm, run, rectangles)
    run.adam.step()
    run.schedule.step()
    run.step += 1
    return sums, norm


# 10_training: Faster, smaller, and the same
def recompute_layers(model: Transformer) -> None:
    """Keep only each layer's input; the backward pass computes the rest."""
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)


def compile_model(model: nn.Module, processes: Alone) -> None:
    """Let torch.compile translate the model, where there is a compiler."""
    compilers = (os.environ.get("CXX", "g++"), "g++", "clang++", "cl")
    if any(shutil.which(name) for name in compilers):
        model.compile(dynamic=True)
    elif processes.rank == 0:
        print(
            "compile: there is no C++ compiler; training goes on without",
            file=sys.stderr,
        )


# 10_training: What the log says
@cache
def peak_rate(device: torch.device, precision: str) -> float:
    """Operations a second that matrix products reach on a device.

    It is measured once in a process, and takes half a second.
    """
    dtype = PRECISIONS[precision] or torch.float32
    if device.type == "cpu":
        return product_rate(dtype)
    size, turns = 8192, 10
    a = torch.ones(size, size, dtype=dtype, device=device)
    (a @ a).sum().item()  # the first product sets things up
    start = time.perf_counter()
    for _ in range(turns):
        b = a @ a
    b.sum().item()  # waits for all of them
    return turns * 2 * size**3 / (time.perf_counter() - start)


def update_flops(run: Run, rectangles: list[Ints]) -> float:
    """The operations of an update, those of all processes together."""
    total = 0.0
    for pairs in rectangles:
        S, T = run.lengths[pairs].max(0).tolist()
        total += training_flops(
            run.model.config,
            src_tokens=len(pairs) * S,
            tgt_tokens=len(pairs) * T,
            src_length=S,
            tgt_length=T,
        )
        # The fused loss leaves padding out.
        padding = len(pairs) * T - int(run.lengths[pairs, 1].sum())
        total -= 3 * 2 * padding * run.model.output.weight.numel()
    return total


def memory_mb(device: torch.device) -> float:
    """The most memory that this process has used, in megabytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 1e6
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    unit = 1 if sys.platform == "darwin" else 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used * unit / 1e6


def rate_now(run: Run) -> float:
    """The learning rate of the last update."""
    training, d_model = run.config.training, run.model.config.d_model
    share = cooled(run.step, training.steps, training.cooldown)
    return share * noam_rate(
        run.step, d_model, training.warmup, training.factor
    )


class Interval:
    """What happened since the last entry of the log.

    Args:
        run: which run.
        peak: operations a second of one process's device.
    """

    def __init__(self, run: Run, peak: float = math.inf) -> None:
        self.run, self.start = run, run.step
        self.peak = peak * run.processes.size
        self.sums, self.flops = torch.zeros(3, dtype=torch.float64), 0.0
        self.time = time.perf_counter()

    def add(self, sums: Tensor, flops: float = 0.0) -> None:
        """Count one update.

        Args:
            sums: [loss, nll, tokens] of this process.
            flops: the operations of all processes.
        """
        self.sums += sums.cpu()
        self.flops += flops

    def entry(self, norm: float) -> dict[str, Any]:
        """The entry of the log; all processes must ask for it together."""
        run = self.run
        loss, nll, tokens = run.processes.total(self.sums).tolist()
        seconds = time.perf_counter() - self.time
        left = run.config.training.steps - run.step
        return {
            "step": run.step,
            "epoch": run.epoch,
            "loss": loss / tokens,
            "nll": nll / tokens,
            "perplexity": math.exp(nll / tokens),
            "rate": rate_now(run),
            "gradient_norm": norm,
            "tokens": int(tokens),
            "tokens_per_second": round(tokens / seconds, 1),
            "flops_per_second": round(self.flops / seconds),
            "mfu": round(self.flops / seconds / self.peak, 4),
            "memory_mb": round(memory_mb(run.processes.device)),
            "seconds": round(seconds, 3),
            "seconds_left": round(left * seconds / (run.step - self.start)),
        }


def in_rectangles(pairs: EncodedSplit) -> list[Ints]:
    """All pairs of a split in rectangles."""
    plan = plan_epoch(
        pairs.lengths(), tokens=2048, positions=2048, seed=0, epoch=0
    )
    return [rectangle for update in plan for rectangle in update]


@torch.inference_mode()
def validation_nll(run: Run, pairs: EncodedSplit) -> float:
    """The true NLL of a split, nats a token."""
    sums = torch.zeros(2, dtype=torch.float64)
    pad_id = run.model.config.pad_id
    run.shared.eval()
    for batch in load_batches(run, pairs, in_rectangles(pairs)):
        logits = run.shared(batch.src, batch.tgt_in)
        found = label_smoothed_loss(logits, batch.tgt_out, pad_id=pad_id)
        sums += torch.stack([found.nll, found.tokens]).cpu()
    nll, tokens = run.processes.total(sums).tolist()
    return nll / tokens


def whole_model(run: Run) -> Transformer:
    """The model in one piece; all processes must ask for it together."""
    model = Transformer(run.model.config)
    parts = zip(model.parameters(), run.model.parameters(), strict=True)
    with torch.no_grad():
        for one, part in parts:
            one.copy_(run.processes.whole(part))
    return model


def validate(run: Run) -> dict[str, Any]:
    """What the log says of a validation: NLL, perplexity, BLEU.

    BLEU is sacreBLEU's on text as people write it; where a corpus comes cut
    into words, it is that of the words.
    """
    pairs = EncodedSplit(run.data, "valid")
    nll = validation_nll(run, pairs)
    entry: dict[str, Any] = {"nll": nll, "perplexity": math.exp(nll)}
    model = whole_model(run).to(run.processes.device).eval()
    if run.processes.rank == 0:
        outputs = Translator(model, run.vocabulary).translate(
            read_text(run.data / "valid.src"), beam_size=1
        )
        references = read_text(run.data / "valid.tgt")
        same = [o == r for o, r in zip(outputs, references, strict=True)]
        is_split = run.config.corpus.name == "multi30k_tok"
        found = score(
            outputs=outputs,
            references=references,
            protocol="tokenised" if is_split else "sacrebleu",
            language=run.config.corpus.tgt,
        )
        entry |= {"bleu": found.score, "signature": found.signature}
        entry["exact"] = sum(same) / len(same)
    run.processes.wait()
    return entry


# 10_training: Stop, and go on
def optimizer_tensors(run: Run) -> dict[str, Tensor]:
    """What the optimiser remembers, by the names of the parameters."""
    return {
        f"{name}.{key}": value
        for name, parameter in run.model.named_parameters()
        for key, value in run.adam.state[parameter].items()
    }


def restore(
    run: Run, weights: dict[str, Tensor], adam: dict[str, Tensor]
) -> None:
    """Give model and optimiser back what a checkpoint holds."""
    part = run.processes.part
    with torch.no_grad():
        for name, parameter in run.model.named_parameters():
            parameter.copy_(part(weights[name], parameter))
            run.adam.state[parameter] = {
                "step": adam[f"{name}.step"].to(parameter.device),
                "exp_avg": part(adam[f"{name}.exp_avg"], parameter),
                "exp_avg_sq": part(adam[f"{name}.exp_avg_sq"], parameter),
            }


def restore_parts(run: Run, checkpoint: Path) -> None:
    """As `restore`, from what several processes wrote (chapter 11)."""
    from torch.distributed.checkpoint import hf_storage, state_dict_loader

    for parameter in run.model.parameters():
        run.adam.state[parameter] = {
            "step": torch.zeros((), device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    tensors = {**dict(run.model.named_parameters()), **optimizer_tensors(run)}
    reader = hf_storage.HuggingFaceStorageReader(str(checkpoint))
    with warnings.catch_warnings(action="ignore"):  # of there being one process
        state_dict_loader.load(tensors, storage_reader=reader)


MAY_CHANGE = (
    "steps",
    "cooldown",
    "log_every",
    "save_every",
    "valid_every",
    "keep",
    "patience",
    "precision",
    "compile",
    "recompute",
    "tensorboard",
    "checkpoint",
)
"""What may be set otherwise when a run goes on."""


def check_same_run(
    old: dict[str, Any], new: dict[str, Any], folder: Path
) -> None:
    """Raise a ValueError if a run would go on with another recipe."""
    # The old values come from JSON, where a tuple is a list: compare as JSON.
    old, new = json.loads(json.dumps(old)), json.loads(json.dumps(new))
    for table in new:
        for key in {*old[table], *new[table]}:
            before, now = old[table].get(key), new[table].get(key)
            if before != now and key not in MAY_CHANGE:
                raise ValueError(
                    f"{folder} was trained with {table}.{key}={before!r}, not "
                    f"{now!r}: take another folder, or the old value"
                )


POSITION = ("step", "epoch", "index", "best", "stale")
"""The attributes of a run that say where it is."""


def save(run: Run, folder: Path) -> None:
    """Write a checkpoint of the run."""
    training, processes = run.config.training, run.processes
    state = {name: getattr(run, name) for name in POSITION}
    state |= {"schedule": run.schedule.state_dict(), "run": asdict(run.config)}
    if training.checkpoint == "sharded" and processes.size > 1:
        processes.save_parts(run, folder, state)
        return
    model, adam = whole_model(run), optimizer_tensors(run)
    optimizer = {name: processes.whole(value) for name, value in adam.items()}
    if processes.rank == 0:
        save_checkpoint(
            folder,
            run.step,
            model=model,
            vocabulary=run.vocabulary,
            optimizer=optimizer,
            state=state,
            keep=training.keep,
        )
    processes.wait()


def resume(run: Run, folder: Path) -> None:
    """Go on from the newest sound checkpoint, if there is one.

    Raises:
        ValueError: the checkpoint belongs to another configuration.
    """
    found = newest_checkpoint(folder)
    if found is None:
        return
    checkpoint, state = found
    check_same_run(state["run"], asdict(run.config), checkpoint)
    if (memory := checkpoint / "optimizer.safetensors").is_file():
        weights = load_file(checkpoint / "weights.safetensors")
        restore(run, weights, load_file(memory))
    else:
        restore_parts(run, checkpoint)
    run.schedule.load_state_dict(state["schedule"])
    for group in run.adam.param_groups:
        group["lr"] = run.schedule.get_last_lr()[0]
    for name in POSITION:
        setattr(run, name, state[name])


def read_log(file: Path) -> list[dict[str, Any]]:
    """The entries of a log; none if there is no log yet.

    A line that was cut off when the machine stopped is left out.
    """
    lines = file.read_text("utf-8").split("\n") if file.exists() else []
    return [json.loads(line) for line in lines[:-1]]


def cut_log(file: Path, step: int) -> None:
    """Remove the entries of later steps: a run that goes on from a
    checkpoint makes them again."""
    kept = [entry for entry in read_log(file) if entry["step"] <= step]
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(entry) + "\n" for entry in kept)
    write_file(file, lines.encode())


# 10_training: The whole run
def judge(run: Run, folder: Path) -> dict[str, Any]:
    """Validate, and keep the model if it is the best so far."""
    entry = validate(run)
    run.stale += 1
    if run.best is None or entry["nll"] < run.best:
        run.best, run.stale = entry["nll"], 0
        model = whole_model(run)
        if run.processes.rank == 0:
            save_model(model, folder / "best")
            run.vocabulary.save(folder / "best")
    return {"step": run.step, "valid": entry}


def report(run: Run, folder: Path, entry: dict[str, Any]) -> None:
    """Write the log; validate and save when it is time."""
    training, entries = run.config.training, [entry]
    if (run.data / "valid.src").exists() and (
        run.is_over or run.step % training.valid_every == 0
    ):
        entries.append(judge(run, folder))
    if run.processes.rank == 0:
        with (folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)
        if training.tensorboard:
            draw(folder / "tensorboard", entries)
    if run.is_over or run.step % training.save_every == 0:
        save(run, folder)


@cache
def board(folder: Path) -> Any:
    """What writes a folder's curves for TensorBoard.

    Raises:
        ValueError: TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError(
            "tensorboard=true needs TensorBoard: "
            'pip install "transformer-lit[tensorboard]"'
        ) from None
    return SummaryWriter(folder)


def draw(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Add entries of the log to the curves of TensorBoard."""
    for entry in entries:
        group = "valid" if "valid" in entry else "train"
        for name, value in entry.get("valid", entry).items():
            if isinstance(value, int | float) and name != "step":
                board(folder).add_scalar(
                    f"{group}/{name}", value, entry["step"]
                )
    board(folder).flush()


def go_on(run: Run, folder: Path) -> None:
    """Update after update, from where the run is."""
    training, processes = run.config.training, run.processes
    todo, peak = updates(run), math.inf
    if processes.rank == 0:
        peak = peak_rate(processes.device, training.precision)
    processes.wait()
    interval = Interval(run, peak)
    with tqdm(
        total=training.steps,
        initial=run.step,
        unit=" updates",
        disable=True if processes.rank else None,  # None: not on a terminal
    ) as bar:
        while not run.is_over:
            rectangles = next(todo)
            sums, norm = one_update(run, rectangles)
            interval.add(sums, update_flops(run, rectangles))
            bar.update()
            last = run.step == training.steps
            if last or run.step % training.log_every == 0:
                entry = interval.entry(norm)
                bar.set_postfix(nll=f"{entry['nll']:.3f}")
                report(run, folder, entry)
                interval = Interval(run, peak)


class Trainer:
    """Trains a run in a folder, and goes on where an earlier call stopped.

    The folder gets `log.jsonl`, `checkpoints/` with the newest ones, and
    `best/` with the model of the least validation NLL.

    Args:
        config: the run.
        folder: where everything is written.
        processes: who works at it.
    """

    def __init__(
        self, config: RunConfig, folder: str | Path, processes: Alone = ALONE
    ) -> None:
        self.config, self.folder = config, Path(folder)
        if config.training.tensorboard and processes.rank == 0:
            board(self.folder / "tensorboard")  # if it is missing, say so now
        self.run = Run(config, processes)

    def fit(self) -> Run:
        """Train to the last update, or until patience is at its end.

        Raises:
            ValueError: the folder holds a run of another configuration.
            FloatingPointError: the gradient is not finite any more.
        """
        run, folder = self.run, self.folder
        resume(run, folder)
        if run.processes.rank == 0:
            cut_log(folder / "log.jsonl", run.step)
        try:
            go_on(run, folder)
        except FloatingPointError as error:
            saved = checkpoint_folders(folder)
            name = saved[-1] if saved else "none yet"
            raise FloatingPointError(
                f"{error}; the last good checkpoint is {name}"
            ) from None
        # Killed in the middle of its very end, a run may have left one more.
        if run.processes.rank == 0:
            remove_oldest(folder, self.config.training.keep)
        return run


__all__ = [
    "ALONE",
    "Alone",
    "INTERVALS",
    "Interval",
    "MAY_CHANGE",
    "POSITION",
    "POSITIVE",
    "PRECISIONS",
    "Progress",
    "Run",
    "RunConfig",
    "T",
    "TYPES",
    "TrainConfig",
    "Trainer",
    "accumulate",
    "board",
    "check_finite",
    "check_same_run",
    "check_training",
    "compile_model",
    "cut_log",
    "draw",
    "exact_match",
    "fit",
    "from_table",
    "go_on",
    "gradient_norm",
    "in_rectangles",
    "judge",
    "load_batches",
    "memory_mb",
    "model_config",
    "one_update",
    "optimizer_tensors",
    "peak_rate",
    "rate_now",
    "read_log",
    "read_run",
    "recompute_layers",
    "report",
    "restore",
    "restore_parts",
    "resume",
    "save",
    "seed_all",
    "update_flops",
    "updates",
    "validate",
    "validation_nll",
    "whole_model",
]
