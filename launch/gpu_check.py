"""Check on one GPU what the tests check on a processor; at most 8 minutes.

    python launch/gpu_check.py

Writes results/gpu.json: whether training and decoding in bf16 agree with the
processor, and tokens a second and utilisation for the base and the big model.
NOT RUN by us: no GPU was at hand. `--rehearse` goes through the same steps
with small models on a processor and writes nothing.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

import transformer_lit as tl
from transformer_lit.hardware import DEVICES, training_flops
from transformer_lit.model import Transformer
from transformer_lit.optimizer import noam
from transformer_lit.train import a_batch, clock
from transformer_lit.trainer import Alone, TrainConfig, accumulate

ROOT = Path(__file__).resolve().parents[1]
LENGTH = 30


class On(Alone):
    """One process on a device of our choice."""

    def __init__(self, device: torch.device) -> None:
        self.rank, self.size, self.device = 0, 1, device


def there(batch, device):
    """A batch on a device."""
    ids = batch.src.to(device)
    return replace(batch, src=ids, tgt_in=ids, tgt_out=ids)


def losses(sizes, device, precision, batches, steps):
    """The loss of each of a few updates from the same start, no dropout."""
    torch.manual_seed(0)
    model = Transformer(replace(sizes, p_drop=0.0)).to(device)
    adam, schedule = noam(model, 400)
    found = []
    for step in range(steps):
        batch = there(batches[step % len(batches)], device)
        tokens = batch.tgt_out.numel()
        adam.zero_grad()
        sums = accumulate(
            model,
            [batch],
            tokens=tokens,
            pad_id=sizes.pad_id,
            precision=precision,
            processes=On(device),
        )
        adam.step()
        schedule.step()
        found.append(float(sums[0]) / tokens)
    return found


def check_training(device):
    """bf16 on the device against fp32 on the processor, loss by loss.

    A bf16 number has 8 bits: a product is wrong by up to 2^-9 of its size,
    and independent errors of many layers do not add up to more than a few
    times that. So each loss may be off by one per cent.
    """
    sizes = tl.TransformerConfig.tiny(1000)
    batches = [a_batch(sizes, 900, LENGTH) for _ in range(4)]
    exact = losses(sizes, torch.device("cpu"), "fp32", batches, 20)
    here = losses(sizes, device, "bf16", batches, 20)
    worst = max(abs(a / b - 1) for a, b in zip(here, exact, strict=True))
    learned = exact[0] - exact[-1] > 0.1
    return {"worst": worst, "agrees": worst < 0.01, "learned": learned}


def check_decoding(device):
    """The shipped miniature translates the same on the device, in bf16 too."""
    from transformer_lit.numbers import english, held_out_sample

    texts = [english(n) for n in held_out_sample(500, seed=0)]
    exact = tl.Translator.load("numbers").translate(texts)
    translator = tl.Translator.load("numbers")
    translator.model.to(device)
    with torch.autocast(device.type, torch.bfloat16):
        halves = translator.translate(texts)
    plain = translator.translate(texts)

    def share(found):
        same = [a == b for a, b in zip(found, exact, strict=True)]
        return sum(same) / len(same)

    agrees = share(plain) >= 0.998 and share(halves) >= 0.99
    return {"fp32": share(plain), "bf16": share(halves), "agrees": agrees}


def speed(sizes, device, precision, positions, compiled, seconds):
    """Tokens a second of whole updates, for about so many seconds."""
    model = Transformer(sizes).to(device)
    shared = torch.compile(model) if compiled else model
    adam, _ = noam(model, TrainConfig().warmup)
    batch = there(a_batch(sizes, positions, LENGTH), device)
    tokens = batch.tgt_out.numel()

    def update():
        adam.zero_grad()
        accumulate(
            shared,
            [batch],
            tokens=tokens,
            pad_id=sizes.pad_id,
            precision=precision,
            processes=On(device),
        )
        adam.step()

    for _ in range(3):  # sets things up
        update()
    start, count = clock(device), 0
    while time.perf_counter() - start < seconds:
        update()
        count += 1
    rate = count * tokens / (clock(device) - start)
    flops = (
        rate
        * training_flops(
            sizes, tokens, tokens, src_length=LENGTH, tgt_length=LENGTH
        )
        / tokens
    )
    return {"tokens_per_second": round(rate), "flops_per_second": flops}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument(
        "--peak",
        type=float,
        default=None,
        help="bf16 peak of the GPU, operations a second",
    )
    options = parser.parse_args()
    if not options.rehearse and not torch.cuda.is_available():
        print("gpu_check: there is no GPU here", file=sys.stderr)
        return 2
    device = torch.device("cpu" if options.rehearse else "cuda")
    begin = time.perf_counter()
    name = "processor" if options.rehearse else torch.cuda.get_device_name()
    peak = options.peak or DEVICES["h200x1"].peak["bf16"]
    torch.manual_seed(0)
    record = {
        "device": name,
        "torch": torch.__version__,
        "assumed_peak": peak,
        "training": check_training(device),
        "decoding": check_decoding(device),
        "speed": [],
    }
    presets = {
        "base": tl.TransformerConfig.base(37_000),
        "big": tl.TransformerConfig.big(37_000),
    }
    if options.rehearse:
        presets = {"tiny": tl.TransformerConfig.tiny(1000)}
    for preset, sizes in presets.items():
        for compiled in (False, True):
            if time.perf_counter() - begin > 360:  # keep to eight minutes
                break
            if options.rehearse and compiled:
                continue
            positions, seconds = (300, 1) if options.rehearse else (3125, 20)
            found = speed(sizes, device, "bf16", positions, compiled, seconds)
            found["utilisation"] = found["flops_per_second"] / peak
            record["speed"].append(
                {"model": preset, "compiled": compiled, **found}
            )
    record["seconds"] = round(time.perf_counter() - begin)
    text = json.dumps(record, indent=1) + "\n"
    print(text, end="")
    if not options.rehearse:
        (ROOT / "results" / "gpu.json").write_text(text)
    return (
        0 if all(record[x]["agrees"] for x in ("training", "decoding")) else 1
    )


if __name__ == "__main__":
    sys.exit(main())
