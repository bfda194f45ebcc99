"""Planted faults: each must turn a named test red.

    python tests/mutants.py           print the table in Markdown
    python tests/mutants.py NAME      plant one and show what its test says

A test that has never been red proves little. Each line of the table changes
one place of a copy of the package and names a test that has to fail, by an
assertion of its own, when it runs against that copy. The last column is the
fault of a well-known implementation, or the question of its users, that the
change mirrors.
"""

import faulthandler
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
PATIENCE = 240  # seconds: a slow test on a busy machine takes 60
PACKAGE = ROOT / "transformer_lit"


@dataclass(frozen=True)
class Mutant:
    """A planted fault.

    Attributes:
        name: what is wrong.
        module: where, a module of the package.
        snippet: the right code; it must stand there exactly once.
        replacement: the wrong code.
        test: which test turns red, as pytest names it.
        mirrors: where the fault was seen.
    """

    name: str
    module: str
    snippet: str
    replacement: str
    test: str
    mirrors: str

    def source(self) -> str:
        """The module's text with the fault in it."""
        text = (PACKAGE / f"{self.module}.py").read_text(encoding="utf-8")
        count = text.count(self.snippet)
        if count != 1:
            raise LookupError(
                f"{self.name!r}: {self.module}.py holds {count} times, not "
                f"once:\n{self.snippet}"
            )
        return text.replace(self.snippet, self.replacement)


MUTANTS = [
    # -- masks ---------------------------------------------------------------
    Mutant(
        "padding masked on the query axis",
        "masks",
        "(ids != pad_id)[:, None, None, :]",
        "(ids != pad_id)[:, None, :, None]",
        "test_masks.py::test_the_padding_mask_is_true_where_a_key_is_a_token",
        "hyunwoongko/transformer 40; bentrevett/pytorch-seq2seq 96, 73",
    ),
    Mutant(
        "the next token is seen",
        "masks",
        "return ones.tril()",
        "return ones.tril(1)",
        "test_model.py::"
        "test_a_later_target_token_changes_no_earlier_output[fused-train]",
        "jadore801120/attention-is-all-you-need-pytorch 19, 13",
    ),
    Mutant(
        "a token does not see itself",
        "masks",
        "return ones.tril()",
        "return ones.tril(-1)",
        "test_model.py::"
        "test_the_model_equals_torch_nn_in_outputs_and_all_gradients",
        "jadore801120/attention-is-all-you-need-pytorch 19, 13",
    ),
    Mutant(
        "the target's padding is not masked",
        "masks",
        "return padding_mask(ids, pad_id) & causal_mask(",
        "return padding_mask(ids, -1) & causal_mask(",
        "test_masks.py::test_the_target_mask_is_both_at_once",
        "hyunwoongko/transformer 11",
    ),
    # -- dropout -------------------------------------------------------------
    Mutant(
        "dropout without enlarging",
        "stacks",
        "ctx.scale = LEVELS / (LEVELS - dropped)",
        "ctx.scale = 1.0",
        "test_stacks.py::test_the_mean_is_kept_to_the_rounding_of_the_rate",
        "-",
    ),
    Mutant(
        "dropout draws numbers that are never negative",
        "stacks",
        "numbers.random_(-(2**63), None)",
        "numbers.random_()",
        "test_stacks.py::test_the_rate_is_right_in_every_lane",
        "-",
    ),
    Mutant(
        "dropout forgets its pattern backward",
        "stacks",
        "(grad * kept.to(grad.dtype)).mul_(ctx.scale), None",
        "grad, None",
        "test_stacks.py::"
        "test_dropout_drops_or_enlarges_and_learns_of_what_is_left",
        "-",
    ),
    # -- attention -----------------------------------------------------------
    Mutant(
        "no scale",
        "attention",
        "q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])",
        "q @ k.transpose(-2, -1)",
        "test_attention.py::test_the_fused_path_equals_the_formula",
        "karpathy/nanoGPT 331: two paths that disagree",
    ),
    Mutant(
        "scaled by d_k, not by its root",
        "attention",
        "math.sqrt(q.shape[-1])",
        "q.shape[-1]",
        "test_attention.py::test_attention_is_equation_1_query_by_query",
        "karpathy/nanoGPT 331: two paths that disagree",
    ),
    Mutant(
        "softmax over the queries",
        "attention",
        "weights = scores.softmax(-1).masked_fill",
        "weights = scores.softmax(-2).masked_fill",
        "test_attention.py::"
        "test_weights_are_a_distribution_over_the_keys_that_may_be_seen",
        "jadore801120/attention-is-all-you-need-pytorch 19",
    ),
    Mutant(
        "a query with nothing to attend to is NaN",
        "attention",
        "~(mask | is_empty(mask)), -torch.inf)\n"
        "        weights = scores.softmax(-1).masked_fill(~mask, 0.0)",
        "~mask, -torch.inf)\n        weights = scores.softmax(-1)",
        "test_attention.py::"
        "test_a_query_with_nothing_to_attend_to_gives_zeros[plain]",
        "pytorch 103749, 109517; transformers 32390, 38690",
    ),
    Mutant(
        "a query with nothing to attend to reads the mean of all values",
        "attention",
        "return mixed.masked_fill(empty, 0.0)",
        "return mixed",
        "test_attention.py::"
        "test_a_query_with_nothing_to_attend_to_gives_zeros[fused]",
        "tensor2tensor's first code: a mask of -1e9",
    ),
    Mutant(
        "heads interleaved",
        "attention",
        "x.unflatten(-1, (n_heads, -1)).transpose(1, 2)",
        "x.unflatten(-1, (-1, n_heads)).movedim(-1, 1)",
        "test_attention.py::test_head_h_takes_the_h_th_columns",
        "ml-explore/mlx 1636: wiring",
    ),
    Mutant(
        "heads cut by view, without a transpose",
        "attention",
        "x.unflatten(-1, (n_heads, -1)).transpose(1, 2)",
        "x.reshape(x.shape[0], n_heads, x.shape[1], -1)",
        "test_attention.py::test_multi_head_attention_equals_torch_nn",
        "ml-explore/mlx 1636: wiring",
    ),
    Mutant(
        "heads merged in the wrong order",
        "attention",
        "x.transpose(1, 2).flatten(2)",
        "x.movedim(1, -1).flatten(2)",
        "test_attention.py::test_merging_is_the_inverse_of_splitting",
        "ml-explore/mlx 1636: wiring",
    ),
    Mutant(
        "the values are the keys",
        "attention",
        "v = split_heads(self.w_v(memory), self.n_heads)",
        "v = split_heads(self.w_k(memory), self.n_heads)[..., : self.w_v"
        ".out_features // self.n_heads]",
        "test_model.py::"
        "test_the_model_equals_torch_nn_in_outputs_and_all_gradients",
        "bentrevett/pytorch-seq2seq 143: whose keys, whose values",
    ),
    Mutant(
        "no gain in the start of q, k, v",
        "attention",
        "glorot(linear, gain=math.sqrt(0.5))",
        "glorot(linear)",
        "test_attention.py::"
        "test_queries_keys_and_values_start_at_a_thirty_second",
        "harvardnlp/annotated-transformer: Xavier everywhere",
    ),
    Mutant(
        "no bias on the output map",
        "attention",
        "self.w_o = nn.Linear(n_heads * d_v, d_model, bias)",
        "self.w_o = nn.Linear(n_heads * d_v, d_model, False)",
        "test_config.py::"
        "test_the_formula_equals_the_model_for_any_sizes_and_deviations",
        "tensor2tensor c10e0160: biases dropped",
    ),
    Mutant(
        "weights dropped in eval mode, too",
        "attention",
        "p_drop = self.p_drop if self.training else 0.0",
        "p_drop = self.p_drop",
        "test_attention.py::test_weights_are_dropped_in_train_mode_only[True]",
        "shiyu-coder/Kronos 199: behaviour by mode",
    ),
    # -- stacks --------------------------------------------------------------
    Mutant(
        "LayerNorm with the unbiased variance",
        "stacks",
        "variance = (x - mean).square().mean(-1, keepdim=True)",
        "variance = x.var(-1, keepdim=True)",
        "test_stacks.py::test_the_variance_is_the_biased_one",
        "harvardnlp/annotated-transformer 122, 119; BERT-pytorch 30",
    ),
    Mutant(
        "eps outside the root",
        "stacks",
        "torch.sqrt(variance + eps)",
        "(torch.sqrt(variance) + eps)",
        "test_stacks.py::test_the_formula_equals_the_fused_kernel",
        "harvardnlp/annotated-transformer 122, 119",
    ),
    Mutant(
        "no residual connection",
        "stacks",
        "x = x + self.dropout(y)",
        "x = self.dropout(y)",
        "test_stacks.py::test_an_encoder_layer_equals_torch_nn",
        "pytorch 61165; ml-explore/mlx 3382",
    ),
    Mutant(
        "pre-norm under the name of post-norm",
        "stacks",
        "self.pre_norm = pre_norm",
        "self.pre_norm = True",
        "test_stacks.py::test_post_norm_normalises_the_sum",
        "harvardnlp/annotated-transformer 1, 13, 92",
    ),
    Mutant(
        "dropout before the sub-layer",
        "stacks",
        "return self.norm(x) if self.pre_norm else x",
        "return self.dropout(self.norm(x) if self.pre_norm else x)",
        "test_stacks.py::test_what_the_sub_layer_reads_is_not_dropped",
        "tensor2tensor base_v2: three dropouts",
    ),
    Mutant(
        "dropout behind the norm",
        "stacks",
        "x = x + self.dropout(y)\n"
        "        return x if self.pre_norm else self.norm(x)",
        "x = x + y\n"
        "        return self.dropout(x if self.pre_norm else self.norm(x))",
        "test_stacks.py::"
        "test_post_norm_output_is_normalised_whatever_was_dropped",
        "jadore801120/attention-is-all-you-need-pytorch 142, 150",
    ),
    Mutant(
        "cross-attention reads the decoder, not the memory",
        "stacks",
        "self.cross_attention.attend(h, k, v, src_mask, maps)",
        "self.cross_attention.attend(\n"
        "            h, *self.cross_attention.keys_values(h), None, maps\n"
        "        )",
        "test_stacks.py::test_a_decoder_layer_equals_torch_nn",
        "bentrevett/pytorch-seq2seq 143; pytorch 61165",
    ),
    Mutant(
        "one norm shared by two sub-layers",
        "stacks",
        "self.residual_3 = residual(config)",
        "self.residual_3 = self.residual_2",
        "test_config.py::test_parameters_are_counted_exactly[config4-61504]",
        "bentrevett/pytorch-seq2seq 100",
    ),
    Mutant(
        "the cache keeps the newest values only",
        "stacks",
        "v = torch.cat([self.past[1], v], dim=2)",
        "v = v.expand(-1, -1, k.shape[2], -1)",
        "test_model.py::"
        "test_writing_step_by_step_equals_the_teacher_forced_pass",
        "harvardnlp/annotated-transformer 47: training and writing",
    ),
    Mutant(
        "selecting rows forgets the values' order",
        "stacks",
        "self.past = self.past[0][rows], self.past[1][rows]",
        "self.past = self.past[0][rows], self.past[1][rows.sort()[0]]",
        "test_model.py::test_step_by_step_survives_"
        "reordering_dropping_and_repeating_rows",
        "jadore801120/attention-is-all-you-need-pytorch 28: beams mixed",
    ),
    # -- embeddings, positions -----------------------------------------------
    Mutant(
        "no sqrt(d_model)",
        "embeddings",
        "self.scale = math.sqrt(d_model) if scale else 1.0",
        "self.scale = 1.0",
        "test_embeddings.py::test_reading_takes_rows_times_the_root_of_d",
        "hyunwoongko/transformer 28",
    ),
    Mutant(
        "the logits are scaled instead",
        "embeddings",
        "return F.linear(x, self.weight)",
        "return F.linear(x, self.weight) / self.scale",
        "test_embeddings.py::"
        "test_logits_are_inner_products_without_scale_or_bias",
        "jadore801120/attention-is-all-you-need-pytorch 138, 210",
    ),
    Mutant(
        "the embedding starts with variance 1",
        "embeddings",
        "nn.init.normal_(self.weight, std=d_model**-0.5)",
        "nn.init.normal_(self.weight)",
        "test_embeddings.py::"
        "test_the_matrix_starts_normal_with_variance_one_over_d",
        "d2l: the default of nn.Embedding",
    ),
    Mutant(
        "positions shifted by one",
        "positions",
        "torch.arange(start, start + length, dtype",
        "torch.arange(start + 1, start + length + 1, dtype",
        "test_positions.py::test_sinusoids_are_the_formula_element_by_element",
        "Kyubyong/transformer 19",
    ),
    Mutant(
        "sine and cosine exchanged",
        "positions",
        "torch.stack([angles.sin(), angles.cos()], dim=-1)",
        "torch.stack([angles.cos(), angles.sin()], dim=-1)",
        "test_positions.py::test_position_0_is_all_sines_0_and_cosines_1",
        "Kyubyong/transformer 19",
    ),
    Mutant(
        "the exponent counts channels twice",
        "positions",
        "rates = 10000.0 ** (-pairs / last)",
        "rates = 10000.0 ** (-2 * pairs / last)",
        "test_positions.py::"
        "test_the_released_ladder_reaches_exactly_10000_times_2_pi[32]",
        "OpenNMT-py 884",
    ),
    Mutant(
        "the rates are computed in single precision",
        "positions",
        "pairs = torch.arange(d_model // 2, dtype=torch.float64)",
        "pairs = torch.arange(d_model // 2, dtype=torch.float32)",
        "test_positions.py::test_a_step_ahead_is_a_rotation",
        "Kyubyong/transformer 19; OpenNMT-py 884",
    ),
    Mutant(
        "one table for every dtype",
        "positions",
        "table = self.tables.get((x.device, x.dtype))",
        "table = next(iter(self.tables.values()), None)",
        "test_positions.py::test_a_cast_there_and_back_loses_nothing",
        "fairseq 5213; espnet 1060",
    ),
    # -- model ---------------------------------------------------------------
    Mutant(
        "the output matrix is not tied",
        "model",
        "self.tgt_embedding = self.output = self.src_embedding",
        "self.tgt_embedding = self.src_embedding\n"
        "        self.output = token_embedding(config)",
        "test_embeddings.py::"
        "test_tied_is_one_storage_after_everything_and_untied_is_three[True]",
        "OpenNMT-tf 363; OpenNMT-py 560; nematus 117",
    ),
    Mutant(
        "the tie is lost by loading",
        "model",
        "    return model.float().eval()",
        "    model.output = token_embedding(model.config)\n"
        "    model.output.load_state_dict(model.src_embedding.state_dict())\n"
        "    return model.float().eval()",
        "test_embeddings.py::"
        "test_tied_is_one_storage_after_everything_and_untied_is_three[True]",
        "fairseq 743; OpenNMT-tf 363",
    ),
    Mutant(
        "evaluation sees the future",
        "model",
        "tgt_mask = target_mask(tgt_in, self.config.pad_id)",
        "tgt_mask = target_mask(tgt_in, self.config.pad_id)\n"
        "        if not self.training:\n"
        "            tgt_mask = padding_mask(tgt_in, self.config.pad_id)",
        "test_model.py::"
        "test_a_later_target_token_changes_no_earlier_output[plain-eval]",
        "shiyu-coder/Kronos 199; d2l, decoder block",
    ),
    Mutant(
        "the memory's padding is read",
        "model",
        "tgt_mask = target_mask(tgt_in, self.config.pad_id)\n"
        "        src_mask = padding_mask(src, self.config.pad_id)",
        "tgt_mask = target_mask(tgt_in, self.config.pad_id)\n"
        "        src_mask = padding_mask(src, -1)",
        "test_model.py::"
        "test_a_sentence_gives_the_same_logits_alone_and_in_any_batch",
        "OpenNMT-py 137; Kyubyong/transformer 69",
    ),
    Mutant(
        "a final norm after post-norm layers",
        "model",
        "if config.pre_norm:\n        return LayerNorm",
        "if True:\n        return LayerNorm",
        "test_config.py::test_parameters_are_counted_exactly[config4-61504]",
        "jadore801120/attention-is-all-you-need-pytorch 142: a norm too many",
    ),
    Mutant(
        "no dropout on embeddings and positions",
        "model",
        "x = self.dropout(self.src_positions(self.src_embedding(src)))",
        "x = self.src_positions(self.src_embedding(src))",
        "test_model.py::"
        "test_dropout_falls_on_the_sum_of_embedding_and_position[encoder]",
        "labml: none there",
    ),
    Mutant(
        "each step stands at position 0",
        "model",
        "self.tgt_positions(x, start)",
        "self.tgt_positions(x)",
        "test_model.py::"
        "test_writing_step_by_step_equals_the_teacher_forced_pass",
        "jadore801120/attention-is-all-you-need-pytorch 93",
    ),
    Mutant(
        "the target is read with the source's matrix",
        "model",
        "self.tgt_positions(self.tgt_embedding(tgt_in))",
        "self.tgt_positions(self.src_embedding(tgt_in))",
        "test_embeddings.py::"
        "test_untied_matrices_are_drawn_apart_and_used_each_in_its_place",
        "hyunwoongko/transformer 11: the source's for the target's",
    ),
    # -- configuration -------------------------------------------------------
    Mutant(
        "attention weights are dropped by default",
        "config",
        "p_drop_attention: float = 0.0",
        "p_drop_attention: float = 0.1",
        "test_config.py::test_the_default_is_the_papers_way[p_drop_attention]",
        "tensor2tensor base_v2 and most that quote it",
    ),
    Mutant(
        "LayerNorm's eps is torch's",
        "config",
        "layer_norm_eps: float = 1e-6",
        "layer_norm_eps: float = 1e-5",
        "test_config.py::test_the_default_is_the_papers_way[layer_norm_eps]",
        "labml, d2l, pytorch-original-transformer",
    ),
    # -- data ----------------------------------------------------------------
    Mutant(
        "the decoder reads what it must say",
        "batches",
        "[bos_id, *tgt[:-1]]",
        "list(tgt)",
        "test_batches.py::test_the_decoder_reads_the_target_behind_bos",
        "jadore801120/attention-is-all-you-need-pytorch 19",
    ),
    Mutant(
        "test numbers are trained on",
        "numbers",
        "if not is_held_out(number):",
        "if number >= 0:",
        "test_numbers.py::test_a_number_to_train_on_is_never_held_out",
        "-",
    ),
    # -- loss ----------------------------------------------------------------
    Mutant(
        "padding is learned",
        "loss",
        "targets, ignore_index=pad_id,",
        "targets, ignore_index=-100,",
        "test_loss.py::test_padding_gets_no_gradient",
        "jadore801120/attention-is-all-you-need-pytorch 165",
    ),
    Mutant(
        "the smoothing's mass is shared with the target",
        "loss",
        "for_all = smoothing * W / max(W - 1, 1)",
        "for_all = smoothing",
        "test_loss.py::test_the_default_is_a_tenth_over_the_others",
        "peers share it among W, W - 1 or W - 2 tokens, unsaid",
    ),
    Mutant(
        "perplexity from the smoothed loss",
        "loss",
        "LossSums(loss, nll.detach(), real.sum())",
        "LossSums(loss, loss.detach(), real.sum())",
        "test_loss.py::test_nll_is_the_true_one_whatever_the_smoothing",
        "OpenNMT-py 464, 462",
    ),
    Mutant(
        "means instead of sums",
        "loss",
        'reduction="sum")',
        'reduction="mean")',
        "test_loss.py::test_all_three_are_sums_over_the_real_tokens",
        "transformers 37474; OpenNMT-py 2022: mean of means",
    ),
    Mutant(
        "the fused loss counts padding",
        "loss",
        "FusedLoss.apply(x[real], weight, targets[real], for_all)",
        "FusedLoss.apply(x.flatten(0, 1), weight, targets.flatten(), for_all)",
        "test_loss.py::test_the_fused_loss_equals_the_loss_of_the_logits",
        "jadore801120/attention-is-all-you-need-pytorch 165",
    ),
    Mutant(
        "the fused gradient forgets the even part",
        "loss",
        "log_p.exp_().sub_(for_all / len(weight))",
        "log_p.exp_()",
        "test_loss.py::test_the_fused_loss_equals_the_loss_of_the_logits",
        "-",
    ),
    Mutant(
        "the fused gradient ignores what the loss is multiplied by",
        "loss",
        "return d_x * grad, d_weight * grad, None, None",
        "return d_x, d_weight, None, None",
        "test_loss.py::test_the_fused_loss_equals_the_loss_of_the_logits",
        "-",
    ),
    # -- optimiser and training ----------------------------------------------
    Mutant(
        "the warm-up's exponent",
        "optimizer",
        "step * warmup**-1.5",
        "step * warmup**-0.5",
        "test_optimizer.py::test_the_rate_of_the_base_model[1000-0.00017469]",
        "labml: a schedule told otherwise than done",
    ),
    Mutant(
        "the schedule starts at step 0",
        "optimizer",
        "noam_rate(done + 1, d_model",
        "noam_rate(max(done, 1), d_model",
        "test_optimizer.py::"
        "test_the_scheduler_gives_formula_3_at_every_step[1.0]",
        "harvardnlp/annotated-transformer: step 0 taken for step 1",
    ),
    Mutant(
        "the cool-down reaches zero too early",
        "optimizer",
        "max(0, steps + 1 - step)",
        "max(0, steps - step)",
        "test_optimizer.py::test_a_cooled_rate_falls_along_a_line_to_zero",
        "-",
    ),
    Mutant(
        "the log tells the rate without its cool-down",
        "trainer",
        "return share * noam_rate(",
        "return noam_rate(",
        "test_trainer.py::test_a_run_cools_down_and_the_log_says_so",
        "-",
    ),
    Mutant(
        "beta2 is Adam's default",
        "optimizer",
        "betas=(0.9, 0.98)",
        "betas=(0.9, 0.999)",
        "test_optimizer.py::test_adam_is_the_papers",
        "labml: .999",
    ),
    Mutant(
        "divided by all positions, padding included",
        "trainer",
        "(sums.loss * (processes.size / tokens)).backward()",
        "(sums.loss / batch.tgt_out.numel()).backward()",
        "test_trainer.py::test_more_padding_trains_the_same",
        "pytorch-original-transformer: batchmean",
    ),
    Mutant(
        "gradients pile up",
        "trainer",
        "        model.train()\n        adam.zero_grad()\n",
        "        model.train()\n",
        "test_trainer.py::test_training_equals_the_same_by_hand",
        "joeynmt 81: accumulation",
    ),
    Mutant(
        "training in the mode that the model came in",
        "trainer",
        "        model.train()\n",
        "",
        "test_trainer.py::test_training_drops_and_the_mode_stays",
        "d2l: modes mixed up",
    ),
    # -- decoding ------------------------------------------------------------
    Mutant(
        "greedy search goes on behind the end",
        "decoding",
        "goes_on = (ids != config.eos_id) & (length",
        "goes_on = (ids != -1) & (length",
        "test_decoding.py::test_each_sentence_ends_in_its_own_time",
        "harvardnlp/annotated-transformer: greedy_decode",
    ),
    Mutant(
        "rows of the batch mixed up",
        "decoding",
        "rows, ids = rows[keep], ids[keep]",
        "rows, ids = rows[: len(keep)], ids[keep]",
        "test_decoding.py::"
        "test_a_batch_is_decoded_like_its_sentences_one_by_one",
        "OpenNMT-py 137; jadore801120 28",
    ),
    Mutant(
        "writing begins with the padding",
        "decoding",
        "torch.full_like(rows, config.bos_id)",
        "torch.full_like(rows, config.pad_id)",
        "test_decoding.py::test_greedy_search_equals_the_naive_loop",
        "harvardnlp/annotated-transformer 127, 106, 116",
    ),
    Mutant(
        "scores that are no log-probabilities",
        "decoding",
        "log_probs = log_probs_of(ids[:, None], logits)[:, 0]",
        "log_probs = logits.max(-1).values",
        "test_decoding.py::"
        "test_the_reported_log_prob_is_the_teacher_forced_one",
        "jadore801120/attention-is-all-you-need-pytorch 93",
    ),
    Mutant(
        "the limit depends on the longest sentence of the batch",
        "decoding",
        "room = (src != config.pad_id).sum(1) + max_extra",
        "room = (src != -1).sum(1) + max_extra",
        "test_decoding.py::"
        "test_without_an_end_the_limit_is_the_input_and_max_extra",
        "OpenNMT-py 137: batch size changes BLEU",
    ),
    Mutant(
        "the search stops when its first output ends",
        "decoding",
        "return self.best[-1].score if full else -math.inf",
        "return self.best[-1].score if full else -math.inf if not self.best "
        "else 0.0",
        "test_decoding.py::"
        "test_beam_search_equals_the_same_search_that_never_stops_early",
        "joeynmt 148, 149",
    ),
    Mutant(
        "a bound that is not optimistic",
        "decoding",
        "bound = best[row] / length_penalty(room[sentence], alpha)",
        "bound = best[row] / penalty",
        "test_decoding.py::test_a_longer_output_may_win_after_all",
        "joeynmt 148, 149",
    ),
    Mutant(
        "beams of different sentences mixed",
        "decoding",
        "self.cache.reorder((first[:, None] + parents).flatten())",
        "self.cache.reorder((first[:, None] * 0 + parents).flatten())",
        "test_decoding.py::"
        "test_a_batch_is_searched_like_its_sentences_one_by_one",
        "jadore801120/attention-is-all-you-need-pytorch 28",
    ),
    Mutant(
        "the cache does not follow the beams",
        "decoding",
        "torch.index_select(self.here[:, :, : self.length], 0, rows, out=used)",
        "used.copy_(self.here[torch.arange(len(rows)) % len(self.here)]"
        "[:, :, : self.length])",
        "test_decoding.py::"
        "test_every_reported_log_prob_is_the_teacher_forced_one",
        "fairseq: reorder_incremental_state forgotten",
    ),
    Mutant(
        "the end token does not count in the length",
        "decoding",
        "length = beams.cache.ids.shape[1]\n    log_probs, parents",
        "length = beams.cache.ids.shape[1] - 1\n    log_probs, parents",
        "test_decoding.py::"
        "test_a_beam_that_drops_nothing_finds_all_in_order[0.6]",
        "tensor2tensor: len counts EOS",
    ),
    Mutant(
        "as many continuations as beams",
        "decoding",
        "beams.log_probs, logits, 2 * size",
        "beams.log_probs, logits, size + 1",
        "test_decoding.py::"
        "test_beam_search_equals_the_same_search_that_never_stops_early",
        "tensor2tensor: top 2 x beam",
    ),
    # -- averaging -----------------------------------------------------------
    Mutant(
        "checkpoints summed in single precision",
        "averaging",
        "weight.detach().double()",
        "weight.detach().clone()",
        "test_averaging.py::test_the_sum_is_kept_in_double_precision",
        "fairseq average_checkpoints: half precision",
    ),
    Mutant(
        "the oldest checkpoints instead of the last",
        "averaging",
        "newest = [*reversed(checkpoints_by_step(Path(run)).values())]",
        "newest = [*checkpoints_by_step(Path(run)).values()]",
        "test_averaging.py::test_the_last_are_the_newest_oldest_first",
        "tensor2tensor: step numbers as text",
    ),
    # -- translator ----------------------------------------------------------
    Mutant(
        "outputs in the order of their lengths",
        "translator",
        "for i, kept in zip(batch, hypotheses, strict=True):",
        "for i, kept in zip(sorted(batch), hypotheses, strict=True):",
        "test_translator.py::test_hypotheses_are_the_beams_as_text",
        "fairseq generate: order of the output",
    ),
    # -- bleu ----------------------------------------------------------------
    Mutant(
        "output and reference exchanged",
        "bleu",
        "metric.corpus_score(ours, [theirs])",
        "metric.corpus_score(theirs, [ours])",
        "test_bleu.py::test_too_long_and_too_short_by_hand",
        "bentrevett/pytorch-seq2seq 62",
    ),
    Mutant(
        "hyphens split with case ignored",
        "bleu",
        "return split_hyphens(moses(language)(text))",
        "return split_hyphens(moses(language)(text).lower())",
        "test_bleu.py::"
        "test_a_text_against_itself_scores_100_and_in_capitals_by_case",
        "tensorflow/models: case-insensitive BLEU",
    ),
    # -- hardware ------------------------------------------------------------
    Mutant(
        "the decoder reads its own length in the encoder",
        "hardware",
        "tgt_tokens * (tgt_length + src_length)",
        "tgt_tokens * (tgt_length + tgt_length)",
        "test_hardware.py::test_forward_flops_equal_what_torch_counts",
        "karpathy/nanoGPT: estimate_mfu knows one stack and one length",
    ),
    Mutant(
        "backward costs as much as forward",
        "hardware",
        "return 3 * sum(parts.values()) + again",
        "return 2 * sum(parts.values()) + again",
        "test_hardware.py::test_training_flops_equal_what_torch_counts",
        "-",
    ),
    Mutant(
        "dropout's noise takes no memory",
        "hardware",
        "noise = frames + 1 if config.p_drop else 0",
        "noise = 0",
        "test_hardware.py::"
        "test_the_kept_bytes_are_those_of_the_formula[plain-(6, 7, 9)-fp32]",
        "-",
    ),
    Mutant(
        "one GPU's time for eight",
        "hardware",
        "return flops / (utilisation * device.count * device.peak[precision])",
        "return flops / (utilisation * device.peak[precision])",
        "test_hardware.py::test_the_papers_machine_takes_the_papers_time[base]",
        "-",
    ),
    # -- corpora and batches by tokens ---------------------------------------
    Mutant(
        "a pair is lost between two rectangles",
        "batches",
        "        start += size\n",
        "        start += size + 1\n",
        "test_batches.py::test_every_pair_is_in_an_epoch_once",
        "-",
    ),
    Mutant(
        "every epoch in the same order",
        "batches",
        "np.random.default_rng([seed, epoch])",
        "np.random.default_rng([seed, 0])",
        "test_batches.py::test_each_seed_and_each_epoch_gives_another_plan",
        "-",
    ),
    Mutant(
        "short sentences first, long ones last",
        "batches",
        "order = rng.permutation(len(found))",
        "order = np.arange(len(found))",
        "test_batches.py::test_long_and_short_updates_are_mixed",
        "-",
    ),
    Mutant(
        "the longer of two files is cut",
        "corpus",
        "both = zip_longest(src_file, tgt_file)",
        "both = zip(src_file, tgt_file)",
        "test_corpus.py::test_files_of_unequal_length_are_refused[en-]",
        "-",
    ),
    Mutant(
        "a line is dropped from a test set",
        "corpus",
        'elif split == "train":',
        "elif split:",
        "test_corpus.py::"
        "test_a_faulty_line_of_a_test_set_is_refused[empty line]",
        "-",
    ),
    Mutant(
        "pieces learned from the test set too",
        "corpus",
        'for pair in tqdm(split_lines(config, "train"), "read", disable=None):',
        'for pair in (p for s in ("valid", "train") for p in split_lines(config, s)):',
        "test_corpus.py::test_pieces_are_learned_from_the_training_text_alone",
        "-",
    ),
    Mutant(
        "a broken download is taken for whole",
        "corpus",
        "if file.tell() < size:",
        "if file.tell() < 0:",
        "test_corpus.py::test_a_broken_download_goes_on_where_it_stopped",
        "-",
    ),
    Mutant(
        "the target's first token is read as source",
        "corpus",
        "return ids[: middle - start], ids[middle - start :]",
        "return ids[: middle - start + 1], ids[middle - start + 1 :]",
        "test_corpus.py::test_every_pair_comes_back_in_its_order",
        "-",
    ),
    # -- runs ----------------------------------------------------------------
    Mutant(
        "each part divided by its own tokens",
        "trainer",
        "(sums.loss * (processes.size / tokens)).backward()",
        "(sums.loss / sums.tokens / len(batches)).backward()",
        "test_trainer.py::"
        "test_an_update_cut_in_every_way_gives_one_gradient[[[0], [1, 2]]]",
        "transformers 37474: a mean of means",
    ),
    Mutant(
        "masks depend on what was drawn before",
        "trainer",
        "            seed_all(*seed, batch.number)\n",
        "            pass\n",
        "test_trainer.py::test_masks_depend_on_seed_update_and_batch_alone",
        "-",
    ),
    Mutant(
        "the log's perplexity is that of the objective",
        "trainer",
        '"perplexity": math.exp(nll / tokens),',
        '"perplexity": math.exp(loss / tokens),',
        "test_checkpoints.py::test_the_log_tells_what_a_run_did",
        "OpenNMT-py 464, 462",
    ),
    Mutant(
        "an update starts the epoch's order anew after a stop",
        "trainer",
        'POSITION = ("step", "epoch", "index", "best", "stale")',
        'POSITION = ("step", "epoch", "best", "stale")',
        "test_checkpoints.py::test_more_updates_go_on_and_equal_a_longer_run",
        "transformers: data are seen twice after a resume",
    ),
    Mutant(
        "a gradient that is not finite is used",
        "trainer",
        "    check_finite(norm, run, rectangles)\n",
        "",
        "test_trainer.py::test_a_gradient_that_is_not_finite_changes_nothing",
        "-",
    ),
    Mutant(
        "true is taken for a number",
        "trainer",
        "if allowed and type(value) not in allowed:",
        "if allowed and not isinstance(value, allowed):",
        "test_trainer.py::"
        "test_what_cannot_be_is_told_in_one_line[steps = true]",
        "-",
    ),
    Mutant(
        "a checkpoint is read without a look at its checksums",
        "checkpoints",
        "if not file.is_file() or file_sha256(file) != checksum:",
        "if not file.is_file():",
        "test_checkpoints.py::"
        "test_damage_is_found_and_the_one_before_is_taken"
        "[a flipped bit-weights.safetensors]",
        "-",
    ),
    Mutant(
        "a validation scored against its sources",
        "trainer",
        'references = read_text(run.data / "valid.tgt")',
        'references = read_text(run.data / "valid.src")',
        "test_trainer.py::test_a_validation_scores_the_models_own_translations",
        "-",
    ),
    # -- launching -----------------------------------------------------------
    Mutant(
        "the processes' gradients are never shared",
        "distributed",
        "return nullcontext() if last else several.no_sync()",
        "return several.no_sync()",
        "test_distributed.py::test_many_processes_train_what_one_trains[DDP]",
        "karpathy/build-nanogpt 30; davda54/sam 78",
    ),
    Mutant(
        "every process writes the file of the first",
        "distributed",
        "save_distributed=True, enable_consolidation=join",
        "save_distributed=join, enable_consolidation=join",
        "test_distributed.py::"
        "test_a_checkpoint_in_parts_holds_what_a_whole_one_holds",
        "-",
    ),
    Mutant(
        "parts of a write that was killed stay in the next one",
        "checkpoints",
        "    shutil.rmtree(part, ignore_errors=True)\n"
        "    part.mkdir(parents=True)",
        "    part.mkdir(parents=True, exist_ok=True)",
        "test_distributed.py::"
        "test_nothing_is_left_of_a_part_that_was_not_finished",
        "-",
    ),
    Mutant(
        "of a checkpoint in parts only the weights are read",
        "trainer",
        "tensors = {**dict(run.model.named_parameters()), "
        "**optimizer_tensors(run)}",
        "tensors = dict(run.model.named_parameters())",
        "test_distributed.py::"
        "test_a_run_in_parts_goes_on_with_any_number_of_processes",
        "-",
    ),
    Mutant(
        "processes that wait cost no time",
        "train",
        "turns = -(-count // device.count)  # rounded up",
        "turns = count // device.count or 1",
        "test_launch.py::test_a_plan_is_exact_in_its_parts",
        "-",
    ),
    Mutant(
        "the optimiser's step takes no time",
        "train",
        "rate = every / (one_pass * every + step)",
        "rate = every / (one_pass * every)",
        "test_launch.py::test_a_large_model_is_measured_in_part",
        "-",
    ),
    Mutant(
        "a divided model keeps all that Adam remembers",
        "train",
        "optimizer=memory.optimizer / count,",
        "optimizer=memory.optimizer,",
        "test_launch.py::"
        "test_a_divided_model_divides_its_state_and_nothing_else",
        "-",
    ),
    Mutant(
        "a fault of several lines",
        "train",
        "' '.join(str(error).split())",
        "error",
        "test_launch.py::test_a_fault_is_one_line[error0-2-x: two lines\\n]",
        "-",
    ),
    # -- ctranslate ----------------------------------------------------------
    Mutant(
        "an export shares the model's weights",
        "ctranslate",
        "return torch.cat([part.detach().float() for part in parts]).numpy()",
        "whole = torch.cat([part.detach().float() for part in parts])\n"
        "    return (parts[0].detach() if len(parts) == 1 else whole).numpy()",
        "test_ctranslate.py::test_the_model_is_not_changed_by_it[int8]",
        "CTranslate2 makes int8 of a matrix in place",
    ),
    Mutant(
        "an export has the library's number under LayerNorm's root",
        "ctranslate",
        "spec.config.layer_norm_epsilon = config.layer_norm_eps",
        "spec.config.layer_norm_epsilon = None",
        "test_ctranslate.py::test_greedy_search_is_the_same[another epsilon]",
        "CTranslate2's own default is 1e-5",
    ),
    Mutant(
        "the fast search forbids an empty output",
        "ctranslate",
        '"min_decoding_length": 0',
        '"min_decoding_length": 1',
        "test_ctranslate.py::test_an_empty_output_is_not_forbidden",
        "CTranslate2's own default is 1",
    ),
    # -- parsing -------------------------------------------------------------
    Mutant(
        "brackets in a set",
        "parsing",
        "SAME.get(label, label), start, end] += 1",
        "SAME.get(label, label), start, end] = 1",
        "test_parsing.py::test_two_equal_brackets_must_be_found_twice",
        "flyaway1217/PYEVALB: the common brackets are an intersection of sets",
    ),
    Mutant(
        "punctuation counts",
        "parsing",
        """frozenset("TOP S1 -NONE- , : `` '' .".split())""",
        """frozenset("TOP S1 -NONE-".split())""",
        "test_parsing.py::test_what_counts"
        "[(, ,) (ADVP (RB now))-(ADVP (, ,) (RB now))-counts9]",
        "-",
    ),
    Mutant(
        "a particle is no adverb",
        "parsing",
        'SAME = {"PRT": "ADVP"}',
        "SAME: dict[str, str] = {}",
        "test_parsing.py::test_a_search_bracket_by_bracket_counts_the_same"
        "[ours]",
        "-",
    ),
    Mutant(
        "sentences of other words count as wrong",
        "parsing",
        "        return BracketScore(sentences=1, errors=1)\n",
        "        return BracketScore(\n"
        "            sentences=1, errors=1, gold=a.brackets.total()\n"
        "        )\n",
        "test_parsing.py::"
        "test_a_sentence_with_other_words_is_counted_and_left_out"
        "[(S (NN x))-what0]",
        "-",
    ),
    Mutant(
        "a sentence's length without its punctuation",
        "parsing",
        'if label != "-NONE-":\n                self.length += 1',
        "if label not in DELETED:\n                self.length += 1",
        "test_parsing.py::test_the_cut_at_40_counts_marks_but_nothing_empty",
        "-",
    ),
    Mutant(
        "a closing label closes whatever is open",
        "parsing",
        "            while tree.close() != token[1:]:\n"
        '                tree.repairs["open, not closed"] += 1\n',
        "            tree.close()\n",
        "test_parsing.py::test_each_rule_of_repair[S VP NP NNP /VP VBZ /S-"
        "S (VP (NP ann)) sings-repairs10]",
        "-",
    ),
    Mutant(
        "words that got no tag are lost",
        "parsing",
        "    while tree.left:\n"
        '        tree.tag(mended_tag(tree.left[-1], "NN"))\n'
        '        tree.repairs["word without a tag"] += 1\n',
        "",
        "test_parsing.py::test_whatever_comes_out_every_word_has_its_place",
        "-",
    ),
    # -- complexity ----------------------------------------------------------
    Mutant(
        "attention has one map instead of four",
        "complexity",
        "mixing=2 * n**2 * d, maps=4 * n * d**2",
        "mixing=2 * n**2 * d, maps=n * d**2",
        "test_complexity.py::test_the_formulas_are_what_pytorch_counts",
        "often said: d_model^2 parameters per attention layer",
    ),
    Mutant(
        "a convolution's reach is its width",
        "complexity",
        "math.ceil((n - 1) / (self.k - 1))",
        "math.ceil((n - 1) / self.k)",
        "test_complexity.py::test_path_lengths_are_those_of_brute_force",
        "-",
    ),
    Mutant(
        "every dilated convolution doubles",
        "complexity",
        "return self.k**depth if",
        "return 2**depth if",
        "test_complexity.py::test_path_lengths_are_those_of_brute_force",
        "-",
    ),
    Mutant(
        "the first position reads zeros in front of it",
        "complexity",
        "scaled_dot_product(q, k, v, mask)",
        "scaled_dot_product(q, k, v)",
        "test_complexity.py::"
        "test_restricted_attention_is_attention_behind_a_mask",
        "-",
    ),
    Mutant(
        "a chain is the number of all operations",
        "complexity",
        "self.ends[y] = waited + 1\n",
        "self.ends[y] = waited = self.length\n",
        "test_complexity.py::test_a_chain_is_the_longest_way_through",
        "-",
    ),
    # -- modern --------------------------------------------------------------
    Mutant(
        "the newest query is turned as if it were the first",
        "modern",
        "start=k.shape[-2] - q.shape[-2])",
        "start=0)",
        "test_modern.py::"
        "test_a_variant_writes_token_by_token_what_it_writes_at_once",
        "skyzh/tiny-llm 46; lucidrains/rotary-embedding-torch 11",
    ),
    Mutant(
        "rotary pairs turn against each other",
        "modern",
        "even * cos - odd * sin",
        "even * cos + odd * sin",
        "test_modern.py::test_rotate_multiplies_complex_numbers",
        "-",
    ),
    Mutant(
        "ALiBi rewards distance",
        "modern",
        "alibi = -slopes *",
        "alibi = slopes *",
        "test_modern.py::test_alibi_takes_slope_times_distance_from_the_scores",
        "meta-pytorch/attention-gym 86",
    ),
    Mutant(
        "ALiBi's first slope is 1",
        "modern",
        "torch.arange(1, n_heads + 1,",
        "torch.arange(0, n_heads,",
        "test_modern.py::test_alibi_slopes_are_those_of_its_authors",
        "paiml/aprender 2143",
    ),
    Mutant(
        "ALiBi counts from the first key",
        "modern",
        "steps[S - T :, None] - steps",
        "steps[:T, None] - steps",
        "test_modern.py::test_alibi_takes_slope_times_distance_from_the_scores",
        "vllm-project/vllm 945",
    ),
    Mutant(
        "groups are dealt out in turn",
        "modern",
        "k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)",
        "k.repeat(1, share, 1, 1), v.repeat(1, share, 1, 1)",
        "test_modern.py::test_grouped_queries_are_torchs",
        "onnx/onnx 7274",
    ),
    Mutant(
        "the sum of a tile is not rescaled",
        "modern",
        "total = total * shrink + weights.sum",
        "total = total + weights.sum",
        "test_modern.py::test_tiles_make_the_same_attention",
        "-",
    ),
    Mutant(
        "RMSNorm divides by the standard deviation",
        "modern",
        "x.square().mean(-1, keepdim=True)",
        "x.var(-1, keepdim=True, correction=0)",
        "test_modern.py::test_rms_norm_is_torchs",
        "-",
    ),
    Mutant(
        "a language model that sees the future",
        "modern",
        "mask = staticmethod(target_mask)",
        "mask = staticmethod(padding_mask)",
        "test_modern.py::test_a_decoder_only_reads_on_as_if_it_had_read_all",
        "karpathy/nanoGPT 331",
    ),
    Mutant(
        "the zero key lends its weight to the first token",
        "modern",
        "weights[..., 1:]",
        "weights[..., :-1]",
        "test_modern.py::test_a_zero_key_adds_one_to_the_denominator",
        "-",
    ),
    # -- pictures ------------------------------------------------------------
    Mutant(
        "a row is called by the word that was read",
        "pictures",
        'maps_of_layer("cross", i + 1, both[2 * i + 1], written, read)',
        'maps_of_layer("cross", i + 1, both[2 * i + 1], seen, read)',
        "test_pictures.py::"
        "test_a_row_of_the_decoder_bears_the_word_that_is_written_there",
        "-",
    ),
    Mutant(
        "every layer of the decoder shows the first one's map",
        "pictures",
        '"decoder", i + 1, both[2 * i], written, seen)',
        '"decoder", i + 1, both[0], written, seen)',
        "test_pictures.py::test_the_maps_are_those_of_torchs_layers",
        "-",
    ),
    Mutant(
        "a map takes any words",
        "pictures",
        "if shape != [T, S]:",
        "if False:",
        "test_pictures.py::test_a_map_refuses_words_that_do_not_fit[3-3]",
        "harvardnlp/annotated-transformer 104",
    ),
    Mutant(
        "cross-attention passes for the decoder's own",
        "pictures",
        'if self.name.kind == "decoder" and self.weights',
        'if self.name.kind == "src" and self.weights',
        "test_pictures.py::test_a_map_of_one_kind_does_not_pass_for_another",
        "harvardnlp/annotated-transformer 54",
    ),
    Mutant(
        "a line leads from the key to the query",
        "pictures",
        "ax.plot(ends, (-t, shift - s)",
        "ax.plot(ends, (-s, shift - t)",
        "test_pictures.py::test_a_line_is_as_dark_as_its_weight",
        "-",
    ),
    Mutant(
        "the head before the one that is meant is taken away",
        "pictures",
        "slice((name.head - 1) * V, name.head * V)",
        "slice((name.head - 2) * V, (name.head - 1) * V)",
        "test_pictures.py::"
        "test_a_head_taken_away_is_one_that_the_last_map_does_not_read"
        "[heads1-cross]",
        "-",
    ),
    Mutant(
        "a repeated word is aligned with its first place",
        "pictures",
        "        seen[word] += 1\n",
        "",
        "test_pictures.py::test_every_english_word_is_aligned_once",
        "-",
    ),
    # -- experiments ---------------------------------------------------------
    Mutant(
        "differences between runs of different seeds",
        "experiments",
        '    runs.sort(key=lambda run: run["seed"])\n',
        "",
        "test_experiments.py::test_differences_are_paired_by_seed",
        "-",
    ),
    Mutant(
        "two seeds share one finished run",
        "experiments",
        "about = [asdict(row), seed, tested,",
        "about = [asdict(row), tested,",
        "test_experiments.py::test_another_run_has_another_name",
        "-",
    ),
    Mutant(
        "the scale is taken away and put back",
        "experiments",
        "return q * root",
        "return q * root / root",
        "test_experiments.py::"
        "test_without_the_scale_scores_are_plain_dot_products",
        "-",
    ),
    Mutant(
        "what is held out is learned from",
        "experiments",
        "known=lambda number: not hidden(number)",
        "known=lambda number: True",
        "test_experiments.py::"
        "test_a_pattern_held_out_is_not_learned_from[und twice]",
        "-",
    ),
    Mutant(
        "alignments from the decoder's attention to itself",
        "experiments",
        "maps[1::2]",
        "maps[::2]",
        "test_experiments.py::test_head_accuracy_is_that_of_loops",
        "harvardnlp/annotated-transformer 54",
    ),
    Mutant(
        "a column of every head is taken away, not a head",
        "experiments",
        "heads[..., head, :] = 0.0",
        "heads[..., :, head] = 0.0",
        "test_experiments.py::"
        "test_a_head_taken_away_is_columns_of_w_o_taken_away",
        "-",
    ),
    Mutant(
        "rows keep the width of their keys when the model shrinks",
        "experiments",
        'WIDTHS = ("d_model", "d_ff", "d_k", "d_v")',
        'WIDTHS = ("d_model", "d_ff")',
        "test_experiments.py::test_a_row_is_shrunk_in_proportion[B.dk16]",
        "-",
    ),
    Mutant(
        "runs of an older code are mixed into a record",
        "experiments",
        "    if not same:\n",
        "    if False:\n",
        "test_experiments.py::test_runs_of_another_code_are_not_mixed_in[nll]",
        "-",
    ),
    Mutant(
        "the time left is counted in runs, the long ones too",
        "experiments",
        "        done += row.steps\n",
        "        done += total / len(runs)\n",
        "test_experiments.py::test_the_time_left_is_that_of_the_updates_left",
        "-",
    ),
    Mutant(
        "a live figure shows the attention with queries and keys swapped",
        "viz/heads",
        'found.append({"name": head, "weights": shades(weights)})',
        'found.append({"name": head, "weights": shades(weights.T)})',
        "test_live_figures.py::test_attention_of_any_model_is_taken",
        "tensor2tensor #917",
    ),
    Mutant(
        "a live figure hides the past instead of the future",
        "viz/masks",
        "past = causal_mask(T) if causal",
        "past = causal_mask(T).T if causal",
        "test_live_figures.py::test_the_masks_are_the_books",
        "-",
    ),
    Mutant(
        "a live figure scales by d_k instead of its root",
        "viz/softmax",
        "(scores, scores / d_k**0.5)",
        "(scores, scores / d_k)",
        "test_live_figures.py::test_with_the_scale_the_width_hardly_matters",
        "-",
    ),
]


# -- Planting and running ----------------------------------------------------


@dataclass
class Outcome:
    """What pytest made of a test; pytest calls the methods.

    Attributes:
        passed: how many tests passed.
        failures: the exceptions that ended tests, by their phase and type.
        code: pytest's exit code; None: it never came to an end.
        text: what it printed.
    """

    passed: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    code: int | None = None
    text: str = ""

    def pytest_runtest_logreport(self, report) -> None:
        self.passed += report.when == "call" and report.passed

    def pytest_exception_interact(self, call, report) -> None:
        # pytest.fail is what pytest.raises says when nothing was raised
        kind = call.excinfo.type.__name__
        self.failures.append((getattr(report, "when", "collect"), kind))

    @property
    def red(self) -> bool:
        """An assertion failed in a test, and nothing else went wrong."""
        kinds = (["call", "AssertionError"], ["call", "Failed"])
        every = [list(failure) for failure in self.failures]
        return self.code == 1 and bool(every) and all(f in kinds for f in every)

    @property
    def green(self) -> bool:
        """All that was asked for passed."""
        return self.code == 0 and self.passed > 0


def run_tests(folder: str, tests: list[str]) -> None:
    """In a process of its own: run tests against the package in a folder."""
    for name in list(os.environ):
        if name.startswith("PYTEST_"):  # nothing from the run around this one
            del os.environ[name]
    # With it pytest shows every difference in full: of two files of bytes
    # that takes minutes.
    os.environ.pop("CI", None)
    with open(f"{folder}/text", "w") as text:
        os.dup2(text.fileno(), 1)
        os.dup2(text.fileno(), 2)
    # Should it hang, this file tells where; pytest takes the standard ones.
    hang = os.open(f"{folder}/hang", os.O_WRONLY | os.O_CREAT)
    faulthandler.dump_traceback_later(PATIENCE, exit=True, file=hang)
    sys.path.insert(0, folder)
    import pytest

    import transformer_lit

    outcome = Outcome()
    if Path(transformer_lit.__file__).is_relative_to(folder):
        outcome.code = pytest.main(
            [
                *[str(TESTS / test) for test in tests],
                f"--config-file={ROOT / 'pyproject.toml'}",
                f"--rootdir={ROOT}",
                "--hypothesis-profile=mutants",
                "-qx",
                *["-p", "no:cacheprovider", "-p", "no:xdist"],
            ],
            plugins=[outcome],
        )
    answer = {
        "passed": outcome.passed,
        "failures": outcome.failures,
        "code": outcome.code,
    }
    Path(folder, "outcome").write_text(json.dumps(answer))


def processes():
    """Processes that start with torch imported, where the system can: most
    of a short run's time is that import."""
    methods = multiprocessing.get_all_start_methods()
    method = "forkserver" if "forkserver" in methods else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["torch", "hypothesis", "pytest"])
    return context


def run(
    folder: Path, tests: list[str], mutant: Mutant | None = None
) -> Outcome:
    """Run tests on a copy of the package in `folder`, with a fault or not."""
    ignored = shutil.ignore_patterns("__pycache__", "models", "results")
    copy = folder / "transformer_lit"
    shutil.copytree(PACKAGE, copy, ignore=ignored)
    if mutant:
        path = copy / f"{mutant.module}.py"
        path.write_text(mutant.source(), encoding="utf-8")
    process = processes().Process(
        target=run_tests, args=(str(folder.resolve()), tests)
    )
    process.start()
    process.join(PATIENCE + 30)
    process.kill()
    process.join()
    outcome = Outcome(text=f"exit code {process.exitcode}\n")
    for name in ("text", "hang"):
        if (folder / name).exists():
            outcome.text += (folder / name).read_text(errors="replace")
    if (folder / "outcome").exists():
        vars(outcome).update(json.loads((folder / "outcome").read_text()))
    return outcome


# -- The table ---------------------------------------------------------------


def table() -> str:
    """The mutants as a table in Markdown."""
    lines = ["| fault | module | red test | seen in |", "|---|---|---|---|"]
    for mutant in MUTANTS:
        test = mutant.test.partition("::")[2]
        lines.append(
            f"| {mutant.name} | `{mutant.module}` | `{test}` "
            f"| {mutant.mirrors} |"
        )
    return "\n".join(lines)


def main() -> int:
    names = sys.argv[1:]
    if not names:
        print(table())
        return 0
    chosen = [m for m in MUTANTS if " ".join(names) in m.name]
    for mutant in chosen:
        with tempfile.TemporaryDirectory() as folder:
            outcome = run(Path(folder), [mutant.test], mutant)
        print(f"== {mutant.name}: {'red' if outcome.red else 'NOT RED'}")
        print(outcome.text)
    return 0 if chosen else 2


if __name__ == "__main__":
    sys.exit(main())
