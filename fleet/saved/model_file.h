// SPDX-License-Identifier: Apache-2.0

// Models on disk, as Paddle has them: a program that computes outputs from
// inputs, and its parameters. Two layouts are known: PREFIX.pdmodel with
// PREFIX.pdiparams, and a folder with the program in __model__ and a file for
// each parameter, or one for all. Parameters are in tensor_file.h's format.

#ifndef FLEET_SAVED_MODEL_FILE_H_
#define FLEET_SAVED_MODEL_FILE_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/file_system.h"
#include "fleet/base/status.h"
#include "fleet/program/op_def.h"
#include "fleet/program/program.h"
#include "fleet/saved/dialect.h"

namespace fleet::saved {

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

// The file of a variable below `folder`, and never outside: the parts of a name
// are folders, as Paddle has it, and a name that would lead elsewhere is one
// file (base::FileNameOf). InvalidArgument for an empty name.
Result<base::Path> FileOfVariable(const base::Path& folder,
                                  const std::string& name);

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

// Gives a program that computes `fetches` from `feeds`, for evaluation, the
// form that Paddle expects: its feed and fetch operations, in ops that
// `version` has. Fails as ToPaddle does.
Status ToInference(const program::OpRegistry& registry,
                   program::Program& program,
                   const std::vector<std::string>& feeds,
                   const std::vector<std::string>& fetches, Paddle version);

// What the feed operations of a program write and its fetch operations read, in
// order.
std::vector<std::string> FeedsOf(const program::Program& program);
std::vector<std::string> FetchesOf(const program::Program& program);

}  // namespace fleet::saved

#endif  // FLEET_SAVED_MODEL_FILE_H_
