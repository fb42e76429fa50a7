// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/zeros.h>

#include "fleet/ops/cpu_path.h"
#include "fleet/ops/crf.h"
#include "fleet/ops/host_memory.h"
#include "fleet/ops/shape_argument.h"

// Chains of tags. Sums over all ways through a sequence go row by row over the
// ways up to there (Forward) or from there on (Gradient), which are scaled to
// the sum one: their logarithms are kept apart. In between all is double, on
// the host: ways whose scores differ by up to 700 still count.

namespace fleet::ops {
namespace {

using at::Tensor;
using Ints = std::vector<int64_t>;

// Sequences whose gradients of the transitions are added up together. Not by
// thread: sums must not depend on how many there are.
constexpr int64_t kBlock = 8;

// ---- loops over all pairs of tags

#define FLEET_CRF_INLINE inline __attribute__((always_inline))

// y = x m, for m [n, n].
FLEET_CRF_INLINE void TimesBody(int64_t n, const double* x, const double* m,
                                double* y) {
  std::fill(y, y + n, 0.0);
  for (int64_t i = 0; i < n; ++i, m += n) {
    const double by = x[i];
    for (int64_t j = 0; j < n; ++j) y[j] += by * m[j];
  }
}

// m[i, j] += scale * x[i] * y[j].
FLEET_CRF_INLINE void AddOuterBody(int64_t n, double scale, const double* x,
                                   const double* y, double* m) {
  for (int64_t i = 0; i < n; ++i, m += n) {
    const double by = scale * x[i];
    for (int64_t j = 0; j < n; ++j) m[j] += by * y[j];
  }
}

// y[j]: the largest x[i] + m[i, j].
FLEET_CRF_INLINE void LargestBody(int64_t n, const double* x, const double* m,
                                  double* y) {
  for (int64_t j = 0; j < n; ++j) y[j] = x[0] + m[j];
  for (int64_t i = 1; i < n; ++i) {
    const double* row = m + i * n;
    const double before = x[i];
    for (int64_t j = 0; j < n; ++j) {
      const double score = before + row[j];
      y[j] = score > y[j] ? score : y[j];
    }
  }
}

// The inner loops, with one arithmetic in one order for every instruction set:
// without fused products, results do not depend on the machine.
struct Loops {
  void (*times)(int64_t, const double*, const double*, double*);
  void (*add_outer)(int64_t, double, const double*, const double*, double*);
  void (*largest)(int64_t, const double*, const double*, double*);
};

#if defined(__x86_64__)
#define FLEET_CRF_AVX2 __attribute__((target("avx2")))
FLEET_CRF_AVX2 void TimesAvx2(int64_t n, const double* x, const double* m,
                              double* y) {
  TimesBody(n, x, m, y);
}
FLEET_CRF_AVX2 void AddOuterAvx2(int64_t n, double scale, const double* x,
                                 const double* y, double* m) {
  AddOuterBody(n, scale, x, y, m);
}
FLEET_CRF_AVX2 void LargestAvx2(int64_t n, const double* x, const double* m,
                                double* y) {
  LargestBody(n, x, m, y);
}
#endif

void Times(int64_t n, const double* x, const double* m, double* y) {
  TimesBody(n, x, m, y);
}
void AddOuter(int64_t n, double scale, const double* x, const double* y,
              double* m) {
  AddOuterBody(n, scale, x, y, m);
}
void Largest(int64_t n, const double* x, const double* m, double* y) {
  LargestBody(n, x, m, y);
}

const Loops& BestLoops() {
  static const Loops loops = [] {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) {
      return Loops{TimesAvx2, AddOuterAvx2, LargestAvx2};
    }
#endif
    return Loops{Times, AddOuter, Largest};
  }();
  return loops;
}

// ---- what goes in

// Where sequences begin and how many rows they have, among rows of `tags`
// scores.
struct Chains {
  Ints begins;
  Ints lengths;
  int64_t tags;
  Tensor scores;  // [rows, tags]

  int64_t count() const { return static_cast<int64_t>(lengths.size()); }
  const double* row(int64_t sequence) const {
    return scores.const_data_ptr<double>() + begins[sequence] * tags;
  }
};

Chains ReadChains(const Tensor& emission, const Tensor& length,
                  const Tensor& lod) {
  const int64_t tags = emission.size(-1);
  TORCH_CHECK(tags > 0, "Emission ", emission.sizes(), " has no tags");
  Chains c{{}, {}, tags, OnHost(emission, at::kDouble).reshape({-1, tags})};
  if (length.defined()) {
    TORCH_CHECK(emission.dim() == 3, "Emission ", emission.sizes(),
                " must have shape [sequences, longest, tags] beside Length");
    const int64_t longest = emission.size(1);
    c.lengths = IntsOf(length.reshape({-1}), {});
    TORCH_CHECK(c.count() == emission.size(0), "Length has ", c.count(),
                " numbers for ", emission.size(0), " sequences");
    for (int64_t i = 0; i < c.count(); ++i) {
      TORCH_CHECK(c.lengths[i] >= 0 && c.lengths[i] <= longest, "Length ",
                  c.lengths[i], " of sequence ", i, " is outside [0, ", longest,
                  "]");
      c.begins.push_back(i * longest);
    }
    return c;
  }
  TORCH_CHECK(lod.defined(), "Emission is no sequence: it has no LoD");
  Ints offsets = IntsOf(lod, {});
  const int64_t rows = c.scores.size(0);
  TORCH_CHECK(!offsets.empty() && offsets.front() == 0 &&
                  std::is_sorted(offsets.begin(), offsets.end()) &&
                  offsets.back() == rows,
              "offsets must begin with 0, never fall, and end with the number "
              "of rows, ",
              rows);
  for (size_t i = 1; i < offsets.size(); ++i) {
    c.begins.push_back(offsets[i - 1]);
    c.lengths.push_back(offsets[i] - offsets[i - 1]);
  }
  return c;
}

// One tag for each row, those of padding not looked at.
Ints ReadLabels(const Tensor& label, const Chains& c) {
  TORCH_CHECK(at::isIntegralType(label.scalar_type(), false),
              "Label must have an integer type, not ", label.scalar_type());
  TORCH_CHECK(label.numel() == c.scores.size(0), "Label ", label.sizes(),
              " must have one tag for each of the ", c.scores.size(0), " rows");
  Ints labels = IntsOf(label.reshape({-1}), {});
  for (int64_t s = 0; s < c.count(); ++s) {
    for (int64_t t = 0; t < c.lengths[s]; ++t) {
      const int64_t tag = labels[c.begins[s] + t];
      TORCH_CHECK(tag >= 0 && tag < c.tags, "Label is ", tag, " in row ", t,
                  " of sequence ", s, ", outside [0, ", c.tags, ")");
    }
  }
  return labels;
}

// Sequences in parallel, in blocks: work(block, first, end).
template <class Work>
void ForBlocks(const Chains& c, const Work& work) {
  const int64_t blocks = (c.count() + kBlock - 1) / kBlock;
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      work(b, b * kBlock, std::min(c.count(), (b + 1) * kBlock));
    }
  });
}

// The scores of beginning, ending and stepping, and their exponents relative to
// the largest.
struct Transitions {
  Tensor held;
  const double *start, *end, *step;
  std::vector<double> start_exp, end_exp, step_exp;
  std::vector<double> step_exp_to;  // the same from the tag that follows
  double start_max, end_max, step_max;
};

double Exponents(const double* from, int64_t n, std::vector<double>& to) {
  const double largest = *std::max_element(from, from + n);
  to.resize(n);
  for (int64_t i = 0; i < n; ++i) to[i] = std::exp(from[i] - largest);
  return largest;
}

Transitions ReadTransitions(const Tensor& transition, int64_t tags) {
  TORCH_CHECK(transition.dim() == 2 && transition.size(0) == tags + 2 &&
                  transition.size(1) == tags,
              "Transition ", transition.sizes(), " must have shape [", tags + 2,
              ", ", tags, "]");
  Transitions w;
  w.held = OnHost(transition, at::kDouble);
  w.start = w.held.const_data_ptr<double>();
  w.end = w.start + tags;
  w.step = w.end + tags;
  w.start_max = Exponents(w.start, tags, w.start_exp);
  w.end_max = Exponents(w.end, tags, w.end_exp);
  w.step_max = Exponents(w.step, tags * tags, w.step_exp);
  w.step_exp_to.resize(tags * tags);
  for (int64_t i = 0; i < tags; ++i) {
    for (int64_t j = 0; j < tags; ++j) {
      w.step_exp_to[j * tags + i] = w.step_exp[i * tags + j];
    }
  }
  return w;
}

// Scales `x` to the sum one and gives the sum it had.
double Normalize(double* x, int64_t n, int64_t sequence) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  TORCH_CHECK(sum > 0 && std::isfinite(sum), "no way through sequence ",
              sequence,
              " has a probability above zero: its scores are not finite, or "
              "differ by more than 700");
  const double scale = 1 / sum;
  for (int64_t i = 0; i < n; ++i) x[i] *= scale;
  return sum;
}

// The exponents of all emissions relative to the largest of their row, and
// these.
struct Emissions {
  explicit Emissions(const Chains& c)
      : peaks(at::amax(c.scores, {1}, true)),
        exps(at::exp(c.scores - peaks).contiguous()) {}
  Tensor peaks;
  Tensor exps;
};

// Fills `alpha` [length, tags] with the shares of the tags among all ways up to
// each row; the logarithm of the sum over all ways.
double Forward(const Chains& c, int64_t sequence, const Transitions& w,
               const Emissions& emissions, double* alpha) {
  const int64_t n = c.tags, length = c.lengths[sequence];
  const double* peaks =
      emissions.peaks.const_data_ptr<double>() + c.begins[sequence];
  const double* exps =
      emissions.exps.const_data_ptr<double>() + c.begins[sequence] * n;
  const Loops& loops = BestLoops();
  double log_sum =
      w.start_max + w.end_max + static_cast<double>(length - 1) * w.step_max;
  for (int64_t t = 0; t < length; ++t, exps += n, alpha += n) {
    if (t == 0) {
      std::copy(w.start_exp.begin(), w.start_exp.end(), alpha);
    } else {
      loops.times(n, alpha - n, w.step_exp.data(), alpha);
    }
    for (int64_t j = 0; j < n; ++j) alpha[j] *= exps[j];
    log_sum += peaks[t] + std::log(Normalize(alpha, n, sequence));
  }
  std::vector<double> last(alpha - n, alpha);
  for (int64_t j = 0; j < n; ++j) last[j] *= w.end_exp[j];
  return log_sum + std::log(Normalize(last.data(), n, sequence));
}

// The score of the way that the labels take.
double ScoreOf(const Chains& c, int64_t sequence, const Transitions& w,
               const int64_t* labels) {
  const int64_t n = c.tags, length = c.lengths[sequence];
  const double* row = c.row(sequence);
  double score = w.start[labels[0]] + w.end[labels[length - 1]];
  for (int64_t t = 0; t < length; ++t) {
    score += row[t * n + labels[t]];
    if (t > 0) score += w.step[labels[t - 1] * n + labels[t]];
  }
  return score;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> LinearChainCrf(
    const Tensor& emission, const Tensor& transition, const Tensor& label,
    const Tensor& length, const Tensor& lod) {
  const Chains c = ReadChains(emission, length, lod);
  const Ints labels = ReadLabels(label, c);
  const Transitions w = ReadTransitions(transition, c.tags);
  const Emissions emissions(c);
  Tensor alpha = at::zeros(c.scores.sizes(), c.scores.options());
  Tensor cost = at::zeros({c.count(), 1}, c.scores.options());
  auto* shares = alpha.mutable_data_ptr<double>();
  auto* costs = cost.mutable_data_ptr<double>();
  ForBlocks(c, [&](int64_t, int64_t first, int64_t end) {
    for (int64_t s = first; s < end; ++s) {
      if (c.lengths[s] == 0) continue;
      costs[s] = Forward(c, s, w, emissions, shares + c.begins[s] * c.tags) -
                 ScoreOf(c, s, w, labels.data() + c.begins[s]);
    }
  });
  return {alpha.reshape(emission.sizes()).to(emission.options()),
          emissions.exps.reshape(emission.sizes()).to(emission.options()),
          at::exp(transition).to(emission.options()),
          cost.to(emission.options())};
}

// What the gradient of one sequence needs for its while.
struct Scratch {
  explicit Scratch(int64_t n) : beta(n), onward(n) {}
  std::vector<double> alpha;   // [length, tags]
  std::vector<double> beta;    // shares of the ways from a row on
  std::vector<double> onward;  // the same with that row's emission
};

// Adds `by` times the gradient of one sequence's cost: by its emissions to
// `demission`, by the exponents of steps to `dstep`, by all else to
// `dtransition`.
void Gradient(const Chains& c, int64_t s, const Transitions& w,
              const Emissions& emissions, const int64_t* labels, double by,
              Scratch& scratch, double* demission, double* dtransition,
              double* dstep) {
  const int64_t n = c.tags, length = c.lengths[s];
  const double* exps =
      emissions.exps.const_data_ptr<double>() + c.begins[s] * n;
  const Loops& loops = BestLoops();
  scratch.alpha.resize(length * n);
  Forward(c, s, w, emissions, scratch.alpha.data());
  std::vector<double>& beta = scratch.beta;
  std::vector<double>& onward = scratch.onward;
  beta = w.end_exp;
  for (int64_t t = length; t-- > 0;) {
    const double* alpha = scratch.alpha.data() + t * n;
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += alpha[j] * beta[j];
    const double scale = by / sum;
    double* d = demission + t * n;
    for (int64_t j = 0; j < n; ++j) d[j] += scale * alpha[j] * beta[j];
    if (t + 1 == length) {
      for (int64_t j = 0; j < n; ++j) dtransition[n + j] += d[j];
      dtransition[n + labels[t]] -= by;
    }
    if (t == 0) {
      for (int64_t j = 0; j < n; ++j) dtransition[j] += d[j];
      dtransition[labels[0]] -= by;
    }
    d[labels[t]] -= by;
    if (t == 0) break;
    for (int64_t j = 0; j < n; ++j) onward[j] = exps[t * n + j] * beta[j];
    const double* before = alpha - n;
    loops.times(n, onward.data(), w.step_exp_to.data(), beta.data());
    double all = 0;
    for (int64_t i = 0; i < n; ++i) all += before[i] * beta[i];
    loops.add_outer(n, by / all, before, onward.data(), dstep);
    dtransition[(labels[t - 1] + 2) * n + labels[t]] -= by;
    Normalize(beta.data(), n, s);
  }
}

std::tuple<Tensor, Tensor> LinearChainCrfGrad(
    const Tensor& emission, const Tensor& transition, const Tensor& label,
    const Tensor& length, const Tensor& lod, const Tensor& dcost) {
  TORCH_CHECK(!Recording(), "linear_chain_crf has no second derivative");
  const Chains c = ReadChains(emission, length, lod);
  const Ints labels = ReadLabels(label, c);
  const Transitions w = ReadTransitions(transition, c.tags);
  const Emissions emissions(c);
  const Tensor by = OnHost(dcost, at::kDouble).reshape({-1});
  const auto* bys = by.const_data_ptr<double>();
  const int64_t n = c.tags, blocks = (c.count() + kBlock - 1) / kBlock;
  Tensor demission = at::zeros(c.scores.sizes(), c.scores.options());
  Tensor partial = at::zeros({blocks, n + 2, n}, c.scores.options());
  auto* de = demission.mutable_data_ptr<double>();
  auto* dw = partial.mutable_data_ptr<double>();
  ForBlocks(c, [&](int64_t block, int64_t first, int64_t end) {
    Scratch scratch(n);
    double* mine = dw + block * (n + 2) * n;
    std::vector<double> dstep(n * n, 0.0);
    for (int64_t s = first; s < end; ++s) {
      if (c.lengths[s] == 0 || bys[s] == 0) continue;
      Gradient(c, s, w, emissions, labels.data() + c.begins[s], bys[s], scratch,
               de + c.begins[s] * n, mine, dstep.data());
    }
    for (int64_t i = 0; i < n * n; ++i) {
      mine[2 * n + i] += dstep[i] * w.step_exp[i];
    }
  });
  return {demission.reshape(emission.sizes()).to(emission.options()),
          partial.sum(0).to(transition.options())};
}

// The tags of the best way through one sequence, into `path`. `best` [length,
// tags] is filled with the scores of the best ways up to each row; which tag
// came before is found again on the way back, where it is asked for one tag of
// a row only.
void BestWay(const Chains& c, int64_t sequence, const Transitions& w,
             std::vector<double>& best, std::vector<double>& reached,
             int64_t* path) {
  const int64_t n = c.tags, length = c.lengths[sequence];
  const double* row = c.row(sequence);
  const Loops& loops = BestLoops();
  best.resize(length * n);
  reached.resize(length * n);
  for (int64_t j = 0; j < n; ++j) best[j] = w.start[j] + row[j];
  for (int64_t t = 1; t < length; ++t) {
    double* ways = reached.data() + t * n;
    loops.largest(n, best.data() + (t - 1) * n, w.step, ways);
    for (int64_t j = 0; j < n; ++j) {
      best[t * n + j] = ways[j] + row[t * n + j];
    }
  }
  int64_t tag = 0;
  const double* last = best.data() + (length - 1) * n;
  for (int64_t j = 1; j < n; ++j) {
    if (last[j] + w.end[j] > last[tag] + w.end[tag]) tag = j;
  }
  for (int64_t t = length - 1; t > 0; --t) {
    path[t] = tag;
    const double* before = best.data() + (t - 1) * n;
    const double score = reached[t * n + tag];
    const double* step = w.step + tag;
    int64_t from = 0;
    while (from + 1 < n && before[from] + step[from * n] != score) ++from;
    tag = from;
  }
  path[0] = tag;
}

Tensor CrfDecoding(const Tensor& emission, const Tensor& transition,
                   const Tensor& label, const Tensor& length,
                   const Tensor& lod) {
  const Chains c = ReadChains(emission, length, lod);
  Ints labels;
  if (label.defined()) labels = ReadLabels(label, c);
  const Transitions w = ReadTransitions(transition, c.tags);
  const int64_t rows = c.scores.size(0);
  Tensor path = at::zeros({rows}, at::kLong);
  auto* tags = path.mutable_data_ptr<int64_t>();
  ForBlocks(c, [&](int64_t, int64_t first, int64_t end) {
    std::vector<double> best, reached;
    for (int64_t s = first; s < end; ++s) {
      if (c.lengths[s] == 0) continue;
      int64_t* mine = tags + c.begins[s];
      BestWay(c, s, w, best, reached, mine);
      if (labels.empty()) continue;
      const int64_t* wanted = labels.data() + c.begins[s];
      for (int64_t t = 0; t < c.lengths[s]; ++t) {
        mine[t] = mine[t] == wanted[t] ? 1 : 0;
      }
    }
  });
  const int64_t width = length.defined() ? emission.size(1) : 1;
  const int64_t sequences = length.defined() ? emission.size(0) : rows;
  return path.reshape({sequences, width}).to(emission.device());
}

}  // namespace

void AddCrfKernels(KernelTable& k) {
  k.Add<LinearChainCrf, LinearChainCrfGrad>("linear_chain_crf");
  k.Add<CrfDecoding>("crf_decoding");
}

}  // namespace fleet::ops
