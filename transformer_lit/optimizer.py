"""5.3 Optimizer.

From book/05_3_optimizer.md.
"""

# Written by tools/export.py. Edit the chapter instead.

from torch.optim import Adam
from torch.optim.lr_scheduler import LambdaLR

from transformer_lit.model import Transformer


# 05_3_optimizer: The schedule
def noam_rate(
    step: int, d_model: int, warmup: int = 4000, factor: float = 1.0
) -> float:
    """The learning rate, equation 3 of section 5.3.

    Args:
        step: counted from 1.
        d_model: D.
        warmup: steps of linear growth.
        factor: a constant in front; the paper has none, that is 1.

    Raises:
        ValueError: step or warmup is below 1.
    """
    if step < 1 or warmup < 1:
        raise ValueError(f"step={step} and warmup={warmup} must be at least 1")
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


# 05_3_optimizer: Adam and schedule together
def noam(
    model: Transformer, warmup: int = 4000, factor: float = 1.0
) -> tuple[Adam, LambdaLR]:
    """Adam and the schedule of section 5.3.

    Call `adam.step()`, then `schedule.step()`, once an update.

    Args:
        model: whose parameters to learn.
        warmup, factor: as in `noam_rate`.
    """
    d_model = model.config.d_model
    adam = Adam(
        model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=True
    )
    schedule = LambdaLR(
        adam, lambda done: noam_rate(done + 1, d_model, warmup, factor)
    )
    return adam, schedule


__all__ = [
    "noam",
    "noam_rate",
]
