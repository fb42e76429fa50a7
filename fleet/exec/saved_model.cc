// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/saved_model.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "fleet/base/crc32c.h"
#include "fleet/ops/aten_error.h"
#include "fleet/plan/prune.h"
#include "fleet/program/lod.h"
#include "fleet/program/wire.h"

namespace fleet::exec {

using program::AttrKind;
using program::AttrValue;
using program::Block;
using program::Operation;
using program::Program;
using program::TensorType;
using program::Variable;
using program::VariableKind;

namespace {

constexpr std::string_view kFeed = "feed";
constexpr std::string_view kFetch = "fetch";

base::Path WithSuffix(const base::Path& prefix, const char* suffix) {
  base::Path path = prefix;
  path += suffix;
  return path;
}

// The arguments of all operations of a type, in the order of their columns.
std::vector<std::string> Columns(const Program& program, std::string_view type,
                                 bool of_outputs) {
  std::map<int64_t, std::string> columns;
  const Block& block = program.block(0);
  for (size_t i = 0; i < block.num_ops(); ++i) {
    const Operation& op = block.op(i);
    if (op.type != type) continue;
    const std::vector<std::string>& names =
        of_outputs ? op.output("Out") : op.input("X");
    const AttrValue* col = op.attr("col");
    const int64_t* column =
        col == nullptr ? nullptr : std::get_if<int64_t>(&col->value);
    if (names.empty()) continue;
    columns[column == nullptr ? static_cast<int64_t>(columns.size())
                              : *column] = names.front();
  }
  std::vector<std::string> names;
  for (auto& [column, name] : columns) names.push_back(std::move(name));
  return names;
}

Operation FeedOrFetch(std::string_view type, const std::string& from,
                      const std::string& to, size_t column) {
  return {.type = std::string(type),
          .inputs = {{"X", {from}}},
          .outputs = {{"Out", {to}}},
          .attrs = {{"col", {AttrKind::kInt, static_cast<int64_t>(column)}}}};
}

void AddFeedAndFetch(Program& program, const std::vector<std::string>& feeds,
                     const std::vector<std::string>& fetches) {
  Block& block = program.block(0);
  const std::string feed(kFeed);
  const std::string fetch(kFetch);
  block.AddVariable(
      {.name = feed, .kind = VariableKind::kFeedList, .persistable = true});
  block.AddVariable(
      {.name = fetch, .kind = VariableKind::kFetchList, .persistable = true});
  // The last one first, as Paddle has them: some of its readers go by that.
  for (size_t i = 0; i < feeds.size(); ++i) {
    block.Insert(0, FeedOrFetch(kFeed, feed, feeds[i], i));
  }
  for (size_t i = 0; i < fetches.size(); ++i) {
    block.Append(FeedOrFetch(kFetch, fetches[i], fetch, i));
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

// The file of a variable. Names may have parts ("encoder/fc.w"), but a program
// from elsewhere must not lead out of the folder.
Result<base::Path> FileOf(const base::Path& folder, const std::string& name) {
  const base::Path relative(name);
  bool leaves = name.empty() || relative.is_absolute();
  for (const base::Path& part : relative) leaves |= part == "..";
  if (leaves) {
    return InvalidArgument("a variable named '", name,
                           "' cannot have a file of its own in ",
                           folder.string());
  }
  return folder / relative;
}

// Each from the file of its name.
Result<std::vector<SavedTensor>> LoadEach(
    const base::Path& folder, const std::vector<std::string>& names) {
  std::vector<SavedTensor> tensors;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const base::Path file, FileOf(folder, name));
    ASSIGN_OR_RETURN(std::vector<SavedTensor> one,
                     LoadTensors(file, {&name, 1}));
    tensors.push_back(std::move(one.front()));
  }
  return tensors;
}

}  // namespace

ModelFiles FilesOfPrefix(const base::Path& prefix) {
  return {WithSuffix(prefix, ".pdmodel"), WithSuffix(prefix, ".pdiparams"),
          true};
}

ModelFiles FilesOfFolder(const base::Path& folder, std::string_view program,
                         std::string_view parameters) {
  ModelFiles files;
  files.program = folder / (program.empty() ? "__model__" : program);
  files.combined = !parameters.empty();
  files.parameters = files.combined ? folder / parameters : folder;
  return files;
}

Result<ModelFiles> FindModel(const base::Path& path) {
  ModelFiles files = FilesOfPrefix(path);
  if (base::Exists(files.program)) return files;
  if (base::Exists(path / "__model__")) {
    // What the parameters' one file is called is up to who saved it; these
    // names are usual.
    for (const char* name : {"__params__", "params"}) {
      if (base::Exists(path / name)) return FilesOfFolder(path, "", name);
    }
    return FilesOfFolder(path);
  }
  return NotFound("there is no model at ", path.string(), ": neither ",
                  files.program.string(), " nor ",
                  (path / "__model__").string(), " exists");
}

std::vector<const Variable*> SavedVariables(const Program& program) {
  std::map<std::string_view, const Variable*> found;
  for (size_t b = 0; b < program.num_blocks(); ++b) {
    for (const Variable* variable : program.block(b).variables()) {
      if (variable->persistable && variable->kind == VariableKind::kTensor) {
        found.emplace(variable->name, variable);
      }
    }
  }
  std::vector<const Variable*> sorted;
  for (const auto& [name, variable] : found) sorted.push_back(variable);
  return sorted;
}

// ---- programs

std::string SerializeProgram(const Program& program) {
  std::string bytes = program::Serialize(program);
  return bytes + ChecksumField(base::Crc32c(bytes));
}

Result<std::unique_ptr<Program>> ParseProgram(
    const program::OpRegistry& registry, std::string_view bytes,
    std::string_view where) {
  const CheckedMessage message = SplitChecksum(bytes);
  if (message.has_checksum && base::Crc32c(message.body) != message.checksum) {
    return DataLoss(where, ": its checksum is wrong: bytes were altered");
  }
  Result<std::unique_ptr<Program>> program = program::Parse(message.body);
  if (!program.ok()) return program.status().WithContext(where);
  saved::FromPaddle(**program);
  RETURN_IF_ERROR(program::RestoreLod(registry, **program).WithContext(where));
  return program;
}

Status SaveProgram(const Program& program, const base::Path& path) {
  return base::AtomicWriteFile(path, SerializeProgram(program));
}

Result<std::unique_ptr<Program>> LoadProgram(
    const program::OpRegistry& registry, const base::Path& path) {
  ASSIGN_OR_RETURN(const std::string bytes, base::ReadFile(path));
  return ParseProgram(registry, bytes, path.string());
}

// ---- inference programs

Result<std::unique_ptr<Program>> ToInference(
    const program::OpRegistry& registry, const Program& program,
    const std::vector<std::string>& feeds,
    const std::vector<std::string>& fetches, saved::Paddle version) {
  ASSIGN_OR_RETURN(
      std::unique_ptr<Program> pruned,
      plan::Prune(*plan::CloneForTest(registry, program), feeds, fetches));
  RETURN_IF_ERROR(saved::ToPaddle(registry, *pruned, version));
  AddFeedAndFetch(*pruned, feeds, fetches);
  return pruned;
}

std::vector<std::string> FeedsOf(const Program& program) {
  return Columns(program, kFeed, true);
}

std::vector<std::string> FetchesOf(const Program& program) {
  return Columns(program, kFetch, false);
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
    ASSIGN_OR_RETURN(const base::Path file, FileOf(path, tensor.name));
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
  const std::vector<const Variable*> variables = SavedVariables(inference);
  // As Paddle does: a program without parameters is a file alone.
  if (!variables.empty()) {
    RETURN_IF_ERROR(SaveVariables(scope, NamesOf(variables), files.parameters,
                                  files.combined));
  }
  const base::Path folder = files.program.parent_path();
  if (!folder.empty()) RETURN_IF_ERROR(base::MakeFolders(folder));
  return SaveProgram(inference, files.program);
}

Result<std::unique_ptr<Program>> LoadModel(const program::OpRegistry& registry,
                                           const ModelFiles& files,
                                           Scope& scope, at::Device device) {
  ASSIGN_OR_RETURN(std::unique_ptr<Program> program,
                   LoadProgram(registry, files.program));
  const std::vector<const Variable*> variables = SavedVariables(*program);
  if (!variables.empty()) {
    RETURN_IF_ERROR(LoadVariables(scope, variables, files.parameters,
                                  files.combined, device));
  }
  return program;
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::Open(const base::Path& path,
                                                       ops::Context context) {
  ASSIGN_OR_RETURN(const ModelFiles files, FindModel(path));
  return Open(files, context);
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::Open(const ModelFiles& files,
                                                       ops::Context context) {
  std::unique_ptr<LoadedModel> model(new LoadedModel(context));
  ASSIGN_OR_RETURN(model->program_,
                   LoadModel(model->library_.definitions(), files,
                             model->scope_, context.device));
  for (std::string& name : FeedsOf(*model->program_)) {
    const Variable* variable = model->program_->block(0).FindHere(name);
    model->inputs_.push_back(std::move(name));
    if (variable != nullptr && !variable->lod.empty()) {
      model->inputs_.push_back(variable->lod);
    }
  }
  model->outputs_ = FetchesOf(*model->program_);
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
