// SPDX-License-Identifier: Apache-2.0

#include "fleet/ops/update/parameter_update.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>

#include "fleet/ops/update/foreach_update.h"
#include "fleet/ops/update/merged_rows.h"
#include "fleet/optim/clip.h"

namespace fleet::ops {

using optim::Slice;
using optim::Transform;
using optim::Update;

struct ParameterUpdater::Work {
  Parameter* parameter;
  // What the rule changes: the parameter itself where possible, otherwise a
  // copy that is written back.
  at::Tensor values;
  // It has the type of `values`. Without `rows` it has their shape, too; with
  // rows, it holds one row for each of them.
  at::Tensor gradient;
  at::Tensor rows;
  at::Tensor given_rows;  // of a gradient of rows that became dense
  Transform transform;
  optim::Decay decay;
  at::Tensor scale;  // the clip's factor where only the device knows it
};

namespace {

bool IsHalf(const at::Tensor& t) {
  return t.scalar_type() == at::kHalf || t.scalar_type() == at::kBFloat16;
}

at::ScalarType ComputeType(const at::Tensor& parameter) {
  return IsHalf(parameter) ? at::kFloat : parameter.scalar_type();
}

template <class T>
double SumOfSquares(const at::Tensor& t) {
  return optim::RoundedSum<T>(optim::SumOfSquares<T>(
      {t.const_data_ptr<T>(), static_cast<size_t>(t.numel())}));
}

// Rows are added up as rows, in the order in which they came: the operations of
// a program do that also where the update takes a dense gradient.
template <class Work>
double SumOfSquaresOnMemory(const Work& work) {
  const at::Tensor& t =
      work.given_rows.defined() ? work.given_rows : work.gradient;
  return t.scalar_type() == at::kFloat ? SumOfSquares<float>(t)
                                       : SumOfSquares<double>(t);
}

double ScaleToNorm(bool floats, double sum_of_squares, double max_norm) {
  return floats ? optim::ScaleToNorm<float>(sum_of_squares, max_norm)
                : optim::ScaleToNorm<double>(sum_of_squares, max_norm);
}

// Turns clip(g) + decay into rescale * (clip(g) + decay).
template <class Work>
void Rescale(Work& work, double rescale) {
  work.transform.scale *= rescale;
  work.transform.min *= rescale;
  work.transform.max *= rescale;
  if (rescale < 0.0) std::swap(work.transform.min, work.transform.max);
  work.decay.l1 *= rescale;
  work.decay.l2 *= rescale;
}

template <class T>
size_t NumSlices(const T& work) {
  return work.rows.defined() ? work.rows.numel() : 1;
}

}  // namespace

namespace {

// The gradient with f of its values, sparse where it is sparse.
template <class F>
at::Tensor MapValues(const at::Tensor& gradient, F f) {
  if (gradient.layout() != at::kSparse) return f(gradient);
  const at::Tensor sparse = gradient.coalesce();
  return at::_sparse_coo_tensor_unsafe(sparse.indices(), f(sparse.values()),
                                       sparse.sizes());
}

double Norm(const at::Tensor& gradient) {
  const at::Tensor values = gradient.layout() == at::kSparse
                                ? gradient.coalesce().values()
                                : gradient;
  return values.to(at::kDouble).norm().item<double>();
}

}  // namespace

Result<bool> UnscaleGradients(std::span<const at::Tensor> parameters,
                              double scale) {
  const at::NoGradGuard no_grad;
  std::map<at::DeviceIndex, std::vector<at::Tensor>> by_device;  // -1: the CPU
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    by_device[gradient.is_cpu() ? -1 : gradient.device().index()].push_back(
        gradient.is_sparse() ? gradient._values() : gradient);
  }
  try {
    bool finite = true;
    for (auto& [device, gradients] : by_device) {
      const at::TensorOptions options =
          gradients.front().options().dtype(at::kFloat);
      at::Tensor found = at::zeros({1}, options);
      at::_amp_foreach_non_finite_check_and_unscale_(
          gradients, found, at::full({1}, 1.0 / scale, options));
      finite = finite && found.item<float>() == 0;
    }
    return finite;
  } catch (const c10::Error& error) {
    return Internal("unscale: ", error.what_without_backtrace());
  }
}

Result<std::vector<at::Tensor>> ClipGradients(
    const Clip& clip, std::span<const at::Tensor> gradients) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> clipped(gradients.begin(), gradients.end());
  try {
    double sum = 0.0;
    if (clip.kind == Clip::kGlobalNorm) {
      for (const at::Tensor& g : gradients) {
        if (g.defined()) sum += std::pow(Norm(g), 2);
      }
    }
    for (at::Tensor& g : clipped) {
      if (!g.defined() || clip.kind == Clip::kNone) continue;
      if (clip.kind == Clip::kNorm) sum = std::pow(Norm(g), 2);
      const double scale = clip.kind == Clip::kValue
                               ? 1.0
                               : ScaleToNorm(false, sum, clip.max_norm);
      g = MapValues(g, [&](const at::Tensor& values) {
        return clip.kind == Clip::kValue ? values.clamp(clip.min, clip.max)
                                         : values * scale;
      });
    }
  } catch (const c10::Error& error) {
    return Internal("clip: ", error.what_without_backtrace());
  }
  return clipped;
}

ParameterUpdater::ParameterUpdater(optim::UpdateRule rule, Clip clip,
                                   UpdateBackend backend)
    : rule_(std::move(rule)), clip_(clip), backend_(backend) {
  const auto state = optim::StateNames(rule_);
  const auto powers = optim::PowerNames(rule_);
  num_state_ = state.size();
  names_.assign(state.begin(), state.end());
  names_.insert(names_.end(), powers.begin(), powers.end());
}

namespace {

Status CheckParameter(const at::Tensor& parameter, const std::string& name) {
  if (!parameter.defined() || parameter.layout() != at::kStrided) {
    return InvalidArgument("optimizer: parameter ", name,
                           " is not a dense tensor");
  }
  const at::ScalarType type = parameter.scalar_type();
  if (type != at::kFloat && type != at::kDouble && !IsHalf(parameter)) {
    return InvalidArgument("optimizer: parameter ", name, " is of type ",
                           c10::toString(type), ", not of floating point");
  }
  return OkStatus();
}

}  // namespace

Status ParameterUpdater::Add(at::Tensor parameter, ParameterOptions options) {
  RETURN_IF_ERROR(CheckParameter(parameter, options.name));
  parameters_.push_back({std::move(parameter), std::move(options)});
  return OkStatus();
}

Status ParameterUpdater::Replace(size_t index, at::Tensor parameter) {
  Parameter& target = parameters_[index];
  RETURN_IF_ERROR(CheckParameter(parameter, target.options.name));
  if (parameter.sizes() != target.value.sizes()) {
    return InvalidArgument("optimizer: parameter ", target.options.name,
                           " of shape ", target.value.sizes(),
                           " became one of shape ", parameter.sizes());
  }
  target.value = std::move(parameter);
  target.master_version = -1;
  for (size_t i = 0; i < target.state.size(); ++i) {
    at::Tensor& state = target.state[i];
    const at::Device device =
        i < num_state_ ? target.value.device() : state.device();
    state = state.to(device, ComputeType(target.value));
  }
  return OkStatus();
}

Status ParameterUpdater::Step(double learning_rate) {
  std::vector<Work> works;
  RETURN_IF_ERROR(Collect({}, /*own=*/true, works));
  return Run(learning_rate, works);
}

Status ParameterUpdater::Step(double learning_rate,
                              std::span<const at::Tensor> gradients) {
  if (gradients.size() != parameters_.size()) {
    return InvalidArgument("optimizer: ", gradients.size(), " gradients for ",
                           parameters_.size(), " parameters");
  }
  std::vector<Work> works;
  RETURN_IF_ERROR(Collect(gradients, /*own=*/false, works));
  return Run(learning_rate, works);
}

// Prepares the work of every parameter that has a gradient, before anything is
// changed.
Status ParameterUpdater::Collect(std::span<const at::Tensor> gradients,
                                 bool own, std::vector<Work>& works) {
  const at::NoGradGuard no_grad;
  works.reserve(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = parameters_[i];
    const at::Tensor& gradient =
        own ? std::as_const(parameter.value).grad() : gradients[i];
    if (!gradient.defined() || !parameter.value.requires_grad()) continue;
    works.emplace_back();
    try {
      RETURN_IF_ERROR(Prepare(parameter, gradient, works.back()));
    } catch (const c10::Error& error) {
      return Internal("optimizer: gradient of ", parameter.options.name, ": ",
                      error.what_without_backtrace());
    }
  }
  return OkStatus();
}

bool ParameterUpdater::OnMemory(const at::Tensor& values) const {
  return backend_ == UpdateBackend::kByDevice && values.device().is_cpu();
}

Status ParameterUpdater::Prepare(Parameter& parameter, at::Tensor gradient,
                                 Work& work) const {
  const at::Tensor& value = parameter.value;
  if (gradient.sizes() != value.sizes()) {
    return InvalidArgument("optimizer: the gradient of ",
                           parameter.options.name, " has shape ",
                           gradient.sizes(), ", the parameter ", value.sizes());
  }
  work.parameter = &parameter;
  work.decay = parameter.options.decay;
  work.values = value;
  if (IsHalf(value)) {
    if (parameter.master_version != static_cast<int64_t>(value._version())) {
      parameter.master = value.to(at::kFloat).contiguous();
    }
    work.values = parameter.master;
  } else if (!value.is_contiguous()) {
    work.values = value.contiguous();
  }

  if (gradient.layout() == at::kSparse) {
    const optim::Decay& decay = parameter.options.decay;
    if (gradient.sparse_dim() == 1 && decay.l1 == 0.0 && decay.l2 == 0.0 &&
        optim::UpdatesOnlyGivenRows(rule_)) {
      MergedRows merged = MergeRows(gradient);
      work.rows = std::move(merged.rows);
      gradient = std::move(merged.values);
    } else {
      if (gradient.sparse_dim() == 1 &&
          gradient.dtype() == work.values.dtype()) {
        gradient = Merged(gradient);
        work.given_rows = gradient._values().contiguous();
      }
      gradient = gradient.to_dense();
    }
  }
  if (gradient.scalar_type() != work.values.scalar_type()) {
    gradient = gradient.to(work.values.scalar_type());
  }
  work.gradient = gradient.contiguous();
  if (parameter.state.empty()) MakeState(parameter);
  return OkStatus();
}

void ParameterUpdater::MakeState(Parameter& parameter) const {
  const at::Tensor& value = parameter.value;
  const at::TensorOptions options =
      at::TensorOptions().dtype(ComputeType(value)).device(value.device());
  for (size_t i = 0; i < names_.size(); ++i) {
    parameter.state.push_back(
        i < num_state_
            ? at::full(value.sizes(), optim::InitialState(rule_), options)
            : at::full({1}, optim::PowerBase(rule_, i - num_state_),
                       options.device(at::kCPU)));
  }
}

Status ParameterUpdater::Run(double learning_rate,
                             std::vector<Work>& works) const {
  const at::NoGradGuard no_grad;
  try {
    SetTransforms(works);
    for (Work& work : works) {
      const double rescale = work.parameter->options.rescale;
      if (rescale != 1.0) Rescale(work, rescale);
    }
    // One group per kind of memory; nearly always there is just one.
    std::vector<Work*> rest;
    for (Work& work : works) rest.push_back(&work);
    while (!rest.empty()) {
      const at::Tensor& first = rest.front()->values;
      const auto end = std::stable_partition(
          rest.begin(), rest.end(), [&](const Work* work) {
            return work->values.device() == first.device() &&
                   work->values.scalar_type() == first.scalar_type();
          });
      const std::span<Work* const> group(rest.data(), end - rest.begin());
      if (!OnMemory(first)) {
        ApplyOnTensors(group, learning_rate);
      } else if (first.scalar_type() == at::kFloat) {
        ApplyOnMemory<float>(group, learning_rate);
      } else {
        ApplyOnMemory<double>(group, learning_rate);
      }
      rest.erase(rest.begin(), end);
    }
    for (Work& work : works) {
      Parameter& parameter = *work.parameter;
      if (!work.values.is_same(parameter.value)) {
        parameter.value.copy_(work.values);
        parameter.master_version = parameter.value._version();
      }
    }
  } catch (const c10::Error& error) {
    return Internal("optimizer: ", error.what_without_backtrace());
  }
  return OkStatus();
}

void ParameterUpdater::SetTransforms(std::vector<Work>& works) const {
  switch (clip_.kind) {
    case Clip::kNone:
      return;
    case Clip::kValue:
      for (Work& work : works) {
        if (!work.parameter->options.clipped) continue;
        work.transform.min = clip_.min;
        work.transform.max = clip_.max;
      }
      return;
    case Clip::kNorm:
      for (Work& work : works) {
        if (!work.parameter->options.clipped) continue;
        if (OnMemory(work.values)) {
          work.transform.scale =
              ScaleToNorm(work.gradient.scalar_type() == at::kFloat,
                          SumOfSquaresOnMemory(work), clip_.max_norm);
        } else {
          const at::Tensor norm = at::_foreach_norm({work.gradient})[0];
          work.scale =
              norm.clamp_min(clip_.max_norm).reciprocal() * clip_.max_norm;
        }
      }
      return;
    case Clip::kGlobalNorm:
      SetGlobalScale(works);
      return;
  }
}

void ParameterUpdater::SetGlobalScale(std::vector<Work>& works) const {
  double sum = 0.0;
  std::vector<at::Tensor> elsewhere;  // gradients that are not in our memory
  bool together = true;               // all of them, in one place
  bool floats = true;                 // all of them in our memory
  for (const Work& work : works) {
    if (!work.parameter->options.clipped) continue;
    floats = floats && OnMemory(work.values) &&
             work.gradient.scalar_type() == at::kFloat;
    if (OnMemory(work.values)) {
      sum += SumOfSquaresOnMemory(work);
      if (floats) sum = optim::RoundedSum<float>(sum);
      together = false;
    } else {
      together = together &&
                 (elsewhere.empty() ||
                  elsewhere[0].options().type_equal(work.gradient.options()));
      elsewhere.push_back(work.gradient);
    }
  }

  // The factor stays on the device where that saves waiting for it.
  if (together && !elsewhere.empty()) {
    const at::Tensor norm = at::stack(at::_foreach_norm(elsewhere)).norm();
    const at::Tensor scale =
        norm.clamp_min(clip_.max_norm).reciprocal() * clip_.max_norm;
    for (Work& work : works) {
      if (work.parameter->options.clipped) work.scale = scale;
    }
    return;
  }
  for (const at::Tensor& gradient : elsewhere) {
    const double norm = gradient.norm().item<double>();
    sum += norm * norm;
  }
  const double scale = ScaleToNorm(floats, sum, clip_.max_norm);
  for (Work& work : works) {
    if (work.parameter->options.clipped) work.transform.scale = scale;
  }
}

template <class T>
void ParameterUpdater::ApplyOnMemory(std::span<Work* const> works,
                                     double learning_rate) const {
  // A program keeps its rate in a float: rounded alike, a step of a float32
  // parameter is the same to the bit in both.
  const double rate = static_cast<T>(learning_rate);
  size_t num_slices = 0;
  for (const Work* work : works) num_slices += NumSlices(*work);
  std::vector<Slice<T>> slices;
  slices.reserve(num_slices);  // the updates point into it
  std::vector<Update<T>> updates;
  updates.reserve(works.size());

  for (const Work* work : works) {
    const Parameter& parameter = *work->parameter;
    Slice<T> whole = {work->values.mutable_data_ptr<T>(),
                      work->gradient.const_data_ptr<T>(),
                      {},
                      work->values.numel()};
    for (size_t k = 0; k < num_state_; ++k) {
      whole.state[k] = parameter.state[k].mutable_data_ptr<T>();
    }
    const size_t begin = slices.size();
    if (!work->rows.defined()) {
      slices.push_back(whole);
    } else {
      const int64_t width = whole.size / work->values.size(0);
      const int64_t* rows = work->rows.const_data_ptr<int64_t>();
      for (int64_t i = 0; i < work->rows.numel(); ++i) {
        Slice<T> slice = {whole.values + rows[i] * width,
                          whole.gradient + i * width,
                          {},
                          width};
        for (size_t k = 0; k < num_state_; ++k) {
          slice.state[k] = whole.state[k] + rows[i] * width;
        }
        slices.push_back(slice);
      }
    }
    Update<T>& update = updates.emplace_back();
    update.slices = {slices.data() + begin, slices.size() - begin};
    for (size_t k = num_state_; k < names_.size(); ++k) {
      update.powers[k - num_state_] = parameter.state[k].mutable_data_ptr<T>();
    }
    update.learning_rate = rate * parameter.options.learning_rate;
    update.decay = work->decay;
    update.transform = work->transform;
  }
  optim::Apply<T>(rule_, updates);
  // Autograd learns that the values are no longer those that it saved.
  for (const Work* work : works) {
    work->values.unsafeGetTensorImpl()->bump_version();
  }
}

void ParameterUpdater::ApplyOnTensors(std::span<Work* const> works,
                                      double learning_rate) const {
  std::vector<TensorUpdate> updates;
  updates.reserve(works.size());
  for (const Work* work : works) {
    const Parameter& parameter = *work->parameter;
    TensorUpdate& update = updates.emplace_back();
    // Rows are gathered, updated as a small parameter, and put back.
    auto part = [&](const at::Tensor& whole) {
      return work->rows.defined() ? whole.index_select(0, work->rows) : whole;
    };
    update.values = part(work->values);
    update.gradient = work->gradient;
    for (size_t k = 0; k < num_state_; ++k) {
      update.state[k] = part(parameter.state[k]);
    }
    for (size_t k = num_state_; k < names_.size(); ++k) {
      update.powers[k - num_state_] = parameter.state[k];
    }
    update.learning_rate = learning_rate * parameter.options.learning_rate;
    update.decay = work->decay;
    update.transform = work->transform;
    update.scale = work->scale;
  }
  ApplyForeach(rule_, updates);
  for (size_t i = 0; i < works.size(); ++i) {
    const Work& work = *works[i];
    if (!work.rows.defined()) continue;
    at::Tensor values = work.values;
    values.index_copy_(0, work.rows, updates[i].values);
    for (size_t k = 0; k < num_state_; ++k) {
      at::Tensor state = work.parameter->state[k];
      state.index_copy_(0, work.rows, updates[i].state[k]);
    }
  }
}

void ParameterUpdater::ClearGradients(bool set_to_zero) {
  for (Parameter& parameter : parameters_) {
    at::Tensor& gradient = parameter.value.mutable_grad();
    if (!gradient.defined()) continue;
    if (set_to_zero) {
      const at::NoGradGuard no_grad;
      // One that was made with create_graph carries its own history.
      if (gradient.requires_grad()) gradient = gradient.detach();
      gradient.zero_();
    } else {
      gradient.reset();
    }
  }
}

const at::Tensor& ParameterUpdater::state(size_t parameter, size_t name) const {
  static const at::Tensor absent;
  const std::vector<at::Tensor>& state = parameters_[parameter].state;
  return state.empty() ? absent : state[name];
}

Status ParameterUpdater::SetState(size_t parameter, size_t name,
                                  const at::Tensor& value) {
  Parameter& target = parameters_[parameter];
  static constexpr int64_t kOne[] = {1};
  const at::IntArrayRef one(kOne);
  const at::IntArrayRef expected =
      name < num_state_ ? target.value.sizes() : one;
  const bool fits =
      value.sizes() == expected ||
      (value.numel() == 1 && c10::multiply_integers(expected) == 1);
  if (!fits) {
    return InvalidArgument("optimizer: ", names_[name], " of ",
                           target.options.name, " has shape ", value.sizes(),
                           ", expected ", expected);
  }
  const at::NoGradGuard no_grad;
  try {
    if (target.state.empty()) MakeState(target);
    target.state[name].copy_(value.reshape(target.state[name].sizes()));
  } catch (const c10::Error& error) {
    return Internal("optimizer: ", names_[name], " of ", target.options.name,
                    ": ", error.what_without_backtrace());
  }
  return OkStatus();
}

}  // namespace fleet::ops
