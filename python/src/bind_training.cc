// SPDX-License-Identifier: Apache-2.0

// Training of programs: what optimizers, mixed precision and gradient merge
// append, by the functions of fleet/plan that C++ users call, too.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "fleet/ops/update/parameter_update.h"
#include "fleet/plan/minimize.h"

#include "program.h"
#include "program_handles.h"
#include "python_builder.h"
#include "status.h"

namespace fleet::python {

namespace {

using plan::Gradients;

Gradients GradientsOf(PythonBuilder& b, nb::handle pairs) {
  Gradients gradients;
  for (nb::handle pair : pairs) {
    gradients.push_back({b.ValueOf(pair[0]), b.ValueOf(pair[1])});
  }
  return gradients;
}

nb::list PairsOf(PythonBuilder& b, const Gradients& gradients) {
  nb::list pairs;
  for (const auto& [parameter, gradient] : gradients) {
    pairs.append(nb::make_tuple(b.Wrap(parameter), b.Wrap(gradient)));
  }
  return pairs;
}

plan::Clip ToPlan(const ops::Clip& clip) {
  switch (clip.kind) {
    case ops::Clip::kNone:
      return {};
    case ops::Clip::kValue:
      return plan::ClipByValue{clip.min, clip.max};
    case ops::Clip::kNorm:
      return plan::ClipByNorm{clip.max_norm};
    case ops::Clip::kGlobalNorm:
      return plan::ClipByGlobalNorm{clip.max_norm};
  }
  return {};
}

nb::object NewPersistable(const std::string& name,
                          const std::vector<int64_t>& shape, double value,
                          program::DType dtype) {
  PythonBuilder b;
  const program::Value made = b->NewPersistable(name, shape, dtype, value);
  b.Check(OkStatus());
  return b.Wrap(made);
}

nb::list ClipGradients(const ops::Clip& clip, nb::list gradients) {
  PythonBuilder b;
  Gradients pairs;
  for (nb::handle gradient : gradients) {
    pairs.push_back({{}, b.ValueOf(gradient)});
  }
  plan::ClipGradients(*b, ToPlan(clip), pairs);
  b.Check(OkStatus());
  nb::list clipped;
  for (const auto& [parameter, gradient] : pairs) {
    clipped.append(b.Wrap(gradient));
  }
  return clipped;
}

// The operations that update parameters, of those that were appended to the
// current block since it had `begin`.
std::vector<StaticOperator> UpdatesSince(PythonBuilder& b, size_t begin) {
  std::vector<StaticOperator> updates;
  const program::Block& block = b->block();
  for (size_t i = begin; i < block.num_ops(); ++i) {
    if (block.op(i).output("ParamOut").empty()) continue;
    updates.push_back({b.main(), block.index(), block.op(i).id});
  }
  return updates;
}

std::vector<StaticOperator> ApplyGradients(
    nb::list pairs, nb::handle learning_rate, const ops::Clip& clip,
    double rescale, std::map<std::string, plan::ParameterSettings> parameters,
    nb::object skip, plan::OptimizerVariables& made) {
  PythonBuilder b;
  plan::Optimizer optimizer{.clip = ToPlan(clip),
                            .rescale = rescale,
                            .parameters = std::move(parameters)};
  if (AsVariable(learning_rate) != nullptr) {
    optimizer.learning_rate = b.ValueOf(learning_rate);
  } else {
    optimizer.learning_rate = nb::cast<double>(learning_rate);
  }
  const size_t begin = b->block().num_ops();
  b.Check(plan::ApplyGradients(
      *b, GradientsOf(b, pairs), optimizer,
      skip.is_none() ? program::Value() : b.ValueOf(skip), &made));
  return UpdatesSince(b, begin);
}

nb::object MergeGradients(nb::list pairs, int64_t steps, bool average,
                          nb::object update) {
  PythonBuilder b;
  nb::object made = nb::list();
  b.Check(plan::MergeGradients(
      *b, GradientsOf(b, pairs), {.steps = steps, .average = average},
      [&](const Gradients& merged) {
        return b.CallPython([&] { made = update(PairsOf(b, merged)); });
      }));
  return made;
}

plan::Amp MakeAmp(program::DType dtype, program::AmpLevel level,
                  const std::map<std::string, program::Precision>& custom,
                  bool promote, std::set<std::string> black_variables,
                  std::string scope, double initial, bool dynamic,
                  int64_t incr_every_n_steps, int64_t decr_every_n_nan_or_inf,
                  double incr_ratio, double decr_ratio) {
  plan::Amp amp{.precision = {.dtype = dtype,
                              .level = level,
                              .custom = {custom.begin(), custom.end()},
                              .promote = promote,
                              .black_variables = std::move(black_variables),
                              .scope = std::move(scope)},
                .scaling = {.initial = initial,
                            .dynamic = dynamic,
                            .incr_every_n_steps = incr_every_n_steps,
                            .decr_every_n_nan_or_inf = decr_every_n_nan_or_inf,
                            .incr_ratio = incr_ratio,
                            .decr_ratio = decr_ratio}};
  ThrowIfError(plan::CheckScaling(amp.scaling));
  return amp;
}

void BindAmp(nb::module_& m) {
  using nb::arg;
  nb::class_<plan::Amp>(m, "Amp", "How a program is trained in a short type.")
      .def(
          "__init__",
          [](plan::Amp* self, program::DType dtype, program::AmpLevel level,
             const std::map<std::string, program::Precision>& custom,
             bool promote, std::set<std::string> black_variables,
             std::string scope, double initial, bool dynamic,
             int64_t incr_every_n_steps, int64_t decr_every_n_nan_or_inf,
             double incr_ratio, double decr_ratio) {
            new (self) plan::Amp(MakeAmp(
                dtype, level, custom, promote, std::move(black_variables),
                std::move(scope), initial, dynamic, incr_every_n_steps,
                decr_every_n_nan_or_inf, incr_ratio, decr_ratio));
          },
          nb::kw_only(), arg("dtype"), arg("level"), arg("custom"),
          arg("promote"), arg("black_variables"), arg("scope"),
          arg("init_loss_scaling"), arg("dynamic"), arg("incr_every_n_steps"),
          arg("decr_every_n_nan_or_inf"), arg("incr_ratio"), arg("decr_ratio"))
      .def_prop_ro("scales", plan::ScalesLoss);
  m.def(
      "scale_loss",
      [](nb::handle loss, const plan::Amp& amp) {
        PythonBuilder b;
        const Result<plan::ScaledLoss> scaled =
            plan::ScaleLoss(*b, b.ValueOf(loss), amp);
        b.Check(scaled.status());
        return std::pair(b.Wrap(scaled->loss), b.Wrap(scaled->scaling));
      },
      arg("loss"), arg("amp"),
      "Puts casts into the main program; returns the scaled loss and the "
      "scaling.");
  m.def(
      "unscale_gradients_of",
      [](nb::list pairs, nb::handle scaling, const plan::Amp& amp) {
        PythonBuilder b;
        const program::Value bad = plan::UnscaleGradients(
            *b, GradientsOf(b, pairs), b.ValueOf(scaling), amp.scaling);
        b.Check(OkStatus());
        return b.Wrap(bad);
      },
      arg("pairs"), arg("scaling"), arg("amp"),
      "Appends the division of gradients by the scaling; returns the variable "
      "that says whether the step is bad.");
}

}  // namespace

void BindTraining(nb::module_& m) {
  using nb::arg;
  nb::class_<plan::ParameterSettings>(m, "ParameterSettings")
      .def(
          "__init__",
          [](plan::ParameterSettings* self, optim::UpdateRule rule,
             std::optional<double> decoupled_decay, double learning_rate,
             double l1, double l2, bool need_clip) {
            program::Decay decay;
            if (l1 != 0.0) decay = program::L1Decay{l1};
            if (l2 != 0.0) decay = program::L2Decay{l2};
            new (self)
                plan::ParameterSettings{.rule = std::move(rule),
                                        .decoupled_decay = decoupled_decay,
                                        .learning_rate = learning_rate,
                                        .decay = decay,
                                        .need_clip = need_clip};
          },
          nb::kw_only(), arg("rule"), arg("decoupled_decay").none(),
          arg("learning_rate"), arg("l1"), arg("l2"), arg("need_clip"));
  nb::class_<plan::OptimizerVariables>(
      m, "OptimizerVariables", "The variables of an optimizer in a program.")
      .def(nb::init<>())
      .def_ro("learning_rate", &plan::OptimizerVariables::learning_rate)
      .def_prop_ro("states", [](const plan::OptimizerVariables& made) {
        std::vector<std::string> names;
        for (const auto& [key, name] : made.states) names.push_back(name);
        return names;
      });
  m.def("new_persistable", NewPersistable, arg("name"), arg("shape"),
        arg("value"), arg("dtype"),
        "A variable of the main program that the startup program fills.");
  m.def("clip_in_program", ClipGradients, arg("clip"), arg("gradients"));
  m.def("apply_gradients", ApplyGradients, arg("pairs"), arg("learning_rate"),
        arg("clip"), arg("rescale"), arg("parameters"), arg("skip").none(),
        arg("made"),
        "Appends clipping, decay and updates; returns the updates.");
  m.def("merge_gradients", MergeGradients, arg("pairs"), arg("steps"),
        arg("average"), arg("update"),
        "Appends what adds up gradients, and what update(pairs) appends for "
        "every steps'th run.");
  BindAmp(m);
}

}  // namespace fleet::python
