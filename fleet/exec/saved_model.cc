// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/saved_model.h"

#include <cstddef>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "fleet/base/check.h"
#include "fleet/exec/tensor_container.h"
#include "fleet/ops/aten_error.h"
#include "fleet/ops/kernel.h"
#include "fleet/plan/prune.h"
#include "fleet/saved/tensor_file.h"

namespace fleet::exec {

using program::DType;
using program::Program;
using program::TensorType;
using program::Variable;
using saved::ModelFiles;
using saved::TensorView;

namespace {

Status WriteTensors(std::span<const SavedTensor> tensors,
                    const saved::Append& append) {
  for (const SavedTensor& tensor : tensors) {
    ASSIGN_OR_RETURN(const at::Tensor plain,
                     RowByRow(tensor.name, tensor.value));
    TensorView view = ViewOf(plain);
    view.lod = tensor.lod;
    RETURN_IF_ERROR(saved::WriteTensor(view, append));
  }
  return OkStatus();
}

// Appends a tensor of its own to `tensors` for what is read.
Result<std::span<std::byte>> AddTensor(saved::TensorHeader header,
                                       std::vector<SavedTensor>& tensors) {
  try {
    const at::Tensor value =
        at::empty(header.type.dims, ops::ToScalarType(header.type.dtype));
    tensors.push_back({.name = std::move(header.name),
                       .value = value,
                       .lod = std::move(header.lod)});
    return std::span(static_cast<std::byte*>(value.mutable_data_ptr()),
                     value.nbytes());
  } catch (const std::exception& error) {
    return ops::FromException(error);
  }
}

Status CheckType(const Variable& variable, const at::Tensor& value) {
  const TensorType found{ops::ToDType(value.scalar_type()),
                         value.sizes().vec()};
  bool fits = found.dtype == variable.type.dtype &&
              found.dims.size() == variable.type.dims.size();
  for (size_t i = 0; fits && i < found.dims.size(); ++i) {
    const int64_t wanted = variable.type.dims[i];
    fits = wanted < 0 || wanted == found.dims[i];
  }
  if (fits) return OkStatus();
  return InvalidArgument("the file holds ", program::ToString(found), " for ",
                         variable.name, ", and the program has ",
                         program::ToString(variable.type));
}

std::vector<std::string> NamesOf(const std::vector<const Variable*>& of) {
  std::vector<std::string> names;
  names.reserve(of.size());
  for (const Variable* variable : of) names.push_back(variable->name);
  return names;
}

// Each from the file of its name.
Result<std::vector<SavedTensor>> LoadEach(
    const base::Path& folder, const std::vector<std::string>& names) {
  std::vector<SavedTensor> tensors;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const base::Path file,
                     saved::FileOfVariable(folder, name));
    ASSIGN_OR_RETURN(std::vector<SavedTensor> one,
                     LoadTensors(file, {&name, 1}));
    tensors.push_back(std::move(one.front()));
  }
  return tensors;
}

}  // namespace

// ---- tensors

Result<std::string> SerializeTensors(std::span<const SavedTensor> tensors) {
  std::string bytes;
  RETURN_IF_ERROR(WriteTensors(tensors, [&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    return OkStatus();
  }));
  return bytes;
}

Status SaveTensors(const base::Path& path,
                   std::span<const SavedTensor> tensors) {
  ASSIGN_OR_RETURN(base::AtomicFile file, base::AtomicFile::Create(path));
  RETURN_IF_ERROR(WriteTensors(tensors, [&](std::span<const std::byte> part) {
    return file.Append(part);
  }));
  return file.Commit();
}

Result<std::vector<SavedTensor>> ParseTensors(
    std::string_view bytes, std::span<const std::string> names,
    std::string_view where) {
  std::vector<SavedTensor> tensors;
  RETURN_IF_ERROR(
      saved::ParseTensors(bytes, names, where, [&](saved::TensorHeader header) {
        return AddTensor(std::move(header), tensors);
      }));
  return tensors;
}

Result<std::vector<SavedTensor>> LoadTensors(
    const base::Path& path, std::span<const std::string> names) {
  std::vector<SavedTensor> tensors;
  RETURN_IF_ERROR(
      saved::LoadTensors(path, names, [&](saved::TensorHeader header) {
        return AddTensor(std::move(header), tensors);
      }));
  return tensors;
}

// ---- inference programs

Result<std::unique_ptr<Program>> ToInference(
    const program::OpRegistry& registry, const Program& program,
    const std::vector<std::string>& feeds,
    const std::vector<std::string>& fetches, saved::Paddle version) {
  ASSIGN_OR_RETURN(
      std::unique_ptr<Program> pruned,
      plan::Prune(*plan::CloneForTest(registry, program), feeds, fetches));
  RETURN_IF_ERROR(
      saved::ToInference(registry, *pruned, feeds, fetches, version));
  return pruned;
}

// ---- parameters

Result<std::vector<SavedTensor>> FindTensors(
    Scope& scope, const std::vector<std::string>& names) {
  std::vector<SavedTensor> tensors;
  for (const std::string& name : names) {
    const at::Tensor* value = scope.Find(name);
    if (value == nullptr || !value->defined()) {
      return FailedPrecondition("variable ", name,
                                " has no value to save: run the startup "
                                "program first, in the same scope");
    }
    tensors.push_back({.name = name, .value = *value});
  }
  return tensors;
}

Status SaveVariables(Scope& scope, const std::vector<std::string>& names,
                     const base::Path& path, bool combined) {
  ASSIGN_OR_RETURN(const std::vector<SavedTensor> tensors,
                   FindTensors(scope, names));
  const base::Path folder = combined ? path.parent_path() : path;
  if (!folder.empty()) RETURN_IF_ERROR(base::MakeFolders(folder));
  if (combined) return SaveTensors(path, tensors);
  for (const SavedTensor& tensor : tensors) {
    ASSIGN_OR_RETURN(const base::Path file,
                     saved::FileOfVariable(path, tensor.name));
    RETURN_IF_ERROR(base::MakeFolders(file.parent_path()));
    RETURN_IF_ERROR(SaveTensors(file, {&tensor, 1}));
  }
  return OkStatus();
}

Status SetVariables(Scope& scope, const std::vector<const Variable*>& variables,
                    std::vector<SavedTensor> tensors, at::Device device) {
  const at::NoGradGuard no_grad;
  FLEET_CHECK(variables.size() == tensors.size());
  for (size_t i = 0; i < variables.size(); ++i) {
    RETURN_IF_ERROR(CheckType(*variables[i], tensors[i].value));
  }
  try {
    for (SavedTensor& tensor : tensors) {
      at::Tensor* found = scope.Find(tensor.name);
      at::Tensor& place = found != nullptr ? *found : scope.Get(tensor.name);
      if (place.defined() && place.sizes() == tensor.value.sizes() &&
          place.scalar_type() == tensor.value.scalar_type()) {
        place.copy_(tensor.value);
      } else {
        place = tensor.value.to(device);
      }
    }
  } catch (const std::exception& error) {
    return ops::FromException(error);
  }
  return OkStatus();
}

Status LoadVariables(Scope& scope,
                     const std::vector<const Variable*>& variables,
                     const base::Path& path, bool combined, at::Device device) {
  const std::vector<std::string> names = NamesOf(variables);
  ASSIGN_OR_RETURN(std::vector<SavedTensor> tensors,
                   combined ? LoadTensors(path, names) : LoadEach(path, names));
  return SetVariables(scope, variables, std::move(tensors), device)
      .WithContext(path.string());
}

// ---- both

Status SaveModel(const Program& inference, Scope& scope,
                 const ModelFiles& files) {
  const std::vector<const Variable*> variables =
      saved::SavedVariables(inference);
  // As Paddle does: a program without parameters is a file alone.
  if (!variables.empty()) {
    RETURN_IF_ERROR(SaveVariables(scope, NamesOf(variables), files.parameters,
                                  files.combined));
  }
  const base::Path folder = files.program.parent_path();
  if (!folder.empty()) RETURN_IF_ERROR(base::MakeFolders(folder));
  return saved::SaveProgram(inference, files.program);
}

Result<std::unique_ptr<Program>> LoadModel(const program::OpRegistry& registry,
                                           const ModelFiles& files,
                                           Scope& scope, at::Device device) {
  ASSIGN_OR_RETURN(std::unique_ptr<Program> program,
                   saved::LoadProgram(registry, files.program));
  const std::vector<const Variable*> variables =
      saved::SavedVariables(*program);
  if (!variables.empty()) {
    RETURN_IF_ERROR(LoadVariables(scope, variables, files.parameters,
                                  files.combined, device));
  }
  return program;
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::Open(const base::Path& path,
                                                       ops::Context context) {
  ASSIGN_OR_RETURN(const ModelFiles files, saved::FindModel(path));
  return Open(files, context);
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::Open(const ModelFiles& files,
                                                       ops::Context context) {
  std::unique_ptr<LoadedModel> model(new LoadedModel(context));
  ASSIGN_OR_RETURN(model->program_,
                   LoadModel(model->library_.definitions(), files,
                             model->scope_, context.device));
  for (std::string& name : saved::FeedsOf(*model->program_)) {
    const Variable* variable = model->program_->block(0).FindHere(name);
    model->inputs_.push_back(std::move(name));
    if (variable != nullptr && !variable->lod.empty()) {
      model->inputs_.push_back(variable->lod);
    }
  }
  model->outputs_ = saved::FetchesOf(*model->program_);
  for (const auto* names : {&model->inputs_, &model->outputs_}) {
    for (const std::string& name : *names) {
      if (model->program_->block(0).FindHere(name) == nullptr) {
        return DataLoss(files.program.string(), ": there is no variable ",
                        name);
      }
    }
  }
  if (model->outputs_.empty()) {
    return InvalidArgument(
        files.program.string(),
        ": the program fetches nothing; it was not saved for inference");
  }
  return model;
}

const TensorType& LoadedModel::type(const std::string& name) const {
  const Variable* variable = program_->block(0).FindHere(name);
  FLEET_CHECK(variable != nullptr);
  return variable->type;
}

Result<std::vector<at::Tensor>> LoadedModel::Run(
    const std::vector<at::Tensor>& values) {
  if (values.size() != inputs_.size()) {
    return InvalidArgument("the model has ", inputs_.size(), " inputs, but ",
                           values.size(), " were given");
  }
  std::vector<Feed> feeds;
  for (size_t i = 0; i < values.size(); ++i) {
    feeds.push_back({inputs_[i], values[i]});
  }
  return executor_.Run(*program_, scope_, feeds, outputs_);
}

}  // namespace fleet::exec
