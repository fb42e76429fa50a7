// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/chain_forms.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "fleet/exec/direct.h"

namespace fleet::exec {
namespace {

using base::BlockOp;
using Operand = ChainOperand;

// Writes the steps of one node.
class Writer {
 public:
  Writer(Graph& graph, Node& node, int64_t numel)
      : g(graph), n(node), call(graph, node), numel_(numel) {}

  const Graph& g;
  const Node& n;
  const NodeCall call;

  Operand In(int value, const Spread& spread = {}) const {
    const Value& v = g.values[value];
    if (v.origin == Value::kConstant) {
      return Operand::Number(v.constant);
    }
    Operand operand = Operand::Of(value);
    if (v.numel() == numel_) return operand;
    if (v.numel() == 1) {
      operand.from = Operand::kNumber;
    } else {
      operand.spread = spread;
    }
    return operand;
  }

  Operand Do(BlockOp op, const Operand& a, const Operand& b = {},
             const Operand& c = {}) {
    return Add(
        {.op = op, .a = Elements(a), .b = Elements(b), .c = Elements(c)});
  }
  Operand With(BlockOp op, const Operand& a, const Operand& s,
               const Operand& t = {}) {
    return Add({.op = op, .a = Elements(a), .s = s, .t = t});
  }
  Operand With(BlockOp op, const Operand& a, double s, double t = 0) {
    return With(op, a, Operand::Number(static_cast<float>(s)),
                Operand::Number(static_cast<float>(t)));
  }

  Operand Sum(const Operand& x, const Operand& y) {
    return Two(BlockOp::kAdd, BlockOp::kAddNumber, BlockOp::kAddNumber, x, y);
  }
  Operand Difference(const Operand& x, const Operand& y) {
    return Two(BlockOp::kSubtract, BlockOp::kSubtractNumber,
               BlockOp::kSubtractFrom, x, y);
  }
  Operand Product(const Operand& x, const Operand& y) {
    return Two(BlockOp::kMultiply, BlockOp::kMultiplyNumber,
               BlockOp::kMultiplyNumber, x, y);
  }
  Operand Quotient(const Operand& x, const Operand& y) {
    return Two(BlockOp::kDivide, BlockOp::kDivideNumber, BlockOp::kDivideInto,
               x, y);
  }
  Operand Larger(const Operand& x, const Operand& y) {
    return Two(BlockOp::kMaximum, BlockOp::kMaximumNumber,
               BlockOp::kMaximumNumber, x, y);
  }
  Operand Smaller(const Operand& x, const Operand& y) {
    return Two(BlockOp::kMinimum, BlockOp::kMinimumNumber,
               BlockOp::kMinimumNumber, x, y);
  }

  // `value` is what the last step made, or a copy of another operand.
  void Give(int value, const Operand& result) {
    const bool last = result.from == Operand::kTemporary &&
                      !form_.steps.empty() &&
                      form_.steps.back().out.index == result.index &&
                      form_.steps.back().out.from == Operand::kTemporary;
    if (result.from == Operand::kNumber) {
      Elements(result);
    } else if (!last) {
      Do(BlockOp::kCopy, result);
    }
    form_.steps.back().out = Operand::Of(value);
  }

  // `value` gets the sums of the elements that lie over each of its own, times
  // `factor`.
  void GiveSums(int value, const Operand& x, const Spread& spread,
                double factor = 1) {
    ChainStep step{.a = Elements(x), .is_sum = true, .factor = factor};
    step.out = Operand::Of(value);
    step.out.spread = spread;
    form_.steps.push_back(step);
  }

  ChainForm Finish() {
    form_.numel = numel_;
    return std::move(form_);
  }

 private:
  Operand Add(ChainStep step) {
    step.out = Operand::Temporary(form_.num_temporaries++);
    form_.steps.push_back(step);
    return step.out;
  }
  // An operation without a form for numbers takes a block of them.
  Operand Elements(const Operand& operand) {
    if (operand.from != Operand::kNumber) return operand;
    return Add({.op = BlockOp::kFill, .s = operand});
  }
  // x op y by the operation for blocks, for y as a number, or for x as one.
  Operand Two(BlockOp blocks, BlockOp y_number, BlockOp x_number,
              const Operand& x, const Operand& y) {
    if (y.from == Operand::kNumber) return With(y_number, x, y);
    if (x.from == Operand::kNumber) return With(x_number, y, x);
    return Do(blocks, x, y);
  }

  int64_t numel_;
  ChainForm form_;
};

// ---- one operand

// What becomes of x, or, in a gradient, of what its rule names first (X or Out)
// and of the gradient of Out. False where attributes are others than it takes.
using Unary = bool (*)(Writer& w, const Operand& x, Operand& y);
using UnaryGrad = bool (*)(Writer& w, const Operand& x, const Operand& dy,
                           Operand& dx);

template <BlockOp kOp>
bool Plain(Writer& w, const Operand& x, Operand& y) {
  y = w.Do(kOp, x);
  return true;
}
template <BlockOp kOp>
bool PlainGrad(Writer& w, const Operand& x, const Operand& dy, Operand& dx) {
  dx = w.Do(kOp, x, dy);
  return true;
}

// Powers that need no logarithm.
bool Power(Writer& w, const Operand& x, double factor, Operand& y) {
  if (factor == 0) {
    y = Operand::Number(1);
  } else if (factor == 1) {
    y = x;
  } else if (factor == 2) {
    y = w.Do(BlockOp::kSquare, x);
  } else if (factor == 3) {
    y = w.Product(w.Do(BlockOp::kSquare, x), x);
  } else if (factor == 4) {
    y = w.Do(BlockOp::kSquare, w.Do(BlockOp::kSquare, x));
  } else if (factor == 0.5) {
    y = w.Do(BlockOp::kSqrt, x);
  } else if (factor == 1.5) {
    y = w.Product(w.Do(BlockOp::kSqrt, x), x);
  } else if (factor < 0) {
    if (!Power(w, x, -factor, y)) return false;
    y = w.With(BlockOp::kDivideInto, y, 1.0);
  } else {
    return false;
  }
  return true;
}

bool Pow(Writer& w, const Operand& x, Operand& y) {
  return Power(w, x, w.g.attr<double>(w.n, "factor"), y);
}
bool PowGrad(Writer& w, const Operand& x, const Operand& dy, Operand& dx) {
  const double factor = w.g.attr<double>(w.n, "factor");
  Operand power;
  if (factor == 0) {
    dx = Operand::Number(0);
    return true;
  }
  if (!Power(w, x, factor - 1, power)) return false;
  dx = w.Product(w.Product(dy, Operand::Number(static_cast<float>(factor))),
                 power);
  return true;
}

bool Rsqrt(Writer& w, const Operand& x, Operand& y) {
  return Power(w, x, -0.5, y);
}
bool RsqrtGrad(Writer& w, const Operand& y, const Operand& dy, Operand& dx) {
  dx = w.Product(dy, Operand::Number(-0.5f));
  for (int i = 0; i < 3; ++i) dx = w.Product(dx, y);
  return true;
}
bool Reciprocal(Writer& w, const Operand& x, Operand& y) {
  return Power(w, x, -1, y);
}
bool ReciprocalGrad(Writer& w, const Operand& y, const Operand& dy,
                    Operand& dx) {
  dx = w.Product(dy, Operand::Number(-1));
  for (int i = 0; i < 2; ++i) dx = w.Product(dx, y);
  return true;
}

bool ExpGrad(Writer& w, const Operand& y, const Operand& dy, Operand& dx) {
  dx = w.Product(dy, y);
  return true;
}
bool LogGrad(Writer& w, const Operand& x, const Operand& dy, Operand& dx) {
  dx = w.Quotient(dy, x);
  return true;
}
bool SqrtGrad(Writer& w, const Operand& y, const Operand& dy, Operand& dx) {
  dx = w.Quotient(dy, w.Product(y, Operand::Number(2)));
  return true;
}
bool SquareGrad(Writer& w, const Operand& x, const Operand& dy, Operand& dx) {
  dx = w.Product(w.Product(x, Operand::Number(2)), dy);
  return true;
}
bool AbsGrad(Writer& w, const Operand& x, const Operand& dy, Operand& dx) {
  dx = w.Product(dy, w.Do(BlockOp::kSign, x));
  return true;
}

bool Clip(Writer& w, const Operand& x, Operand& y) {
  const double low = w.g.attr<double>(w.n, "min");
  const double high = w.g.attr<double>(w.n, "max");
  if (!(low <= high)) return false;
  y = w.With(BlockOp::kClip, x, low, high);
  return true;
}
bool ClipGrad(Writer& w, const Operand& x, const Operand& dy, Operand& dx) {
  const double low = w.g.attr<double>(w.n, "min");
  const double high = w.g.attr<double>(w.n, "max");
  dx = w.Product(dy, w.With(BlockOp::kInside, x, low, high));
  return true;
}

bool Scale(Writer& w, const Operand& x, Operand& y) {
  if (w.n.kernel->slot_end.size() != 1) return false;
  const double factor = w.g.attr<double>(w.n, "scale");
  const double bias = w.g.attr<double>(w.n, "bias");
  if (bias == 0) {
    y = factor == 1 ? x : w.With(BlockOp::kMultiplyNumber, x, factor);
  } else if (factor == 1) {
    y = w.With(BlockOp::kAddNumber, x, bias);
  } else if (w.g.attr<bool>(w.n, "bias_after_scale")) {
    y = w.With(BlockOp::kScale, x, factor, bias);
  } else {
    y = w.With(BlockOp::kShift, x, bias, factor);
  }
  return true;
}

// x / (1 + exp(-x)).
bool Silu(Writer& w, const Operand& x, Operand& y) {
  const Operand e =
      w.Do(BlockOp::kExp, w.With(BlockOp::kMultiplyNumber, x, -1));
  y = w.Quotient(x, w.With(BlockOp::kAddNumber, e, 1));
  return true;
}
bool SiluGrad(Writer& w, const Operand& x, const Operand& dy, Operand& dx) {
  const Operand s = w.Do(BlockOp::kSigmoid, x);
  Operand slope = w.Product(x, w.With(BlockOp::kSubtractFrom, s, 1));
  slope = w.Product(s, w.With(BlockOp::kAddNumber, slope, 1));
  dx = w.Product(dy, slope);
  return true;
}

// Gelu by tanh: x / 2 * (1 + tanh(beta * (x + kappa * x^3))).
constexpr double kBeta = M_SQRT2 * M_2_SQRTPI * 0.5;
constexpr double kKappa = 0.044715;

Operand GeluTanh(Writer& w, const Operand& x, const Operand& square) {
  Operand inner =
      w.With(BlockOp::kMultiplyNumber, w.Product(square, x), kKappa);
  inner = w.With(BlockOp::kMultiplyNumber, w.Sum(x, inner), kBeta);
  return w.Do(BlockOp::kTanh, inner);
}
bool Gelu(Writer& w, const Operand& x, Operand& y) {
  if (!w.g.attr<bool>(w.n, "approximate")) return false;
  const Operand t = GeluTanh(w, x, w.Do(BlockOp::kSquare, x));
  const Operand half = w.With(BlockOp::kMultiplyNumber, x, 0.5);
  y = w.Product(half, w.With(BlockOp::kAddNumber, t, 1));
  return true;
}
bool GeluGrad(Writer& w, const Operand& x, const Operand& dy, Operand& dx) {
  if (!w.g.attr<bool>(w.n, "approximate")) return false;
  const Operand square = w.Do(BlockOp::kSquare, x);
  const Operand t = GeluTanh(w, x, square);
  // 1/2 (1 + t) + x/2 (1 - t^2) beta (1 + 3 kappa x^2)
  Operand inner = w.With(BlockOp::kScale, square, 3 * kKappa, 1);
  inner = w.With(BlockOp::kMultiplyNumber, inner, kBeta);
  Operand right = w.With(BlockOp::kSubtractFrom, w.Do(BlockOp::kSquare, t), 1);
  right = w.Product(w.With(BlockOp::kMultiplyNumber, x, 0.5), right);
  right = w.Product(right, inner);
  const Operand left = w.With(BlockOp::kShift, t, 1, 0.5);
  dx = w.Product(dy, w.Sum(left, right));
  return true;
}

// ---- two operands

struct Pair {
  Operand x, y;
};

// The operands of an operation whose result is as large as one of them.
std::optional<Pair> ReadPair(Writer& w, int x, int y, int out) {
  if (auto spread = ops::ReadSpread(w.call, x, y, out)) {
    return Pair{w.In(x), w.In(y, *spread)};
  }
  if (!w.g.AreFloat({x, y, out}) || w.g.numel(out) != w.g.numel(y) ||
      w.g.values[y].channels_last) {
    return std::nullopt;
  }
  const auto spread = ops::SpreadOf(
      w.g.dims(y), w.g.dims(x),
      w.call.has_attr("axis") ? w.call.attr<int64_t>("axis") : -1);
  if (!spread) return std::nullopt;
  return Pair{w.In(x, *spread), w.In(y)};
}

template <Operand (Writer::*kOp)(const Operand&, const Operand&)>
bool Binary(Writer& w) {
  const int x = w.g.In(w.n, 0), y = w.g.In(w.n, 1), out = w.g.Out(w.n, 0);
  const auto pair = ReadPair(w, x, y, out);
  if (!pair) return false;
  w.Give(out, (w.*kOp)(pair->x, pair->y));
  return true;
}

// The gradients of X and of Y, which has X's shape, from X, Y and that of Out.
using PairGrad = void (*)(Writer& w, const Pair& in, const Operand& dout,
                          int dx, int dy);

void SumGrad(Writer& w, const Pair&, const Operand& dout, int dx, int dy) {
  if (dx != kNone) w.Give(dx, dout);
  if (dy != kNone) w.Give(dy, dout);
}
void DifferenceGrad(Writer& w, const Pair&, const Operand& dout, int dx,
                    int dy) {
  if (dx != kNone) w.Give(dx, dout);
  if (dy != kNone) w.Give(dy, w.Product(dout, Operand::Number(-1)));
}
void ProductGrad(Writer& w, const Pair& in, const Operand& dout, int dx,
                 int dy) {
  if (dx != kNone) w.Give(dx, w.Product(dout, in.y));
  if (dy != kNone) w.Give(dy, w.Product(dout, in.x));
}
void QuotientGrad(Writer& w, const Pair& in, const Operand& dout, int dx,
                  int dy) {
  if (dx != kNone) w.Give(dx, w.Quotient(dout, in.y));
  if (dy == kNone) return;
  const Operand top = w.Product(w.Product(dout, Operand::Number(-1)), in.x);
  w.Give(dy, w.Quotient(top, w.Product(in.y, in.y)));
}
template <bool kMax>
void ExtremeGrad(Writer& w, const Pair& in, const Operand& dout, int dx,
                 int dy) {
  const Operand& a = kMax ? in.x : in.y;
  const Operand& b = kMax ? in.y : in.x;
  if (dx != kNone) w.Give(dx, w.Do(BlockOp::kIfGreater, a, b, dout));
  if (dy != kNone) w.Give(dy, w.Do(BlockOp::kUnlessGreater, a, b, dout));
}

// An output that lives in the memory of another value needs no step.
int Written(const Graph& g, int value) {
  return value == kNone || g.values[value].memory_of != kNone ? kNone : value;
}

// The gradient of a Y that is spread over X, element by element of X.
using SpreadGrad = Operand (*)(Writer& w, const Pair& in, const Operand& dout,
                               double& factor);

Operand SumSpreadGrad(Writer&, const Pair&, const Operand& dout, double&) {
  return dout;
}
Operand DifferenceSpreadGrad(Writer&, const Pair&, const Operand& dout,
                             double& factor) {
  factor = -1;
  return dout;
}
Operand ProductSpreadGrad(Writer& w, const Pair& in, const Operand& dout,
                          double&) {
  return w.Product(dout, in.x);
}

template <PairGrad kGrad, SpreadGrad kSpreadGrad = nullptr>
bool BinaryGrad(Writer& w) {
  const int x = w.g.In(w.n, 0), y = w.g.In(w.n, 1), dout = w.g.In(w.n, 2);
  const int dx = w.g.Out(w.n, 0), dy = w.g.Out(w.n, 1);
  const auto spread = ops::ReadSpread(w.call, x, y, dout);
  if (!spread || (dx != kNone && !w.g.AreFloat({dx})) ||
      (dy != kNone && !w.g.AreFloat({dy}))) {
    return false;
  }
  const Pair in{w.In(x), w.In(y, *spread)};
  if (dy == kNone || spread->same()) {
    kGrad(w, in, w.In(dout), Written(w.g, dx), Written(w.g, dy));
    return true;
  }
  if (kSpreadGrad == nullptr || w.g.values[dy].memory_of != kNone) return false;
  if (dx != kNone) kGrad(w, in, w.In(dout), Written(w.g, dx), kNone);
  double factor = 1;
  const Operand each = kSpreadGrad(w, in, w.In(dout), factor);
  w.GiveSums(dy, each, *spread, factor);
  return true;
}

// ---- many operands, and views

bool Sum(Writer& w) {
  const int out = w.g.Out(w.n, 0);
  if (w.n.inputs.empty() || !w.g.AreFloat(w.n.inputs)) return false;
  for (int part : w.n.inputs) {
    if (w.g.numel(part) != w.g.numel(out)) return false;
  }
  Operand total = w.In(w.n.inputs[0]);
  for (size_t i = 1; i < w.n.inputs.size(); ++i) {
    total = w.Sum(total, w.In(w.n.inputs[i]));
  }
  w.Give(out, total);
  return true;
}

// Outputs that are the last, or the first, input under another shape.
bool Copies(Writer& w, int from) {
  for (int out : w.n.outputs) {
    if (out != kNone &&
        (!w.g.AreFloat({from, out}) || w.g.numel(from) != w.g.numel(out))) {
      return false;
    }
  }
  for (int out : w.n.outputs) {
    if (Written(w.g, out) != kNone) w.Give(out, w.In(from));
  }
  return true;
}

// All elements into one.
template <bool kMean>
bool Total(Writer& w) {
  const int x = w.g.In(w.n, 0), out = w.g.Out(w.n, 0);
  if (!w.g.AreFloat({x, out}) || w.g.numel(out) != 1) return false;
  const int64_t numel = w.g.numel(x);
  if (numel < 2) return false;
  w.GiveSums(out, w.In(x), {.inner = numel},
             kMean ? 1.0 / static_cast<double>(numel) : 1.0);
  return true;
}

bool View(Writer& w) { return w.n.direct && Copies(w, w.g.In(w.n, 0)); }
bool PartsGrad(Writer& w) {
  return !w.n.inputs.empty() && w.n.direct && Copies(w, w.n.inputs.back());
}

// ---- the list

template <Unary kForm>
bool OfOne(Writer& w) {
  const int x = w.g.In(w.n, 0), y = w.g.Out(w.n, 0);
  Operand result;
  if (!w.g.AreFloat({x, y}) || w.g.numel(x) != w.g.numel(y) ||
      !kForm(w, w.In(x), result)) {
    return false;
  }
  w.Give(y, result);
  return true;
}

template <UnaryGrad kForm>
bool OfOneGrad(Writer& w) {
  const int x = w.g.In(w.n, 0), dy = w.g.In(w.n, 1), dx = w.g.Out(w.n, 0);
  Operand result;
  if (!w.g.AreFloat({x, dy, dx}) || w.g.numel(x) != w.g.numel(dx) ||
      w.g.numel(dy) != w.g.numel(dx) || !kForm(w, w.In(x), w.In(dy), result)) {
    return false;
  }
  w.Give(dx, result);
  return true;
}

bool ScaleGrad(Writer& w) {
  const int dy = w.g.In(w.n, 0), dx = w.g.Out(w.n, 0);
  if (w.n.kernel->slot_end.size() != 1 || !w.g.AreFloat({dy, dx})) return false;
  const double factor = w.g.attr<double>(w.n, "scale");
  w.Give(dx, factor == 1
                 ? w.In(dy)
                 : w.Product(w.In(dy),
                             Operand::Number(static_cast<float>(factor))));
  return true;
}

using Form = bool (*)(Writer& w);

const std::map<std::string_view, Form>& Forms() {
  static const std::map<std::string_view, Form> forms = {
      {"relu", OfOne<Plain<BlockOp::kRelu>>},
      {"relu_grad", OfOneGrad<PlainGrad<BlockOp::kReluGrad>>},
      {"tanh", OfOne<Plain<BlockOp::kTanh>>},
      {"tanh_grad", OfOneGrad<PlainGrad<BlockOp::kTanhGrad>>},
      {"sigmoid", OfOne<Plain<BlockOp::kSigmoid>>},
      {"sigmoid_grad", OfOneGrad<PlainGrad<BlockOp::kSigmoidGrad>>},
      {"exp", OfOne<Plain<BlockOp::kExp>>},
      {"exp_grad", OfOneGrad<ExpGrad>},
      {"log", OfOne<Plain<BlockOp::kLog>>},
      {"log_grad", OfOneGrad<LogGrad>},
      {"sqrt", OfOne<Plain<BlockOp::kSqrt>>},
      {"sqrt_grad", OfOneGrad<SqrtGrad>},
      {"rsqrt", OfOne<Rsqrt>},
      {"rsqrt_grad", OfOneGrad<RsqrtGrad>},
      {"reciprocal", OfOne<Reciprocal>},
      {"reciprocal_grad", OfOneGrad<ReciprocalGrad>},
      {"square", OfOne<Plain<BlockOp::kSquare>>},
      {"square_grad", OfOneGrad<SquareGrad>},
      {"abs", OfOne<Plain<BlockOp::kAbs>>},
      {"abs_grad", OfOneGrad<AbsGrad>},
      {"sign", OfOne<Plain<BlockOp::kSign>>},
      {"pow", OfOne<Pow>},
      {"pow_grad", OfOneGrad<PowGrad>},
      {"clip", OfOne<Clip>},
      {"clip_grad", OfOneGrad<ClipGrad>},
      {"scale", OfOne<Scale>},
      {"scale_grad", ScaleGrad},
      {"silu", OfOne<Silu>},
      {"silu_grad", OfOneGrad<SiluGrad>},
      {"gelu", OfOne<Gelu>},
      {"gelu_grad", OfOneGrad<GeluGrad>},
      {"elementwise_add", Binary<&Writer::Sum>},
      {"elementwise_add_grad", BinaryGrad<SumGrad, SumSpreadGrad>},
      {"elementwise_sub", Binary<&Writer::Difference>},
      {"elementwise_sub_grad",
       BinaryGrad<DifferenceGrad, DifferenceSpreadGrad>},
      {"minus", Binary<&Writer::Difference>},
      {"minus_grad", BinaryGrad<DifferenceGrad>},
      {"elementwise_mul", Binary<&Writer::Product>},
      {"elementwise_mul_grad", BinaryGrad<ProductGrad, ProductSpreadGrad>},
      {"elementwise_div", Binary<&Writer::Quotient>},
      {"elementwise_div_grad", BinaryGrad<QuotientGrad>},
      {"elementwise_max", Binary<&Writer::Larger>},
      {"elementwise_max_grad", BinaryGrad<ExtremeGrad<true>>},
      {"elementwise_min", Binary<&Writer::Smaller>},
      {"elementwise_min_grad", BinaryGrad<ExtremeGrad<false>>},
      {"mean", Total<true>},
      {"reduce_mean", Total<true>},
      {"reduce_sum", Total<false>},
      {"sum", Sum},
      {"sum_grad", PartsGrad},
      {"assign", View},
      {"assign_grad", PartsGrad},
      {"reshape2", View},
      {"reshape2_grad", PartsGrad},
      {"flatten_contiguous_range", View},
      {"flatten_contiguous_range_grad", PartsGrad},
      {"squeeze2", View},
      {"squeeze2_grad", PartsGrad},
      {"unsqueeze2", View},
      {"unsqueeze2_grad", PartsGrad},
  };
  return forms;
}

}  // namespace

std::optional<ChainForm> FindChainForm(Graph& graph, int node) {
  Node& n = graph.nodes[node];
  if (n.kernel == nullptr || n.gone || n.fused || !n.step->in_place.empty()) {
    return std::nullopt;
  }
  std::string type = n.kernel->def().name;
  if (n.kernel->backward) type += "_grad";
  const auto form = Forms().find(type);
  if (form == Forms().end()) return std::nullopt;
  // As large as the largest value that it has. Where one is empty there is
  // nothing to pass over.
  int64_t numel = 0;
  for (int out : n.outputs) {
    if (out == kNone) continue;
    if (!graph.values[out].is_float()) return std::nullopt;
    if (graph.numel(out) == 0) return std::nullopt;
    numel = std::max(numel, graph.numel(out));
  }
  if (numel == 0) return std::nullopt;
  for (int in : n.inputs) {
    if (in == kNone) continue;
    if (graph.numel(in) == 0) return std::nullopt;
    numel = std::max(numel, graph.numel(in));
  }
  Writer writer(graph, n, numel);
  if (!form->second(writer)) return std::nullopt;
  return writer.Finish();
}

}  // namespace fleet::exec
