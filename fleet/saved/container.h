// SPDX-License-Identifier: Apache-2.0

// Writes the format of paddle.save, which python/paddle/framework/container.py
// describes: a dict of tensors by name.
//
//   ASSIGN_OR_RETURN(auto file, ContainerFile::Create("net.pdparams"));
//   RETURN_IF_ERROR(file.Add("w", {type, bytes}));
//   RETURN_IF_ERROR(file.Commit());

#ifndef FLEET_SAVED_CONTAINER_H_
#define FLEET_SAVED_CONTAINER_H_

#include <string>
#include <utility>

#include "fleet/base/file_system.h"
#include "fleet/base/status.h"
#include "fleet/saved/tensor_view.h"

namespace fleet::saved {

// One thread at a time. Without Commit there is no file.
class ContainerFile final {
 public:
  // With AtomicFile's promises: the folder of `path` must exist.
  static Result<ContainerFile> Create(const base::Path& path);

  // `tensor` is of a type that files have. The format has no LoD.
  Status Add(const std::string& name, const TensorView& tensor);

  // Ends the file; it then replaces what was at the path. No other call may
  // follow.
  Status Commit();

 private:
  explicit ContainerFile(base::AtomicFile file) : file_(std::move(file)) {}

  base::AtomicFile file_;
  int num_blobs_ = 0;
  std::string items_, blobs_;  // JSON, without the brackets around them
};

}  // namespace fleet::saved

#endif  // FLEET_SAVED_CONTAINER_H_
