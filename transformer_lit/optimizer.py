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


# 05_3_optimizer: How a run ends
def cooled(step: int, steps: int, cooldown: int) -> float:
    """The share of the learning rate that is left near a run's end; ours.

    It is 1 until the last `cooldown` updates, and then falls along a line
    that reaches 0 one update after the last.

    Args:
        step: counted from 1.
        steps: updates in all.
        cooldown: how many of them; 0: none, as in the paper.

    Raises:
        ValueError: cooldown is negative, or longer than the run.
    """
    if not 0 <= cooldown <= steps:
        raise ValueError(
            f"cooldown={cooldown} must lie between 0 and steps={steps}"
        )
    if cooldown == 0:
        return 1.0
    return min(1.0, max(0, steps + 1 - step) / cooldown)


# 05_3_optimizer: Adam and schedule together
def noam(
    model: Transformer,
    warmup: int = 4000,
    factor: float = 1.0,
    *,
    steps: int = 0,
    cooldown: int = 0,
) -> tuple[Adam, LambdaLR]:
    """Adam and the schedule of section 5.3.

    Call `adam.step()`, then `schedule.step()`, once an update.

    Args:
        model: whose parameters to learn.
        warmup, factor: as in `noam_rate`.
        steps, cooldown: as in `cooled`; the paper has no cool-down.
    """
    d_model = model.config.d_model

    def rate(done: int) -> float:
        share = cooled(done + 1, steps, cooldown)
        return share * noam_rate(done + 1, d_model, warmup, factor)

    adam = Adam(
        model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=True
    )
    schedule = LambdaLR(adam, rate)
    return adam, schedule


__all__ = [
    "cooled",
    "noam",
    "noam_rate",
]
