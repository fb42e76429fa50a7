// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>

#include "fleet/ops/cpu_path.h"
#include "fleet/ops/kernels.h"

// Recurrent layers. Going forth, a cell multiplies the inputs of all steps by
// its weight at once, then walks through time and keeps its gates and states;
// going back, it walks the other way and gathers the gradients of the gates,
// from which those of the weights follow by one product each.

namespace fleet::ops {
namespace {

using at::Tensor;

enum class Mode { kLstm, kGru, kTanh, kRelu };

// Everything that the attributes and shapes of a call say.
struct Sizes {
  Mode mode;
  int64_t steps, batch, hidden, layers, directions;
  double dropout;  // 0 outside training

  int64_t cells() const { return layers * directions; }
  int64_t gates() const {
    return mode == Mode::kLstm ? 4 : mode == Mode::kGru ? 3 : 1;
  }
  // Columns that a cell keeps for each sample and step: its gates, where a GRU
  // adds the state's part of the candidate; the new state; an LSTM's c.
  int64_t kept_gates() const {
    return mode == Mode::kLstm || mode == Mode::kGru ? 4 * hidden : 0;
  }
  int64_t kept() const {
    return kept_gates() + hidden * (mode == Mode::kLstm ? 2 : 1);
  }
  int64_t width() const { return directions * hidden; }  // of a layer's output
};

Sizes MakeSizes(const Tensor& input, const std::string& mode, int64_t hidden,
                int64_t layers, bool bidirectional, double dropout,
                bool is_test) {
  TORCH_CHECK(input.dim() == 3, "input must have three dimensions");
  Sizes s{};
  TORCH_CHECK(mode == "LSTM" || mode == "GRU" || mode == "RNN_TANH" ||
                  mode == "RNN_RELU",
              "unknown mode ", mode);
  s.mode = mode == "LSTM"       ? Mode::kLstm
           : mode == "GRU"      ? Mode::kGru
           : mode == "RNN_TANH" ? Mode::kTanh
                                : Mode::kRelu;
  s.steps = input.size(0);
  s.batch = input.size(1);
  s.hidden = hidden;
  s.layers = layers;
  s.directions = bidirectional ? 2 : 1;
  s.dropout = is_test ? 0 : dropout;
  return s;
}

struct Weights {
  Tensor ih, hh, bias_ih, bias_hh;  // biases may be undefined
};

Weights WeightsOf(at::TensorList list, const Sizes& s, int64_t cell) {
  Weights w{list[2 * cell], list[2 * cell + 1], {}, {}};
  if (static_cast<int64_t>(list.size()) == 4 * s.cells()) {
    w.bias_ih = list[2 * s.cells() + 2 * cell];
    w.bias_hh = list[2 * s.cells() + 2 * cell + 1];
  }
  return w;
}

// What the gradient needs, cut out of one flat tensor.
class Reserve {
 public:
  static int64_t NumElements(const Sizes& s) {
    int64_t between = (s.layers - 1) * s.width() * (s.dropout > 0 ? 2 : 1);
    return s.steps * s.batch * (s.cells() * s.kept() + between);
  }

  Reserve(const Sizes& s, const Tensor& flat) : s_(s), flat_(flat) {}

  Tensor Gates(int64_t cell) const {
    return Take(cell * s_.kept(), s_.kept_gates());
  }
  Tensor States(int64_t cell) const {
    return Take(cell * s_.kept() + s_.kept_gates(), s_.hidden);
  }
  Tensor Memories(int64_t cell) const {  // an LSTM's c
    return Take(cell * s_.kept() + s_.kept_gates() + s_.hidden, s_.hidden);
  }
  // The input of layer 1, 2, ... after dropout, and what it was multiplied by.
  Tensor LayerInput(int64_t layer) const {
    return Take(s_.cells() * s_.kept() + (layer - 1) * s_.width(), s_.width());
  }
  Tensor DropoutMask(int64_t layer) const {
    return Take(
        s_.cells() * s_.kept() + (s_.layers - 1 + layer - 1) * s_.width(),
        s_.width());
  }

 private:
  // Columns are stored one block after the other, each [steps, batch, n].
  Tensor Take(int64_t begin, int64_t n) const {
    int64_t rows = s_.steps * s_.batch;
    return flat_.narrow(0, begin * rows, n * rows)
        .view({s_.steps, s_.batch, n});
  }

  const Sizes& s_;
  Tensor flat_;
};

// 1 where a step lies inside its sequence, [steps, batch, 1]; undefined when
// all sequences are full.
Tensor StepMask(const Tensor& lengths, const Sizes& s, const Tensor& like) {
  if (!lengths.defined()) return {};
  TORCH_CHECK(lengths.numel() == s.batch, "one length for each sequence");
  Tensor steps = at::arange(s.steps, lengths.options());
  return (steps.unsqueeze(1) < lengths.reshape({1, -1}))
      .to(like.scalar_type())
      .unsqueeze(2);
}

Tensor Blend(const Tensor& mask, const Tensor& inside, const Tensor& outside) {
  return mask.defined() ? outside + mask * (inside - outside) : inside;
}

Tensor Masked(const Tensor& mask, const Tensor& x) {
  return mask.defined() ? x * mask : x;
}

// ---- forth

struct CellState {
  Tensor h, c;
};

// One step from the input's and the state's part of the gates. Writes what is
// kept to `gates`.
CellState Step(const Sizes& s, const Tensor& gx, const Tensor& gh,
               const CellState& before, const Tensor& gates) {
  int64_t n = s.hidden;
  switch (s.mode) {
    case Mode::kTanh:
      return {at::tanh(gx + gh), {}};
    case Mode::kRelu:
      return {at::relu(gx + gh), {}};
    case Mode::kLstm: {
      Tensor sum = gx + gh;
      Tensor input_forget = at::sigmoid(sum.narrow(1, 0, 2 * n));
      Tensor candidate = at::tanh(sum.narrow(1, 2 * n, n));
      Tensor output = at::sigmoid(sum.narrow(1, 3 * n, n));
      gates.narrow(1, 0, 2 * n).copy_(input_forget);
      gates.narrow(1, 2 * n, n).copy_(candidate);
      gates.narrow(1, 3 * n, n).copy_(output);
      Tensor c = input_forget.narrow(1, n, n) * before.c +
                 input_forget.narrow(1, 0, n) * candidate;
      return {output * at::tanh(c), c};
    }
    case Mode::kGru: {
      Tensor reset_update =
          at::sigmoid(gx.narrow(1, 0, 2 * n) + gh.narrow(1, 0, 2 * n));
      Tensor from_state = gh.narrow(1, 2 * n, n);
      Tensor candidate = at::tanh(gx.narrow(1, 2 * n, n) +
                                  reset_update.narrow(1, 0, n) * from_state);
      Tensor update = reset_update.narrow(1, n, n);
      gates.narrow(1, 0, 2 * n).copy_(reset_update);
      gates.narrow(1, 2 * n, n).copy_(candidate);
      gates.narrow(1, 3 * n, n).copy_(from_state);
      return {candidate + update * (before.h - candidate), {}};
    }
  }
  return {};
}

// Steps in the order in which a cell takes them.
std::vector<int64_t> Order(const Sizes& s, int64_t cell) {
  std::vector<int64_t> order(s.steps);
  std::iota(order.begin(), order.end(), 0);
  bool backwards = cell % s.directions == 1;
  if (backwards) std::reverse(order.begin(), order.end());
  return order;
}

// Runs a cell over x [steps, batch, size] from `state`, which becomes the last
// one. Writes its outputs to `out` [steps, batch, hidden].
void RunCell(const Sizes& s, const Weights& w, const Tensor& x,
             const Tensor& mask, const Reserve& reserve, int64_t cell,
             CellState& state, const Tensor& out) {
  Tensor gx = at::matmul(x, w.ih.t());
  if (w.bias_ih.defined()) gx = gx + w.bias_ih;
  Tensor gates = reserve.Gates(cell), states = reserve.States(cell), memories;
  if (s.mode == Mode::kLstm) memories = reserve.Memories(cell);
  Tensor hh = w.hh.t();
  for (int64_t t : Order(s, cell)) {
    Tensor gh = at::matmul(state.h, hh);
    if (w.bias_hh.defined()) gh = gh + w.bias_hh;
    CellState next = Step(s, gx.select(0, t), gh, state, gates.select(0, t));
    Tensor inside = mask.defined() ? mask.select(0, t) : Tensor();
    out.select(0, t).copy_(Masked(inside, next.h));
    state.h = Blend(inside, next.h, state.h);
    states.select(0, t).copy_(state.h);
    if (s.mode == Mode::kLstm) {
      state.c = Blend(inside, next.c, state.c);
      memories.select(0, t).copy_(state.c);
    }
  }
}

// The input of a layer above the first: the output below, after dropout.
Tensor NextLayerInput(const Sizes& s, const Tensor& below,
                      const Reserve& reserve, int64_t layer) {
  Tensor x = reserve.LayerInput(layer);
  if (s.dropout == 0) return x.copy_(below);
  Tensor drop = reserve.DropoutMask(layer);
  if (s.dropout == 1) {
    drop.zero_();
  } else {
    drop.bernoulli_(1 - s.dropout).div_(1 - s.dropout);
  }
  return x.copy_(below * drop);
}

std::vector<Tensor> Rnn(const Tensor& input, at::TensorList pre_state,
                        at::TensorList weights, const Tensor& lengths,
                        const std::string& mode, int64_t hidden, int64_t layers,
                        bool bidirectional, double dropout, bool is_test) {
  Sizes s =
      MakeSizes(input, mode, hidden, layers, bidirectional, dropout, is_test);
  bool lstm = s.mode == Mode::kLstm;
  TORCH_CHECK(pre_state.size() == (lstm ? 2u : 1u) &&
                  (static_cast<int64_t>(weights.size()) == 2 * s.cells() ||
                   static_cast<int64_t>(weights.size()) == 4 * s.cells()),
              "states or weights do not fit");
  TORCH_CHECK(pre_state[0].dim() == 3 && pre_state[0].size(0) == s.cells() &&
                  pre_state[0].size(1) == s.batch,
              "states do not fit");
  Tensor flat = at::empty({Reserve::NumElements(s)}, input.options());
  Reserve reserve(s, flat);
  Tensor mask = StepMask(lengths, s, input), x = input, out;
  std::vector<Tensor> last_h, last_c;
  for (int64_t layer = 0; layer < s.layers; ++layer) {
    if (layer > 0) x = NextLayerInput(s, out, reserve, layer);
    out = at::empty({s.steps, s.batch, s.width()}, input.options());
    for (int64_t d = 0; d < s.directions; ++d) {
      int64_t cell = layer * s.directions + d;
      CellState state{pre_state[0].select(0, cell), {}};
      if (lstm) state.c = pre_state[1].select(0, cell);
      RunCell(s, WeightsOf(weights, s, cell), x, mask, reserve, cell, state,
              out.narrow(2, d * hidden, hidden));
      last_h.push_back(state.h);
      if (lstm) last_c.push_back(state.c);
    }
  }
  std::vector<Tensor> results{out, at::stack(last_h)};
  if (lstm) results.push_back(at::stack(last_c));
  results.push_back(flat);
  return results;
}

// ---- back

// The gradients of one step's gates before their activations: as the input's
// part and the state's part see them (they differ for a GRU only). `grad` comes
// in as that of the new state and leaves as what reaches the old one past the
// gates.
struct GateGrads {
  Tensor from_input, from_state;
};

GateGrads StepGrad(const Sizes& s, const Tensor& gates, const Tensor& new_h,
                   const Tensor& new_c, const CellState& before,
                   CellState& grad) {
  int64_t n = s.hidden;
  switch (s.mode) {
    case Mode::kTanh:
    case Mode::kRelu: {
      Tensor slope = s.mode == Mode::kTanh
                         ? 1 - new_h * new_h
                         : (new_h > 0).to(new_h.scalar_type());
      Tensor g = grad.h * slope;
      grad.h = at::zeros_like(g);
      return {g, g};
    }
    case Mode::kLstm: {
      Tensor i = gates.narrow(1, 0, n), f = gates.narrow(1, n, n);
      Tensor g = gates.narrow(1, 2 * n, n), o = gates.narrow(1, 3 * n, n);
      Tensor squashed = at::tanh(new_c);
      Tensor dc = grad.c + grad.h * o * (1 - squashed * squashed);
      Tensor all =
          at::cat({dc * g * i * (1 - i), dc * before.c * f * (1 - f),
                   dc * i * (1 - g * g), grad.h * squashed * o * (1 - o)},
                  1);
      grad.c = dc * f;
      grad.h = at::zeros_like(grad.h);
      return {all, all};
    }
    case Mode::kGru: {
      Tensor r = gates.narrow(1, 0, n), z = gates.narrow(1, n, n);
      Tensor c = gates.narrow(1, 2 * n, n);
      Tensor from_state = gates.narrow(1, 3 * n, n);
      Tensor dc = grad.h * (1 - z) * (1 - c * c);
      Tensor dz = grad.h * (before.h - c) * z * (1 - z);
      Tensor dr = dc * from_state * r * (1 - r);
      grad.h = grad.h * z;
      return {at::cat({dr, dz, dc}, 1), at::cat({dr, dz, dc * r}, 1)};
    }
  }
  return {};
}

struct CellGrads {
  Tensor x, ih, hh, bias_ih, bias_hh;
};

// Goes back through a cell. `grad` comes in as the gradient of the last state
// and leaves as that of the first.
CellGrads RunCellBack(const Sizes& s, const Weights& w, const Tensor& x,
                      const Tensor& mask, const Reserve& reserve, int64_t cell,
                      const CellState& first, const Tensor& dout,
                      CellState& grad) {
  bool lstm = s.mode == Mode::kLstm;
  Tensor gates = reserve.Gates(cell), states = reserve.States(cell), memories;
  if (lstm) memories = reserve.Memories(cell);
  int64_t columns = s.gates() * s.hidden;
  Tensor dgx = at::empty({s.steps, s.batch, columns}, x.options());
  Tensor dgh = at::empty({s.steps, s.batch, columns}, x.options());
  Tensor old_states = at::empty({s.steps, s.batch, s.hidden}, x.options());
  std::vector<int64_t> order = Order(s, cell);
  for (int64_t k = s.steps - 1; k >= 0; --k) {
    int64_t t = order[k];
    CellState before = first;
    if (k > 0) {
      before.h = states.select(0, order[k - 1]);
      if (lstm) before.c = memories.select(0, order[k - 1]);
    }
    old_states.select(0, t).copy_(before.h);
    Tensor inside = mask.defined() ? mask.select(0, t) : Tensor();
    // Outside its sequence a sample's state passes by, and its output is zero.
    CellState through{Masked(inside, grad.h + dout.select(0, t)), {}};
    if (lstm) through.c = Masked(inside, grad.c);
    GateGrads g =
        StepGrad(s, gates.select(0, t), states.select(0, t),
                 lstm ? memories.select(0, t) : Tensor(), before, through);
    dgx.select(0, t).copy_(g.from_input);
    dgh.select(0, t).copy_(g.from_state);
    through.h = through.h + at::matmul(g.from_state, w.hh);
    grad.h = mask.defined() ? through.h + (1 - inside) * grad.h : through.h;
    if (lstm) {
      grad.c = mask.defined() ? through.c + (1 - inside) * grad.c : through.c;
    }
  }
  int64_t rows = s.steps * s.batch;
  Tensor flat_x = dgx.view({rows, columns}), flat_h = dgh.view({rows, columns});
  CellGrads out;
  out.x = at::matmul(dgx, w.ih);
  out.ih = at::matmul(flat_x.t(), x.reshape({rows, x.size(-1)}));
  out.hh = at::matmul(flat_h.t(), old_states.view({rows, s.hidden}));
  if (w.bias_ih.defined()) {
    out.bias_ih = at::sum(flat_x, {0});
    out.bias_hh = at::sum(flat_h, {0});
  }
  return out;
}

std::vector<Tensor> RnnGrad(const Tensor& input, at::TensorList pre_state,
                            at::TensorList weights, const Tensor& lengths,
                            const Tensor& flat, const Tensor& dout,
                            at::TensorList dstate, const std::string& mode,
                            int64_t hidden, int64_t layers, bool bidirectional,
                            double dropout, bool is_test) {
  TORCH_CHECK(!Recording(), "recurrent layers have no second derivative");
  Sizes s =
      MakeSizes(input, mode, hidden, layers, bidirectional, dropout, is_test);
  bool lstm = s.mode == Mode::kLstm;
  Reserve reserve(s, flat);
  Tensor mask = StepMask(lengths, s, input), dlayer = dout;
  std::vector<Tensor> dh(s.cells()), dc(s.cells()), dweights(weights.size());
  for (int64_t layer = s.layers - 1; layer >= 0; --layer) {
    Tensor x = layer > 0 ? reserve.LayerInput(layer) : input, dx;
    for (int64_t d = 0; d < s.directions; ++d) {
      int64_t cell = layer * s.directions + d;
      CellState first{pre_state[0].select(0, cell), {}};
      CellState grad{dstate[0].select(0, cell), {}};
      if (lstm) {
        first.c = pre_state[1].select(0, cell);
        grad.c = dstate[1].select(0, cell);
      }
      CellGrads g =
          RunCellBack(s, WeightsOf(weights, s, cell), x, mask, reserve, cell,
                      first, dlayer.narrow(2, d * hidden, hidden), grad);
      dx = dx.defined() ? dx + g.x : g.x;
      dweights[2 * cell] = g.ih;
      dweights[2 * cell + 1] = g.hh;
      if (g.bias_ih.defined()) {
        dweights[2 * s.cells() + 2 * cell] = g.bias_ih;
        dweights[2 * s.cells() + 2 * cell + 1] = g.bias_hh;
      }
      dh[cell] = grad.h;
      dc[cell] = grad.c;
    }
    if (layer > 0 && s.dropout > 0) dx = dx * reserve.DropoutMask(layer);
    dlayer = dx;
  }
  std::vector<Tensor> grads{dlayer, at::stack(dh)};
  if (lstm) grads.push_back(at::stack(dc));
  grads.insert(grads.end(), dweights.begin(), dweights.end());
  return grads;
}

}  // namespace

void AddRnnKernels(KernelTable& k) { k.Add<Rnn, RnnGrad>("rnn"); }

}  // namespace fleet::ops
