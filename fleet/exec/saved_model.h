// SPDX-License-Identifier: Apache-2.0

// Models on disk, as Paddle has them: a program that computes outputs from
// inputs, and its parameters. To run one:
//
//   ASSIGN_OR_RETURN(auto model, exec::LoadedModel::Open("models/mlp"));
//   ASSIGN_OR_RETURN(auto outputs, model->Run({x}));
//
// Two layouts are known: PREFIX.pdmodel with PREFIX.pdiparams, and a folder
// with the program in __model__ and a file for each parameter, or one for all.

#ifndef FLEET_EXEC_SAVED_MODEL_H_
#define FLEET_EXEC_SAVED_MODEL_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/file_system.h"
#include "fleet/base/status.h"
#include "fleet/exec/executor.h"
#include "fleet/exec/saved_tensor.h"
#include "fleet/exec/scope.h"
#include "fleet/ops/kernels.h"
#include "fleet/program/program.h"
#include "fleet/saved/dialect.h"

namespace fleet::exec {

// Where the parts of a model lie.
struct ModelFiles {
  base::Path program;
  // One file with all parameters, or the folder with a file for each.
  base::Path parameters;
  bool combined = true;
};

// PREFIX.pdmodel and PREFIX.pdiparams.
ModelFiles FilesOfPrefix(const base::Path& prefix);
// In a folder; the program is in __model__ unless `program` names another file,
// the parameters are in `parameters` when it names one, else each in its own.
ModelFiles FilesOfFolder(const base::Path& folder,
                         std::string_view program = "",
                         std::string_view parameters = "");
// Which of the two is there. NotFound says what was looked for.
Result<ModelFiles> FindModel(const base::Path& path);

// What is saved of a program: its variables that live longer than a step, in
// the order in which one file holds them.
std::vector<const program::Variable*> SavedVariables(
    const program::Program& program);

// ---- programs

// The bytes of a program file; the reverse is DataLoss for bytes that are cut
// off, altered or no program. `where` is what errors call them.
std::string SerializeProgram(const program::Program& program);
Result<std::unique_ptr<program::Program>> ParseProgram(
    const program::OpRegistry& registry, std::string_view bytes,
    std::string_view where);
Status SaveProgram(const program::Program& program, const base::Path& path);
Result<std::unique_ptr<program::Program>> LoadProgram(
    const program::OpRegistry& registry, const base::Path& path);

// ---- inference programs

// A program of its own for inference: what `fetches` need from `feeds`, for
// evaluation, with the feed and fetch operations that Paddle expects, in ops
// that `version` has. Fails as plan::Prune does.
Result<std::unique_ptr<program::Program>> ToInference(
    const program::OpRegistry& registry, const program::Program& program,
    const std::vector<std::string>& feeds,
    const std::vector<std::string>& fetches,
    saved::Paddle version = saved::Paddle::k2);

// What the feed operations of a program write and its fetch operations read, in
// order.
std::vector<std::string> FeedsOf(const program::Program& program);
std::vector<std::string> FetchesOf(const program::Program& program);

// ---- parameters

// The values of `names` in `scope`. FailedPrecondition for one without a value.
Result<std::vector<SavedTensor>> FindTensors(
    Scope& scope, const std::vector<std::string>& names);

// Writes values of variables into one file, or each into one of its own below a
// folder, which is made when it is missing.
Status SaveVariables(Scope& scope, const std::vector<std::string>& names,
                     const base::Path& path, bool combined);

// Reads values into `scope`, on `device`; a variable that has one keeps its
// memory. Either all of them are set or none. NotFound for a file that is
// missing, InvalidArgument for a value of another type or shape than its
// variable.
Status LoadVariables(Scope& scope,
                     const std::vector<const program::Variable*>& variables,
                     const base::Path& path, bool combined,
                     at::Device device = at::kCPU);
// Puts `tensors` into `scope` on the same terms.
Status SetVariables(Scope& scope,
                    const std::vector<const program::Variable*>& variables,
                    std::vector<SavedTensor> tensors,
                    at::Device device = at::kCPU);

// ---- both

// Writes an inference program and its parameters. The program comes last: where
// it is, its parameters are. Each file appears whole or not at all.
Status SaveModel(const program::Program& inference, Scope& scope,
                 const ModelFiles& files);

// Reads both; the parameters go to `scope`.
Result<std::unique_ptr<program::Program>> LoadModel(
    const program::OpRegistry& registry, const ModelFiles& files, Scope& scope,
    at::Device device = at::kCPU);

// A model ready to run. One thread at a time.
class LoadedModel final {
 public:
  static Result<std::unique_ptr<LoadedModel>> Open(const base::Path& path,
                                                   ops::Context context = {});
  static Result<std::unique_ptr<LoadedModel>> Open(const ModelFiles& files,
                                                   ops::Context context = {});

  // Behind an input of sequences comes where they begin, "<name>@LOD".
  const std::vector<std::string>& inputs() const { return inputs_; }
  const std::vector<std::string>& outputs() const { return outputs_; }
  // Of an input or output; -1 where any size will do. `name` is one of them.
  const program::TensorType& type(const std::string& name) const;
  const program::Program& program() const { return *program_; }

  // `values` in the order of inputs(); the answer is in the order of outputs().
  Result<std::vector<at::Tensor>> Run(const std::vector<at::Tensor>& values);

 private:
  explicit LoadedModel(ops::Context context) : executor_(library_, context) {}

  ops::OpLibrary library_;
  Executor executor_;
  Scope scope_;
  std::unique_ptr<program::Program> program_;
  std::vector<std::string> inputs_;
  std::vector<std::string> outputs_;
};

}  // namespace fleet::exec

#endif  // FLEET_EXEC_SAVED_MODEL_H_
