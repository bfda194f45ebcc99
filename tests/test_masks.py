"""Masks: True where a query may attend, keys on the last axis."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import LENGTHS, configs, sentences

import transformer_lit as tl

IDS = st.lists(
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
    min_size=1,
    max_size=3,
)


@given(IDS, st.integers(0, 3))
def test_the_padding_mask_is_true_where_a_key_is_a_token(rows, pad_id):
    mask = tl.padding_mask(torch.tensor(rows), pad_id)
    assert mask.dtype == torch.bool
    # [B, 1, 1, S]: one row of keys, the same for all heads and queries
    assert mask.tolist() == [[[[i != pad_id for i in row]]] for row in rows]


@given(st.integers(0, 9))
def test_the_causal_mask_lets_each_position_see_itself_and_the_past(length):
    mask = tl.causal_mask(length)
    assert mask.dtype == torch.bool
    assert mask.shape == (length, length)
    for query in range(length):
        assert mask[query].tolist() == [key <= query for key in range(length)]


@given(IDS, st.integers(0, 3))
def test_the_target_mask_is_both_at_once(rows, pad_id):
    mask = tl.target_mask(torch.tensor(rows), pad_id)
    assert mask.shape == (len(rows), 1, 4, 4)
    for b, row in enumerate(rows):
        for query in range(4):
            want = [k <= query and row[k] != pad_id for k in range(4)]
            assert mask[b, 0, query].tolist() == want


@given(configs(), LENGTHS)
def test_masks_come_from_the_configured_padding(config, lengths):
    src = sentences(config, lengths)
    real = tl.padding_mask(src, config.pad_id)[:, 0, 0].sum(1)
    assert real.tolist() == lengths


def test_masks_stay_on_the_device_of_the_ids():
    ids = torch.zeros(2, 3, dtype=torch.int64, device="meta")
    assert tl.padding_mask(ids, 0).device == ids.device
    assert tl.target_mask(ids, 0).device == ids.device
