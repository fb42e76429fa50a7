# SPDX-License-Identifier: Apache-2.0
"""Attention, and the encoders and decoders made of it."""

import collections

import paddle

from ... import _names
from ...framework.dtype import is_floating
from ...tensor.shape_argument import size
from .. import functional as F
from .container import LayerList
from .dropout import Dropout
from .layers import Layer
from .linear import Linear
from .norm import LayerNorm


def _added_mask(mask, dtype):
    """A mask to be added to scores: a bool or int one keeps where it is true."""
    if mask is None or is_floating(mask.dtype):
        return mask
    return (mask.astype(dtype) - 1.0) * 1e9


def _attr_list(attr, n):
    """One attribute for each of n parts: [attention, (cross attention,) FFN]."""
    if not isinstance(attr, (list, tuple)):
        return [attr] * n
    if len(attr) == n:
        return list(attr)
    if len(attr) == 1:
        return [attr[0]] * n
    if len(attr) == 2 and n == 3:
        return [attr[0], attr[0], attr[1]]
    if len(attr) == 3 and n == 2:
        return [attr[0], attr[2]]
    raise ValueError(f"{len(attr)} attributes were given for {n} parts")


class MultiHeadAttention(Layer):
    """Scaled dot-product attention by several heads side by side.

    attn_mask is added to the scores and broadcast to [batch, heads, query, key]; a
    bool or int mask is false where nothing may be looked at. A cache holds keys and
    values of what came before, for decoding step by step.
    """

    Cache = collections.namedtuple("Cache", ["k", "v"])
    StaticCache = collections.namedtuple("StaticCache", ["k", "v"])

    def __init__(
        self,
        embed_dim,
        num_heads,
        dropout=0.0,
        kdim=None,
        vdim=None,
        need_weights=False,
        weight_attr=None,
        bias_attr=None,
    ):
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise ValueError(
                f"MultiHeadAttention: embed_dim {embed_dim} must be a multiple of "
                f"num_heads {num_heads}, and both positive"
            )
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.need_weights = need_weights
        self.q_proj = Linear(embed_dim, embed_dim, weight_attr, bias_attr)
        self.k_proj = Linear(self.kdim, embed_dim, weight_attr, bias_attr)
        self.v_proj = Linear(self.vdim, embed_dim, weight_attr, bias_attr)
        self.out_proj = Linear(embed_dim, embed_dim, weight_attr, bias_attr)

    def _heads(self, x):
        """[batch, length, embed] as [batch, heads, length, head]."""
        x = paddle.reshape(x, [0, 0, self.num_heads, self.head_dim])
        return paddle.transpose(x, [0, 2, 1, 3])

    def compute_kv(self, key, value):
        """Keys and values of all heads."""
        return self._heads(self.k_proj(key)), self._heads(self.v_proj(value))

    def gen_cache(self, key, value=None, type=Cache):
        """A cache: of `key` and `value` for good (StaticCache), or one that grows
        with every call, at first empty or holding what is given."""
        if type == MultiHeadAttention.StaticCache:
            return self.StaticCache(
                *self.compute_kv(key, key if value is None else value)
            )
        if value is None:
            shape = [size(key, 0), self.num_heads, 0, self.head_dim]
            empty = paddle.zeros(shape, key.dtype)
            return self.Cache(empty, empty)
        return self.Cache(key, value)

    def forward(self, query, key=None, value=None, attn_mask=None, cache=None):
        key = query if key is None else key
        value = key if value is None else value
        q = self._heads(self.q_proj(query))
        if isinstance(cache, self.StaticCache):
            k, v = cache
        else:
            k, v = self.compute_kv(key, value)
        if isinstance(cache, self.Cache):
            k = paddle.concat([cache.k, k], axis=2)
            v = paddle.concat([cache.v, v], axis=2)
            cache = self.Cache(k, v)

        scores = paddle.matmul(q * self.head_dim**-0.5, k, transpose_y=True)
        if attn_mask is not None:
            scores = scores + _added_mask(attn_mask, scores.dtype)
        weights = F.softmax(scores)
        if self.dropout:
            weights = F.dropout(weights, self.dropout, training=self.training)
        out = paddle.transpose(paddle.matmul(weights, v), [0, 2, 1, 3])
        out = self.out_proj(paddle.reshape(out, [0, 0, self.embed_dim]))

        outputs = [out]
        if self.need_weights:
            outputs.append(weights)
        if cache is not None:
            outputs.append(cache)
        return out if len(outputs) == 1 else tuple(outputs)


class _Block(Layer):
    """What an encoder layer and a decoder layer share."""

    def _set_up(
        self,
        attentions,
        d_model,
        nhead,
        dim_feedforward,
        dropout,
        activation,
        attn_dropout,
        act_dropout,
        normalize_before,
        weight_attr,
        bias_attr,
    ):
        """Adds attention layers with these names, FFN, norms and dropouts."""
        attn_dropout = dropout if attn_dropout is None else attn_dropout
        act_dropout = dropout if act_dropout is None else act_dropout
        self.normalize_before = normalize_before
        parts = len(attentions) + 1
        weights = _attr_list(weight_attr, parts)
        biases = _attr_list(bias_attr, parts)
        for name, weight, bias in zip(attentions, weights, biases):
            attention = MultiHeadAttention(
                d_model,
                nhead,
                dropout=attn_dropout,
                weight_attr=weight,
                bias_attr=bias,
            )
            setattr(self, name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, weights[-1], biases[-1])
        self.dropout = Dropout(act_dropout)
        self.linear2 = Linear(dim_feedforward, d_model, weights[-1], biases[-1])
        for i in range(1, parts + 1):
            setattr(self, f"norm{i}", LayerNorm(d_model))
        for i in range(1, parts + 1):
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = getattr(F, activation)

    def _residual(self, x, norm, dropout, compute):
        """x + dropout(compute(x)), normalised before or after; compute may return
        more than one thing, of which the rest comes back second."""
        inside = compute(norm(x) if self.normalize_before else x)
        inside, rest = inside if isinstance(inside, tuple) else (inside, None)
        x = x + dropout(inside)
        return x if self.normalize_before else norm(x), rest

    def _feed_forward(self, x):
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Block):
    """Self attention and a feed-forward network, each with a residual."""

    def __init__(
        self,
        d_model,
        nhead,
        dim_feedforward,
        dropout=0.1,
        activation="relu",
        attn_dropout=None,
        act_dropout=None,
        normalize_before=False,
        weight_attr=None,
        bias_attr=None,
    ):
        config = dict(locals())
        del config["self"], config["__class__"]
        super().__init__()
        self._config = config
        self._set_up(["self_attn"], **config)

    def forward(self, src, src_mask=None, cache=None):
        mask = _added_mask(src_mask, src.dtype)
        src, cache = self._residual(
            src,
            self.norm1,
            self.dropout1,
            lambda x: self.self_attn(x, x, x, mask, cache),
        )
        src, _ = self._residual(src, self.norm2, self.dropout2, self._feed_forward)
        return src if cache is None else (src, cache)

    def gen_cache(self, src):
        """An empty cache for forward()."""
        return self.self_attn.gen_cache(src, type=MultiHeadAttention.Cache)


class TransformerDecoderLayer(_Block):
    """Self attention, attention to the encoder's output, and a feed-forward
    network, each with a residual."""

    def __init__(
        self,
        d_model,
        nhead,
        dim_feedforward,
        dropout=0.1,
        activation="relu",
        attn_dropout=None,
        act_dropout=None,
        normalize_before=False,
        weight_attr=None,
        bias_attr=None,
    ):
        config = dict(locals())
        del config["self"], config["__class__"]
        super().__init__()
        self._config = config
        self._set_up(["self_attn", "cross_attn"], **config)

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, cache=None):
        tgt_mask = _added_mask(tgt_mask, tgt.dtype)
        memory_mask = _added_mask(memory_mask, memory.dtype)
        growing, fixed = (None, None) if cache is None else cache
        tgt, growing = self._residual(
            tgt,
            self.norm1,
            self.dropout1,
            lambda x: self.self_attn(x, x, x, tgt_mask, growing),
        )
        tgt, fixed = self._residual(
            tgt,
            self.norm2,
            self.dropout2,
            lambda x: self.cross_attn(x, memory, memory, memory_mask, fixed),
        )
        tgt, _ = self._residual(tgt, self.norm3, self.dropout3, self._feed_forward)
        return tgt if cache is None else (tgt, (growing, fixed))

    def gen_cache(self, memory):
        """A growing cache of the decoder's own and a fixed one of `memory`."""
        return (
            self.self_attn.gen_cache(memory, type=MultiHeadAttention.Cache),
            self.cross_attn.gen_cache(
                memory, memory, type=MultiHeadAttention.StaticCache
            ),
        )


def _stack(layer, count):
    """`layer`, and more that are made with the same arguments."""
    more = [type(layer)(**layer._config) for _ in range(count - 1)]
    return LayerList([layer] + more)


class TransformerEncoder(Layer):
    """Encoder layers one after the other, and a norm at the end."""

    def __init__(self, encoder_layer, num_layers, norm=None):
        super().__init__()
        self.layers = _stack(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(self, src, src_mask=None, cache=None):
        mask = _added_mask(src_mask, src.dtype)
        caches = []
        for i, layer in enumerate(self.layers):
            if cache is None:
                src = layer(src, src_mask=mask)
            else:
                src, new = layer(src, src_mask=mask, cache=cache[i])
                caches.append(new)
        if self.norm is not None:
            src = self.norm(src)
        return src if cache is None else (src, caches)

    def gen_cache(self, src):
        """An empty cache for each layer."""
        return [layer.gen_cache(src) for layer in self.layers]


class TransformerDecoder(Layer):
    """Decoder layers one after the other, and a norm at the end."""

    def __init__(self, decoder_layer, num_layers, norm=None):
        super().__init__()
        self.layers = _stack(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, cache=None):
        masks = {
            "tgt_mask": _added_mask(tgt_mask, tgt.dtype),
            "memory_mask": _added_mask(memory_mask, memory.dtype),
        }
        caches = []
        for i, layer in enumerate(self.layers):
            if cache is None:
                tgt = layer(tgt, memory, **masks)
            else:
                tgt, new = layer(tgt, memory, **masks, cache=cache[i])
                caches.append(new)
        if self.norm is not None:
            tgt = self.norm(tgt)
        return tgt if cache is None else (tgt, caches)

    def gen_cache(self, memory, do_zip=False):
        """A pair of caches for each layer, or with do_zip two lists."""
        caches = [layer.gen_cache(memory) for layer in self.layers]
        return list(zip(*caches)) if do_zip else caches


class Transformer(Layer):
    """An encoder and a decoder, without embeddings and output layer."""

    def __init__(
        self,
        d_model=512,
        nhead=8,
        num_encoder_layers=6,
        num_decoder_layers=6,
        dim_feedforward=2048,
        dropout=0.1,
        activation="relu",
        attn_dropout=None,
        act_dropout=None,
        normalize_before=False,
        weight_attr=None,
        bias_attr=None,
        custom_encoder=None,
        custom_decoder=None,
    ):
        super().__init__()
        settings = (
            d_model,
            nhead,
            dim_feedforward,
            dropout,
            activation,
            attn_dropout,
            act_dropout,
            normalize_before,
        )
        # One attribute is for attention, two for attention and FFN, three for self
        # attention, cross attention and FFN; the encoder has no cross attention.
        if custom_encoder is None:
            custom_encoder = TransformerEncoder(
                TransformerEncoderLayer(
                    *settings, _attr_list(weight_attr, 2), _attr_list(bias_attr, 2)
                ),
                num_encoder_layers,
                LayerNorm(d_model),
            )
        if custom_decoder is None:
            custom_decoder = TransformerDecoder(
                TransformerDecoderLayer(
                    *settings, _attr_list(weight_attr, 3), _attr_list(bias_attr, 3)
                ),
                num_decoder_layers,
                LayerNorm(d_model),
            )
        self.encoder = custom_encoder
        self.decoder = custom_decoder
        self.d_model = d_model
        self.nhead = nhead

    def forward(self, src, tgt, src_mask=None, tgt_mask=None, memory_mask=None):
        memory = self.encoder(src, src_mask=src_mask)
        return self.decoder(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask)

    def generate_square_subsequent_mask(self, length):
        """[length, length] with -inf where a position would see a later one."""
        return paddle.triu(paddle.full([length, length], float("-inf")), 1)


__all__ = _names.own(globals())
