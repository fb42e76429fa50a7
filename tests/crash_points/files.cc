// SPDX-License-Identifier: Apache-2.0

// Files that are replaced as a whole: plain ones, a container of paddle.save, a
// program, tensors. Each is as it was or as it should be.

#include <map>
#include <string>
#include <vector>

#include "fleet/program/define_ops.h"
#include "fleet/program/program.h"
#include "fleet/saved/container.h"
#include "fleet/saved/model_file.h"
#include "fleet/saved/tensor_file.h"

#include "tests/crash_points/points.h"

namespace fleet::crash_points {
namespace {

using base::Path;

constexpr uint64_t kVersions = 3;
constexpr const char* kFiles[] = {"plain", "container", "net.pdmodel",
                                  "net.pdiparams"};

std::string TextOf(uint64_t version) {
  return std::string(1000 * version, static_cast<char>('a' + version));
}

std::vector<float> ValuesOf(uint64_t version) {
  return std::vector<float>(100 + version, static_cast<float>(version));
}

program::TensorType TypeOf(const std::vector<float>& values) {
  return {program::DType::kFloat32, {static_cast<int64_t>(values.size())}};
}

Status WriteOne(const Path& folder, const std::string& name, uint64_t version) {
  const Path path = folder / name;
  const std::vector<float> values = ValuesOf(version);
  const saved::TensorView tensor{TypeOf(values),
                                 std::as_bytes(std::span(values))};
  if (name == "plain") return base::AtomicWriteFile(path, TextOf(version));
  if (name == "container") {
    ASSIGN_OR_RETURN(auto file, base::AtomicFile::Create(path));
    saved::ContainerWriter writer(
        [&](std::span<const std::byte> bytes) { return file.Append(bytes); });
    saved::List tensors;
    for (const char* part : {"w", "b"}) {
      ASSIGN_OR_RETURN(
          const saved::BlobId blob,
          writer.Add(saved::TensorBlob(tensor.type, part), tensor.data));
      tensors.push_back(saved::Value{blob});
    }
    RETURN_IF_ERROR(writer.Finish(saved::Value{std::move(tensors)}));
    return file.Commit();
  }
  if (name == "net.pdmodel") {
    program::Program net;
    net.block(0).AddVariable({.name = TextOf(version)});
    return saved::SaveProgram(net, path);
  }
  ASSIGN_OR_RETURN(auto file, base::AtomicFile::Create(path));
  for (int i = 0; i < 2; ++i) {
    RETURN_IF_ERROR(saved::WriteTensor(
        tensor,
        [&](std::span<const std::byte> bytes) { return file.Append(bytes); }));
  }
  return file.Commit();
}

// The files as this version has them, written elsewhere.
Result<std::map<std::string, std::string>> Expected(const Path& folder,
                                                    uint64_t version) {
  std::map<std::string, std::string> bytes;
  RETURN_IF_ERROR(base::MakeFolders(folder));
  for (const char* name : kFiles) {
    RETURN_IF_ERROR(WriteOne(folder, name, version));
    ASSIGN_OR_RETURN(bytes[name], base::ReadFile(folder / name));
  }
  return bytes;
}

Status Write(const Point& point, Shared& shared) {
  point.Arm(shared);
  for (uint64_t version = 1; version <= kVersions; ++version) {
    shared.begun = version;
    for (const char* name : kFiles) {
      RETURN_IF_ERROR(WriteOne(point.files(), name, version));
    }
    shared.done = version;
  }
  return OkStatus();
}

Status Check(const Point& point, const Shared& shared) {
  for (const char* name : kFiles) {
    const Path path = point.files() / name;
    if (!base::Exists(path) && shared.done == 0) continue;
    ASSIGN_OR_RETURN(const std::string bytes, base::ReadFile(path));
    bool is_known = false;
    for (const uint64_t version : {shared.done, shared.begun}) {
      if (version == 0) continue;
      ASSIGN_OR_RETURN(const auto expected,
                       Expected(point.folder / "expected", version));
      is_known = is_known || expected.at(name) == bytes;
    }
    if (!is_known) {
      return DataLoss(name, " is neither of version ", shared.done, " nor of ",
                      shared.begun);
    }
  }
  // What is left of the last attempt is in nobody's way.
  return Expected(point.files(), kVersions + 1).status();
}

}  // namespace

Scenario Files() {
  return {
      "files", true, [](const Point& point, Shared& shared) -> Result<End> {
        const End end = Run(shared, [&] { return Write(point, shared); });
        if (end == End::kFailed) return Internal(shared.failure);
        if (Run(shared, [&] { return Check(point, shared); }) != End::kWell) {
          return DataLoss(shared.failure);
        }
        return end;
      }};
}

}  // namespace fleet::crash_points
