"""Sentence pairs to tensors: padding at the end, the target behind BOS."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer_lit.batches import make_batch, pad

SENTENCES = st.lists(
    st.lists(st.integers(4, 99), max_size=6), min_size=1, max_size=5
)
PAIRS = st.lists(
    st.tuples(
        st.lists(st.integers(4, 99), max_size=6),
        st.lists(st.integers(4, 99), max_size=6),
    ),
    min_size=1,
    max_size=5,
)
IDS = st.permutations(range(4))


@given(SENTENCES, st.integers(0, 3))
def test_padding_stands_at_the_end_and_only_there(rows, pad_id):
    ids = pad(rows, pad_id)
    assert ids.dtype == torch.int64
    width = max(len(row) for row in rows)
    assert ids.shape == (len(rows), width)
    for row, padded in zip(rows, ids.tolist(), strict=True):
        assert padded == row + [pad_id] * (width - len(row))


@given(PAIRS, IDS)
def test_the_decoder_reads_the_target_behind_bos(pairs, ids):
    pad_id, bos_id, eos_id, _ = ids
    ended = [([*src, eos_id], [*tgt, eos_id]) for src, tgt in pairs]
    batch = make_batch(ended, pad_id=pad_id, bos_id=bos_id)
    assert batch.tgt_in.shape == batch.tgt_out.shape
    rows = zip(batch.tgt_in.tolist(), batch.tgt_out.tolist(), strict=True)
    for (_, tgt), (tgt_in, tgt_out) in zip(pairs, rows, strict=True):
        # at every position it reads what it has said before, no more
        assert tgt_in[: len(tgt) + 1] == [bos_id, *tgt]
        assert tgt_out[: len(tgt) + 1] == [*tgt, eos_id]
        rest = len(tgt_in) - len(tgt) - 1
        assert tgt_in[len(tgt) + 1 :] == [pad_id] * rest
        assert tgt_out[len(tgt) + 1 :] == [pad_id] * rest


@given(PAIRS, IDS)
def test_sources_stay_beside_their_targets(pairs, ids):
    pad_id, bos_id, eos_id, _ = ids
    ended = [([*src, eos_id], [*tgt, eos_id]) for src, tgt in pairs]
    batch = make_batch(ended, pad_id=pad_id, bos_id=bos_id)
    for (src, _), row in zip(ended, batch.src.tolist(), strict=True):
        assert row[: len(src)] == src
        assert set(row[len(src) :]) <= {pad_id}


@given(PAIRS)
def test_the_pairs_are_not_changed(pairs):
    before = [(list(src), list(tgt)) for src, tgt in pairs]
    make_batch(pairs, pad_id=0, bos_id=1)
    assert [(list(src), list(tgt)) for src, tgt in pairs] == before


def test_no_sentences_are_an_error():
    with pytest.raises(ValueError, match="no sequences"):
        pad([], 0)
