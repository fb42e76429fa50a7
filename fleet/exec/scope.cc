// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/scope.h"

#include <atomic>

namespace fleet::exec {
namespace {

uint64_t NextId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

Scope::Scope(Scope* parent) : parent_(parent), id_(NextId()) {}

at::Tensor* Scope::Find(std::string_view name) {
  auto found = tensors_.find(name);
  if (found != tensors_.end()) return &found->second;
  return parent_ == nullptr ? nullptr : parent_->Find(name);
}

at::Tensor& Scope::Get(std::string_view name) {
  auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  ++generation_;
  return tensors_[std::string(name)];
}

void Scope::Erase(std::string_view name) {
  auto found = tensors_.find(name);
  if (found == tensors_.end()) return;
  ++generation_;
  tensors_.erase(found);
}

std::vector<std::string> Scope::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

Scope& Scope::AddInner() {
  inner_.push_back(std::make_unique<Scope>(this));
  return *inner_.back();
}

}  // namespace fleet::exec
