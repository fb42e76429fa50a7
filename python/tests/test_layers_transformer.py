# SPDX-License-Identifier: Apache-2.0
"""Attention and transformers against torch."""

import numpy as np
import paddle
import pytest
import torch
from layer_check import random_array
from paddle import nn

T = torch.nn


def put(target, value):
    with torch.no_grad():
        target.copy_(torch.tensor(np.ascontiguousarray(value)))


def copy_linear(ours, theirs):
    put(theirs.weight, ours.weight.numpy().T)
    put(theirs.bias, ours.bias.numpy())


def copy_attention(ours, theirs):
    projections = (ours.q_proj, ours.k_proj, ours.v_proj)
    put(
        theirs.in_proj_weight,
        np.concatenate([p.weight.numpy().T for p in projections]),
    )
    put(theirs.in_proj_bias, np.concatenate([p.bias.numpy() for p in projections]))
    copy_linear(ours.out_proj, theirs.out_proj)


def copy_block(ours, theirs, decoder):
    copy_attention(ours.self_attn, theirs.self_attn)
    if decoder:
        copy_attention(ours.cross_attn, theirs.multihead_attn)
    copy_linear(ours.linear1, theirs.linear1)
    copy_linear(ours.linear2, theirs.linear2)
    for name in ("norm1", "norm2") + (("norm3",) if decoder else ()):
        getattr(ours, name).weight.set_value(random_array(8, seed=len(name)))
        put(getattr(theirs, name).weight, getattr(ours, name).weight.numpy())
        put(getattr(theirs, name).bias, getattr(ours, name).bias.numpy())


def check(ours, theirs, inputs, rtol=1e-4, atol=2e-5):
    own = [paddle.to_tensor(x, stop_gradient=False) for x in inputs]
    other = [torch.tensor(x, requires_grad=True) for x in inputs]
    out, expected = ours(*own), theirs(*other)
    np.testing.assert_allclose(
        out.numpy(), expected.detach().numpy(), rtol=rtol, atol=atol
    )
    weights = random_array(*expected.shape, seed=9)
    (out * paddle.to_tensor(weights)).sum().backward()
    (expected * torch.tensor(weights)).sum().backward()
    for a, b in zip(own, other):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-3, atol=1e-4)


def test_attention():
    ours = nn.MultiHeadAttention(8, 2)
    theirs = T.MultiheadAttention(8, 2, batch_first=True)
    copy_attention(ours, theirs)
    check(
        ours,
        lambda q, k, v: theirs(q, k, v)[0],
        [
            random_array(2, 3, 8),
            random_array(2, 5, 8, seed=1),
            random_array(2, 5, 8, seed=2),
        ],
    )


def test_attention_masks():
    ours = nn.MultiHeadAttention(8, 2)
    theirs = T.MultiheadAttention(8, 2, batch_first=True)
    copy_attention(ours, theirs)
    keep = np.tril(np.ones([4, 4], bool))
    x = random_array(2, 4, 8)
    for mask in (
        paddle.to_tensor(keep),
        paddle.to_tensor(keep.astype("int64")),
        paddle.to_tensor(np.where(keep, 0, -np.inf).astype("float32")),
    ):
        check(
            lambda q, m=mask: ours(q, attn_mask=m),
            lambda q: theirs(q, q, q, attn_mask=torch.tensor(~keep))[0],
            [x],
        )


def test_attention_returns_weights_when_asked():
    ours = nn.MultiHeadAttention(8, 2, need_weights=True)
    out, weights = ours(paddle.to_tensor(random_array(2, 3, 8)))
    assert out.shape == [2, 3, 8] and weights.shape == [2, 2, 3, 3]
    np.testing.assert_allclose(weights.numpy().sum(axis=-1), 1, rtol=1e-5)


def test_attention_with_other_sizes_of_keys():
    ours = nn.MultiHeadAttention(8, 2, kdim=5, vdim=6)
    out = ours(paddle.ones([2, 3, 8]), paddle.ones([2, 4, 5]), paddle.ones([2, 4, 6]))
    assert out.shape == [2, 3, 8]
    with pytest.raises(
        ValueError, match="embed_dim 8 must be a multiple of num_heads 3"
    ):
        nn.MultiHeadAttention(8, 3)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer(before, activation):
    ours = nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, activation=activation, normalize_before=before
    )
    theirs = T.TransformerEncoderLayer(
        8, 2, 16, 0.0, activation, batch_first=True, norm_first=before
    )
    copy_block(ours, theirs, decoder=False)
    check(ours, theirs, [random_array(2, 4, 8)])


@pytest.mark.parametrize("before", [False, True])
def test_decoder_layer(before):
    ours = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, normalize_before=before)
    theirs = T.TransformerDecoderLayer(
        8, 2, 16, 0.0, batch_first=True, norm_first=before
    )
    copy_block(ours, theirs, decoder=True)
    check(ours, theirs, [random_array(2, 4, 8), random_array(2, 5, 8, seed=1)])


def test_transformer():
    ours = nn.Transformer(8, 2, 2, 2, 16, dropout=0.0)
    theirs = T.Transformer(8, 2, 2, 2, 16, 0.0, batch_first=True)
    for own, other, decoder in (
        (ours.encoder, theirs.encoder, False),
        (ours.decoder, theirs.decoder, True),
    ):
        for a, b in zip(own.layers, other.layers):
            copy_block(a, b, decoder)
    mask = ours.generate_square_subsequent_mask(4)
    other_mask = theirs.generate_square_subsequent_mask(4)
    np.testing.assert_array_equal(mask.numpy(), other_mask.numpy())
    check(
        lambda s, t: ours(s, t, tgt_mask=mask),
        lambda s, t: theirs(s, t, tgt_mask=other_mask),
        [random_array(2, 5, 8), random_array(2, 4, 8, seed=1)],
        rtol=1e-3,
        atol=1e-4,
    )


def test_layers_of_a_stack_have_parameters_of_their_own():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 3)
    assert len(encoder.parameters()) == 3 * 16
    assert next(encoder.named_parameters())[0] == "layers.0.self_attn.q_proj.weight"
    assert encoder.layers[0].linear1.weight is not encoder.layers[1].linear1.weight


def test_decoding_step_by_step_equals_decoding_at_once():
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), 2, nn.LayerNorm(8)
    )
    memory = paddle.to_tensor(random_array(2, 5, 8))
    target = paddle.to_tensor(random_array(2, 4, 8, seed=1))
    mask = paddle.to_tensor(np.tril(np.ones([4, 4], bool)))
    expected = decoder(target, memory, tgt_mask=mask).numpy()
    caches = decoder.gen_cache(memory)
    for t in range(4):
        out, caches = decoder(target[:, t : t + 1], memory, cache=caches)
        np.testing.assert_allclose(
            out.numpy()[:, 0], expected[:, t], rtol=1e-4, atol=1e-5
        )
    growing, fixed = decoder.gen_cache(memory, do_zip=True)
    assert len(growing) == len(fixed) == 2

    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), 2
    )
    expected = encoder(target, mask).numpy()
    caches = encoder.gen_cache(target)
    for t in range(4):
        out, caches = encoder(target[:, t : t + 1], cache=caches)
        np.testing.assert_allclose(
            out.numpy()[:, 0], expected[:, t], rtol=1e-4, atol=1e-5
        )


def test_attributes_for_parts():
    zero = nn.initializer.Constant(0.0)
    one = nn.initializer.Constant(1.0)
    layer = nn.TransformerDecoderLayer(8, 2, 16, weight_attr=[zero, one])
    assert not layer.self_attn.q_proj.weight.numpy().any()
    assert not layer.cross_attn.q_proj.weight.numpy().any()
    assert (layer.linear1.weight.numpy() == 1).all()
    model = nn.Transformer(8, 2, 1, 1, 16, weight_attr=[zero, one, one])
    assert not model.encoder.layers[0].self_attn.k_proj.weight.numpy().any()
    assert (model.encoder.layers[0].linear2.weight.numpy() == 1).all()
    assert (model.decoder.layers[0].cross_attn.k_proj.weight.numpy() == 1).all()
    with pytest.raises(ValueError, match="4 attributes were given for 2 parts"):
        nn.TransformerEncoderLayer(8, 2, 16, weight_attr=[zero] * 4)
