// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/state.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "fleet/ops/aten_error.h"
#include "fleet/sync/tensor_collectives.h"

namespace fleet::sync {
namespace {

using at::Tensor;

// A tensor of so many bytes is sent alone and in place; the copy into a common
// memory would cost more than a call.
constexpr size_t kLarge = size_t{1} << 20;
// How much is collected before it is sent.
constexpr size_t kFlat = size_t{16} << 20;

std::string Describe(const NamedTensor& named) {
  std::ostringstream out;
  out << '\'' << named.name << '\'';
  const Tensor& tensor = named.tensor;
  if (!tensor.defined()) return out.str() + ", undefined";
  out << ", " << c10::toString(tensor.scalar_type()) << ' ' << tensor.sizes();
  // Gradients are laid out as their parameters are.
  if (!tensor.is_contiguous()) out << ", strides " << tensor.strides();
  if (named.sparse) out << ", sparse gradient";
  if (tensor.requires_grad()) out << ", trainable";
  return out.str();
}

std::vector<std::string> Lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::string LineOr(const std::vector<std::string>& lines, size_t i) {
  return i < lines.size() ? lines[i] : "none";
}

// Several small tensors as one.
class Flat {
 public:
  explicit Flat(const Tensor& like)
      : options_(like.options().requires_grad(false)) {}

  size_t byte_size() const { return byte_size_; }
  void Add(const Tensor& tensor) {
    tensors_.push_back(tensor.detach());
    byte_size_ += tensor.nbytes();
  }

  Status Broadcast(comm::Communicator& communicator, int root,
                   base::Deadline deadline) {
    int64_t count = 0;
    for (const Tensor& t : tensors_) count += t.numel();
    if (count == 0) return OkStatus();
    Tensor all = at::empty({count}, options_);
    if (communicator.rank() == root) {
      ForEach(all, [](Tensor part, const Tensor& t) { part.copy_(t); });
    }
    RETURN_IF_ERROR(sync::Broadcast(communicator, all, root, deadline));
    if (communicator.rank() != root) {
      ForEach(all, [](const Tensor& part, Tensor t) { t.copy_(part); });
    }
    tensors_.clear();
    byte_size_ = 0;
    return OkStatus();
  }

 private:
  template <class F>
  void ForEach(const Tensor& all, F f) const {
    int64_t offset = 0;
    for (const Tensor& t : tensors_) {
      f(all.narrow(0, offset, t.numel()).view(t.sizes()), t);
      offset += t.numel();
    }
  }

  at::TensorOptions options_;
  std::vector<Tensor> tensors_;
  size_t byte_size_ = 0;
};

}  // namespace

Status CheckSameOnAllRanks(comm::Communicator& communicator,
                           const std::string& what,
                           const std::vector<NamedTensor>& tensors,
                           base::Deadline deadline) {
  std::string mine;
  for (const NamedTensor& named : tensors) {
    std::string line = Describe(named);
    std::replace(line.begin(), line.end(), '\n', ' ');
    mine += line + '\n';
  }
  ASSIGN_OR_RETURN(auto texts, communicator.AllGatherBytes(
                                   std::as_bytes(std::span(mine)), deadline));
  auto text = [&](int rank) {
    return std::string_view(reinterpret_cast<const char*>(texts[rank].data()),
                            texts[rank].size());
  };
  for (int rank = 1; rank < communicator.size(); ++rank) {
    if (text(rank) == text(0)) continue;
    const auto first = Lines(text(0)), other = Lines(text(rank));
    size_t i = 0;
    while (i < first.size() && i < other.size() && first[i] == other[i]) ++i;
    return FailedPrecondition("the model is not the same on all ranks: ", what,
                              " ", i, " of rank 0 is ", LineOr(first, i),
                              "; that of rank ", rank, " is ",
                              LineOr(other, i));
  }
  return OkStatus();
}

Status BroadcastTensors(comm::Communicator& communicator,
                        const std::vector<NamedTensor>& tensors, int root,
                        base::Deadline deadline) {
  if (communicator.size() == 1) return OkStatus();
  const at::NoGradGuard no_grad;
  try {
    std::map<at::ScalarType, Flat> flats;
    for (const NamedTensor& named : tensors) {
      const Tensor& tensor = named.tensor;
      if (!tensor.defined() || tensor.numel() == 0) continue;
      RETURN_IF_ERROR(
          ToDataType(tensor.scalar_type()).status().WithContext(named.name));
      if (tensor.nbytes() >= kLarge) {
        RETURN_IF_ERROR(Broadcast(communicator, tensor, root, deadline)
                            .WithContext(named.name));
        continue;
      }
      Flat& flat =
          flats.try_emplace(tensor.scalar_type(), tensor).first->second;
      flat.Add(tensor);
      if (flat.byte_size() >= kFlat) {
        RETURN_IF_ERROR(flat.Broadcast(communicator, root, deadline));
      }
    }
    for (auto& [type, flat] : flats) {
      RETURN_IF_ERROR(flat.Broadcast(communicator, root, deadline));
    }
  } catch (const c10::Error& error) {
    return ops::FromException(error);
  }
  return OkStatus();
}

}  // namespace fleet::sync
