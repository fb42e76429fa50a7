// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_EXEC_SCOPE_H_
#define FLEET_EXEC_SCOPE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace fleet::exec {

// Tensors by name that live longer than a step: parameters, what optimizers
// remember, running means. A tensor keeps its memory while programs update it.
// One thread at a time.
class Scope final {
 public:
  explicit Scope(Scope* parent = nullptr);
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  // Here or in an enclosing scope; null when there is none.
  at::Tensor* Find(std::string_view name);
  // Here; made, undefined, when it is not there. Its address stays.
  at::Tensor& Get(std::string_view name);
  void Erase(std::string_view name);
  std::vector<std::string> names() const;  // of this scope, sorted

  // No other scope of this process has this number, alive or gone.
  uint64_t id() const { return id_; }
  // Grows when a name comes or goes, here or in an enclosing scope: as long as
  // it stays, so do the addresses that Find() gave.
  uint64_t generation() const {
    return generation_ + (parent_ == nullptr ? 0 : parent_->generation());
  }

  // A scope inside this one, which lives until DropInner.
  Scope& AddInner();
  void DropInner() { inner_.clear(); }

 private:
  Scope* const parent_;
  const uint64_t id_;
  uint64_t generation_ = 0;
  std::map<std::string, at::Tensor, std::less<>> tensors_;
  std::vector<std::unique_ptr<Scope>> inner_;
};

}  // namespace fleet::exec

#endif  // FLEET_EXEC_SCOPE_H_
