# SPDX-License-Identifier: Apache-2.0
"""Losses as layers. The formulas are in paddle.nn.functional."""

from ... import _names
from ..._lib.generated.nn_layer_loss import *
from .. import functional as F
from .layers import Layer
from .of_function import check_reduction


class CrossEntropyLoss(Layer):
    """Softmax (unless use_softmax=False) and cross entropy against labels.

    Labels are class numbers, or with soft_label=True probabilities along `axis`.
    """

    def __init__(
        self,
        weight=None,
        ignore_index=-100,
        reduction="mean",
        soft_label=False,
        axis=-1,
        use_softmax=True,
        name=None,
    ):
        super().__init__()
        check_reduction("CrossEntropyLoss", reduction)
        self.weight = weight
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.soft_label = soft_label
        self.axis = axis
        self.use_softmax = use_softmax
        self.name = name

    def forward(self, input, label):
        return F.cross_entropy(
            input,
            label,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            soft_label=self.soft_label,
            axis=self.axis,
            use_softmax=self.use_softmax,
        )


class BCELoss(Layer):
    """Binary cross entropy of probabilities."""

    def __init__(self, weight=None, reduction="mean", name=None):
        super().__init__()
        check_reduction("BCELoss", reduction)
        self.weight = weight
        self.reduction = reduction

    def forward(self, input, label):
        return F.binary_cross_entropy(
            input, label, weight=self.weight, reduction=self.reduction
        )


class BCEWithLogitsLoss(Layer):
    """Binary cross entropy of what a sigmoid would turn into probabilities."""

    def __init__(self, weight=None, reduction="mean", pos_weight=None, name=None):
        super().__init__()
        check_reduction("BCEWithLogitsLoss", reduction)
        self.weight = weight
        self.reduction = reduction
        self.pos_weight = pos_weight

    def forward(self, logit, label):
        return F.binary_cross_entropy_with_logits(
            logit,
            label,
            weight=self.weight,
            reduction=self.reduction,
            pos_weight=self.pos_weight,
        )


class KLDivLoss(Layer):
    """Kullback-Leibler divergence of log probabilities from probabilities."""

    def __init__(self, reduction="mean"):
        super().__init__()
        check_reduction("KLDivLoss", reduction, ("mean", "sum", "none", "batchmean"))
        self.reduction = reduction

    def forward(self, input, label):
        return F.kl_div(input, label, self.reduction)


class MarginRankingLoss(Layer):
    """max(0, -label * (input - other) + margin)."""

    def __init__(self, margin=0.0, reduction="mean", name=None):
        super().__init__()
        check_reduction("MarginRankingLoss", reduction)
        self.margin = margin
        self.reduction = reduction

    def forward(self, input, other, label):
        return F.margin_ranking_loss(input, other, label, self.margin, self.reduction)


class CTCLoss(Layer):
    """Connectionist temporal classification; `blank` is the blank's number."""

    def __init__(self, blank=0, reduction="mean"):
        super().__init__()
        check_reduction("CTCLoss", reduction)
        self.blank = blank
        self.reduction = reduction

    def forward(
        self, log_probs, labels, input_lengths, label_lengths, norm_by_times=False
    ):
        return F.ctc_loss(
            log_probs,
            labels,
            input_lengths,
            label_lengths,
            self.blank,
            self.reduction,
            norm_by_times=norm_by_times,
        )


class HingeEmbeddingLoss(Layer):
    """input where label is 1, max(0, margin - input) where it is -1."""

    def __init__(self, margin=1.0, reduction="mean", name=None):
        super().__init__()
        check_reduction("HingeEmbeddingLoss", reduction)
        self.margin = margin
        self.reduction = reduction

    def forward(self, input, label):
        return F.hinge_embedding_loss(
            input, label, margin=self.margin, reduction=self.reduction
        )


class CosineEmbeddingLoss(Layer):
    """1 - cos where label is 1, max(0, cos - margin) where it is -1."""

    def __init__(self, margin=0.0, reduction="mean", name=None):
        super().__init__()
        check_reduction("CosineEmbeddingLoss", reduction)
        if not -1 <= margin <= 1:
            raise ValueError(
                f"CosineEmbeddingLoss: margin must lie in [-1, 1], but is {margin}"
            )
        self.margin = margin
        self.reduction = reduction

    def forward(self, input1, input2, label):
        return F.cosine_embedding_loss(
            input1, input2, label, margin=self.margin, reduction=self.reduction
        )


class TripletMarginLoss(Layer):
    """max(0, |input - positive| - |input - negative| + margin)."""

    def __init__(
        self,
        margin=1.0,
        p=2.0,
        epsilon=1e-6,
        swap=False,
        reduction="mean",
        name=None,
    ):
        super().__init__()
        check_reduction("TripletMarginLoss", reduction)
        self.margin = margin
        self.p = p
        self.epsilon = epsilon
        self.swap = swap
        self.reduction = reduction

    def forward(self, input, positive, negative):
        return F.triplet_margin_loss(
            input,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            epsilon=self.epsilon,
            swap=self.swap,
            reduction=self.reduction,
        )


class HSigmoidLoss(Layer):
    """Hierarchical sigmoid over the classes, along a complete binary tree or, with
    is_custom, along paths given at each call."""

    def __init__(
        self,
        feature_size,
        num_classes,
        weight_attr=None,
        bias_attr=None,
        is_custom=False,
        is_sparse=False,
        name=None,
    ):
        super().__init__()
        if num_classes < 2 and not is_custom:
            raise ValueError(
                f"HSigmoidLoss: num_classes must be 2 or more, but is {num_classes}"
            )
        self._num_classes = num_classes
        self._is_custom = is_custom
        self._is_sparse = is_sparse
        rows = num_classes if is_custom else num_classes - 1
        self.weight = self.create_parameter([rows, feature_size], weight_attr)
        self.bias = self.create_parameter([rows, 1], bias_attr, is_bias=True)

    def forward(self, input, label, path_table=None, path_code=None):
        if self._is_custom and (path_table is None or path_code is None):
            raise ValueError(
                "HSigmoidLoss: with is_custom=True give path_table and path_code"
            )
        return F.hsigmoid_loss(
            input,
            label,
            self._num_classes,
            self.weight,
            self.bias,
            path_table=path_table,
            path_code=path_code,
            is_sparse=self._is_sparse,
        )


__all__ = _names.own(globals())
