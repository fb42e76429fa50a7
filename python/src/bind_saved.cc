// SPDX-License-Identifier: Apache-2.0

// Programs and values of variables in files and in bytes.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "fleet/base/file_name.h"
#include "fleet/exec/saved_model.h"
#include "fleet/exec/scope.h"
#include "fleet/ops/eager/eager.h"
#include "fleet/plan/prune.h"
#include "fleet/program/text.h"
#include "fleet/saved/dialect.h"
#include "fleet/saved/model_file.h"

#include "program.h"
#include "status.h"
#include "tensor.h"

namespace fleet::python {
namespace {

using exec::SavedTensor;
using Names = std::vector<std::string>;

// Paths come as os.fsencode made them.
base::Path PathOf(const nb::bytes& path) {
  return base::Path(std::string(path.c_str(), path.size()));
}

std::string_view ViewOf(const nb::bytes& bytes) {
  return {bytes.c_str(), bytes.size()};
}

template <class Call>
auto WithoutGil(Call call) {
  nb::gil_scoped_release release;
  return call();
}

std::vector<SavedTensor> Named(const Names& names,
                               const std::vector<Tensor*>& tensors) {
  FLEET_CHECK(names.size() == tensors.size());
  std::vector<SavedTensor> out;
  for (size_t i = 0; i < names.size(); ++i) {
    out.push_back({.name = names[i], .value = tensors[i]->value});
  }
  return out;
}

nb::list ToList(std::vector<SavedTensor> tensors) {
  nb::list out;
  for (SavedTensor& tensor : tensors) {
    out.append(nb::cast(Tensor{std::move(tensor.value), tensor.name}));
  }
  return out;
}

// The variables of `program` with these names.
std::vector<const program::Variable*> Find(const StaticProgram& program,
                                           const Names& names) {
  std::vector<const program::Variable*> found;
  for (const std::string& name : names) {
    const program::Variable* variable = nullptr;
    for (size_t b = 0; b < program.graph->num_blocks(); ++b) {
      if (variable == nullptr) {
        variable = program.graph->block(b).FindHere(name);
      }
    }
    if (variable == nullptr) {
      ThrowIfError(NotFound("the program has no variable ", name));
    }
    found.push_back(variable);
  }
  return found;
}

// Computes the main block of a program op by op, as eager calls would, so that
// gradients flow to what is in `values`.
class EagerRun final {
 public:
  explicit EagerRun(std::map<std::string, at::Tensor> values)
      : values_(std::move(values)) {}

  Status Run(const program::Block& block) {
    for (size_t i = 0; i < block.num_ops(); ++i) {
      const program::Operation& op = block.op(i);
      if (op.type == "feed" || op.type == "fetch") continue;
      RETURN_IF_ERROR(Run(op));
    }
    return OkStatus();
  }

  Result<at::Tensor> Find(const std::string& name) const {
    const auto found = values_.find(name);
    if (found != values_.end()) return found->second;
    return FailedPrecondition("variable ", name, " has no value");
  }

 private:
  Status Run(const program::Operation& op) {
    const ops::Op* known = Library().Find(op.type);
    if (known == nullptr) {
      return InvalidArgument(op.type, ": it cannot be computed eagerly");
    }
    const program::OpDef& def = *known->def;
    std::vector<at::Tensor> inputs;
    std::vector<uint32_t> ends;
    for (const program::SlotDef& slot : def.inputs) {
      for (const std::string& name : op.input(slot.name)) {
        ASSIGN_OR_RETURN(at::Tensor value, Find(name));
        inputs.push_back(std::move(value));
      }
      ends.push_back(static_cast<uint32_t>(inputs.size()));
    }
    ASSIGN_OR_RETURN(program::Attrs attrs, program::ResolveAttrs(def, op));
    ASSIGN_OR_RETURN(ops::Tensors outputs,
                     ops::RunEager(*known, inputs, ends, std::move(attrs),
                                   DefaultContext()));
    size_t next = 0;
    for (const program::SlotDef& slot : def.outputs) {
      const Names& names = op.output(slot.name);
      const size_t count = slot.variadic ? names.size() : 1;
      for (size_t i = 0; i < count && next < outputs.size(); ++i, ++next) {
        if (i < names.size()) values_[names[i]] = outputs[next];
      }
    }
    return OkStatus();
  }

  std::map<std::string, at::Tensor> values_;
};

std::vector<Tensor> RunEagerly(const StaticProgram& program, const Names& names,
                               const std::vector<Tensor*>& values,
                               const Names& fetches) {
  FLEET_CHECK(names.size() == values.size());
  std::map<std::string, at::Tensor> named;
  for (size_t i = 0; i < names.size(); ++i) named[names[i]] = values[i]->value;
  EagerRun run(std::move(named));
  ThrowIfError(WithoutGil([&] { return run.Run(program.graph->block(0)); }));
  std::vector<Tensor> out;
  for (const std::string& name : fetches) {
    out.push_back(Tensor{ValueOrThrow(run.Find(name))});
  }
  return out;
}

void BindPrograms(nb::module_& m) {
  m.def("run_eagerly", RunEagerly);
  m.def("serialize_program", [](const StaticProgram& program) {
    const std::string bytes = saved::SerializeProgram(*program.graph);
    return nb::bytes(bytes.data(), bytes.size());
  });
  m.def("parse_program", [](StaticProgram& into, const nb::bytes& bytes,
                            const std::string& where) {
    into.graph = ValueOrThrow(
        saved::ParseProgram(Library().definitions(), ViewOf(bytes), where));
  });
  m.def("save_program",
        [](const StaticProgram& program, const nb::bytes& path) {
          ThrowIfError(WithoutGil([&, target = PathOf(path)] {
            return saved::SaveProgram(*program.graph, target);
          }));
        });
  m.def("load_program", [](StaticProgram& into, const nb::bytes& path) {
    into.graph = ValueOrThrow(WithoutGil([source = PathOf(path)] {
      return saved::LoadProgram(Library().definitions(), source);
    }));
  });
  m.def(
      "to_inference",
      [](StaticProgram& into, const StaticProgram& program, const Names& feeds,
         const Names& fetches, bool old) {
        into.graph = ValueOrThrow(exec::ToInference(
            Library().definitions(), *program.graph, feeds, fetches,
            old ? saved::Paddle::k1_8 : saved::Paddle::k2));
      },
      nb::arg("into"), nb::arg("program"), nb::arg("feeds"), nb::arg("fetches"),
      nb::arg("old") = false,
      "What `fetches` need from `feeds`; `old` in ops that Paddle 1.8 has.");
  m.def(
      "parse_program_text",
      [](StaticProgram& into, const std::string& text,
         const std::string& where) {
        Result<std::unique_ptr<program::Program>> read =
            program::ParseText(text);
        ThrowIfError(read.status().WithContext(where));
        into.graph = *std::move(read);
      },
      nb::arg("into"), nb::arg("text"), nb::arg("where"));
  m.def(
      "prune",
      [](StaticProgram& into, const StaticProgram& program, const Names& feeds,
         const Names& fetches) {
        into.graph = ValueOrThrow(plan::Prune(*program.graph, feeds, fetches));
      },
      nb::arg("into"), nb::arg("program"), nb::arg("feeds"), nb::arg("fetches"),
      "The operations that compute `fetches` from `feeds`, as they are.");
  m.def("feeds_of", [](const StaticProgram& program) {
    return saved::FeedsOf(*program.graph);
  });
  m.def("fetches_of", [](const StaticProgram& program) {
    return saved::FetchesOf(*program.graph);
  });
  m.def(
      "saved_variables",
      [](const StaticProgram& program) {
        Names names;
        for (const program::Variable* variable :
             saved::SavedVariables(*program.graph)) {
          names.push_back(variable->name);
        }
        return names;
      },
      "What lives longer than a step, in the order of one file.");
}

void BindTensors(nb::module_& m) {
  m.def("serialize_tensors",
        [](const Names& names, const std::vector<Tensor*>& tensors) {
          const std::vector<SavedTensor> named = Named(names, tensors);
          const std::string bytes = ValueOrThrow(exec::SerializeTensors(named));
          return nb::bytes(bytes.data(), bytes.size());
        });
  m.def("parse_tensors", [](const nb::bytes& bytes, const Names& names,
                            const std::string& where) {
    return ToList(
        ValueOrThrow(exec::ParseTensors(ViewOf(bytes), names, where)));
  });
  m.def(
      "file_of_variable",
      [](const nb::bytes& folder, const std::string& name) {
        const std::string path =
            ValueOrThrow(saved::FileOfVariable(PathOf(folder), name)).string();
        return nb::bytes(path.data(), path.size());
      },
      "The file of a variable in a folder of one file for each.");
  m.def("name_of_file",
        [](const std::string& name) { return base::NameOfFile(name); });
  m.def("save_tensors", [](const nb::bytes& path, const Names& names,
                           const std::vector<Tensor*>& tensors) {
    const std::vector<SavedTensor> named = Named(names, tensors);
    ThrowIfError(WithoutGil([&, target = PathOf(path)] {
      return exec::SaveTensors(target, named);
    }));
  });
  m.def("load_tensors", [](const nb::bytes& path, const Names& names) {
    return ToList(ValueOrThrow(WithoutGil([&, source = PathOf(path)] {
      return exec::LoadTensors(source, names);
    })));
  });
}

void BindVariables(nb::module_& m) {
  m.def("serialize_variables", [](exec::Scope& scope, const Names& names) {
    const std::vector<SavedTensor> tensors =
        ValueOrThrow(exec::FindTensors(scope, names));
    const std::string bytes = ValueOrThrow(exec::SerializeTensors(tensors));
    return nb::bytes(bytes.data(), bytes.size());
  });
  m.def("save_variables", [](exec::Scope& scope, const Names& names,
                             const nb::bytes& path, bool combined) {
    ThrowIfError(WithoutGil([&, target = PathOf(path)] {
      return exec::SaveVariables(scope, names, target, combined);
    }));
  });
  m.def("load_variables",
        [](exec::Scope& scope, const StaticProgram& program, const Names& names,
           const nb::bytes& path, bool combined, const std::string& device) {
          const auto variables = Find(program, names);
          ThrowIfError(WithoutGil([&, source = PathOf(path)] {
            return exec::LoadVariables(scope, variables, source, combined,
                                       at::Device(device));
          }));
        });
  m.def("set_variables",
        [](exec::Scope& scope, const StaticProgram& program, const Names& names,
           const std::vector<Tensor*>& tensors, const std::string& device) {
          const auto variables = Find(program, names);
          ThrowIfError(exec::SetVariables(
              scope, variables, Named(names, tensors), at::Device(device)));
        });
  m.def("save_model", [](const StaticProgram& program, exec::Scope& scope,
                         const nb::bytes& program_path,
                         const nb::bytes& parameters_path, bool combined) {
    const saved::ModelFiles files{PathOf(program_path), PathOf(parameters_path),
                                  combined};
    ThrowIfError(WithoutGil(
        [&] { return exec::SaveModel(*program.graph, scope, files); }));
  });
}

}  // namespace

void BindSaved(nb::module_& m) {
  BindPrograms(m);
  BindTensors(m);
  BindVariables(m);
}

}  // namespace fleet::python
