// SPDX-License-Identifier: Apache-2.0
#include "fleet/saved/model_file.h"

#include <algorithm>
#include <map>
#include <utility>

#include "fleet/base/crc32c.h"
#include "fleet/base/file_name.h"
#include "fleet/program/attr_or.h"
#include "fleet/program/lod.h"
#include "fleet/program/wire.h"
#include "fleet/saved/checksum_field.h"

namespace fleet::saved {

using program::AttrKind;
using program::Block;
using program::Operation;
using program::Program;
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
    if (names.empty()) continue;
    const auto next = static_cast<int64_t>(columns.size());
    columns[program::AttrOr(op, "col", next)] = names.front();
  }
  std::vector<std::string> names;
  names.reserve(columns.size());
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
  sorted.reserve(found.size());
  for (const auto& [name, variable] : found) sorted.push_back(variable);
  return sorted;
}

Result<base::Path> FileOfVariable(const base::Path& folder,
                                  const std::string& name) {
  if (name.empty()) {
    return InvalidArgument("a variable without a name has no file in ",
                           folder.string());
  }
  // Paddle makes folders of the parts of a name ("encoder/fc.w"), and looks for
  // them there. Only names that would lead elsewhere, or to the file of another
  // name, are files with a name of our own.
  bool as_it_is = true;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    as_it_is = as_it_is && !part.empty() && base::FileNameOf(part) == part;
    begin = end + 1;
  }
  return folder / (as_it_is ? name : base::FileNameOf(name));
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
  FromPaddle(**program);
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

Status ToInference(const program::OpRegistry& registry, Program& program,
                   const std::vector<std::string>& feeds,
                   const std::vector<std::string>& fetches, Paddle version) {
  RETURN_IF_ERROR(ToPaddle(registry, program, version));
  AddFeedAndFetch(program, feeds, fetches);
  return OkStatus();
}

std::vector<std::string> FeedsOf(const Program& program) {
  return Columns(program, kFeed, true);
}

std::vector<std::string> FetchesOf(const Program& program) {
  return Columns(program, kFetch, false);
}

}  // namespace fleet::saved
