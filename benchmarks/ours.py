"""transformer_lit, through its public functions."""

import torch

import transformer_lit as tl
from benchmarks.cases import Case
from benchmarks.peer import (
    ALPHA,
    FACTOR,
    SMOOTHING,
    WARMUP,
    Decode,
    Peer,
    Update,
    learned,
)
from transformer_lit.batches import Batch
from transformer_lit.trainer import Alone, accumulate

# Options of ours that a case runs with, the place to try others.
CONFIG: dict[str, object] = {}  # of the TransformerConfig
TRAINING: dict[str, object] = {}  # of `accumulate`
SEARCH: dict[str, object] = {}  # of the two searches


def new_model(case: Case) -> tl.Transformer:
    """A model with random weights."""
    settings = {**vars(case.size.config()), **CONFIG}
    model = tl.Transformer(tl.TransformerConfig(**settings))
    return model.to(case.device)


class Adapter(Peer):
    """Ours."""

    def version(self) -> str:
        return tl.__version__

    def updates(self, case: Case) -> Update:
        model = new_model(case).train()
        adam, schedule = tl.noam(model, WARMUP, FACTOR)
        alone = Alone()
        alone.device = torch.device(case.device)
        precision = "bf16" if case.precision == "bf16" else "fp32"

        def update(batch: Batch) -> float:
            tokens = int((batch.tgt_out != tl.PAD).sum())
            adam.zero_grad()
            sums = accumulate(
                model,
                [batch],
                tokens=tokens,
                pad_id=tl.PAD,
                smoothing=SMOOTHING,
                precision=precision,
                processes=alone,
                **TRAINING,  # type: ignore[arg-type]
            )
            self.parameters = learned(model)
            adam.step()
            schedule.step()
            return float(sums[0]) / tokens

        return update

    def decoder(self, case: Case) -> Decode:
        model = new_model(case).eval()
        # The end token's logit is 0, never among the best: nothing ends
        # before its limit, which counts from the source's length.
        model.output.weight.data[tl.EOS] = 0
        src, steps = case.lengths[0][0]
        options = {"max_extra": steps - src, **SEARCH}

        def decode(ids: torch.Tensor) -> list[list[int]]:
            if case.beam == 1:
                found = tl.greedy_search(model, ids, **options)  # type: ignore
            else:
                found = tl.beam_search(
                    model,
                    ids,
                    beam_size=case.beam,
                    alpha=ALPHA,
                    n_best=1,
                    **options,  # type: ignore[arg-type]
                )
            return [best.tokens for best, *_ in found]

        return decode
