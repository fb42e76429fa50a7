// SPDX-License-Identifier: Apache-2.0

// The tensor face of saved/: tensors, variables of a scope and models between
// memory and files in Paddle's formats. To run a model:
//
//   ASSIGN_OR_RETURN(auto model, exec::LoadedModel::Open("models/mlp"));
//   ASSIGN_OR_RETURN(auto outputs, model->Run({x}));
//
// saved/tensor_file.h and saved/model_file.h have formats and layouts.

#ifndef FLEET_EXEC_SAVED_MODEL_H_
#define FLEET_EXEC_SAVED_MODEL_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/file_system.h"
#include "fleet/base/status.h"
#include "fleet/exec/executor.h"
#include "fleet/exec/scope.h"
#include "fleet/ops/kernels.h"
#include "fleet/program/program.h"
#include "fleet/saved/dialect.h"
#include "fleet/saved/model_file.h"
#include "fleet/saved/tensor_view.h"

namespace fleet::exec {

// ---- tensors

struct SavedTensor {
  std::string name;
  at::Tensor value;
  saved::Lod lod = {};
};

// The tensors, one after the other. InvalidArgument for one that is undefined,
// not dense, or of a type that the format does not have.
Result<std::string> SerializeTensors(std::span<const SavedTensor> tensors);

// Writes what SerializeTensors gives into a file, which appears whole or not at
// all (AtomicFile); its folder must exist.
Status SaveTensors(const base::Path& path,
                   std::span<const SavedTensor> tensors);

// As many tensors as there are names, on the CPU, in memory of their own.
// Errors are those of saved::ParseTensors.
Result<std::vector<SavedTensor>> ParseTensors(
    std::string_view bytes, std::span<const std::string> names,
    std::string_view where);
Result<std::vector<SavedTensor>> LoadTensors(
    const base::Path& path, std::span<const std::string> names);

// ---- inference programs

// A program of its own for inference: what `fetches` need from `feeds`, for
// evaluation, in the form of saved::ToInference. Fails as that and plan::Prune
// do.
Result<std::unique_ptr<program::Program>> ToInference(
    const program::OpRegistry& registry, const program::Program& program,
    const std::vector<std::string>& feeds,
    const std::vector<std::string>& fetches,
    saved::Paddle version = saved::Paddle::k2);

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
                 const saved::ModelFiles& files);

// Reads both; the parameters go to `scope`.
Result<std::unique_ptr<program::Program>> LoadModel(
    const program::OpRegistry& registry, const saved::ModelFiles& files,
    Scope& scope, at::Device device = at::kCPU);

// A model ready to run. One thread at a time.
class LoadedModel final {
 public:
  static Result<std::unique_ptr<LoadedModel>> Open(const base::Path& path,
                                                   ops::Context context = {});
  static Result<std::unique_ptr<LoadedModel>> Open(
      const saved::ModelFiles& files, ops::Context context = {});

  // Behind an input of sequences comes where they begin, "<name>@LOD".
  const std::vector<std::string>& inputs() const { return inputs_; }
  const std::vector<std::string>& outputs() const { return outputs_; }
  // The type of an input or output `name`; -1 where any size will do.
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
