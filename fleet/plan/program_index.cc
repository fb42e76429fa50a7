// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/program_index.h"

#include <cstdint>
#include <variant>

#include "fleet/program/control.h"

namespace fleet::plan {

using program::Operation;
using program::OpRole;

ProgramIndex::ProgramIndex(const program::Program& program)
    : block_(&program.block(0)) {
  for (size_t i = 0; i < block_->num_ops(); ++i) {
    program::Uses uses = program::UsesOf(program, block_->op(i));
    for (const std::string& name : uses.reads) readers_[name].push_back(i);
    for (const std::string& name : uses.writes) writers_[name].push_back(i);
    reads_.push_back(std::move(uses.reads));
    writes_.push_back(std::move(uses.writes));
  }
}

namespace {
const std::vector<size_t>& AtOrNone(
    const std::map<std::string, std::vector<size_t>>& map,
    const std::string& name) {
  static const std::vector<size_t> none;
  auto found = map.find(name);
  return found == map.end() ? none : found->second;
}
}  // namespace

const std::vector<size_t>& ProgramIndex::readers(
    const std::string& name) const {
  return AtOrNone(readers_, name);
}

const std::vector<size_t>& ProgramIndex::writers(
    const std::string& name) const {
  return AtOrNone(writers_, name);
}

const Operation* ProgramIndex::maker(const std::string& name) const {
  const std::vector<size_t>& all = writers(name);
  if (all.size() != 1 || reads_[all[0]].contains(name)) return nullptr;
  return &block_->op(all[0]);
}

bool HasRole(const Operation& op, OpRole role) {
  return (static_cast<int>(program::RoleOf(op)) & static_cast<int>(role)) != 0;
}

double NumberOf(const Operation& op, std::string_view attr, double otherwise) {
  const program::AttrValue* found = op.attr(attr);
  if (found == nullptr) return otherwise;
  if (const auto* x = std::get_if<double>(&found->value)) return *x;
  if (const auto* x = std::get_if<int64_t>(&found->value)) {
    return static_cast<double>(*x);
  }
  return otherwise;
}

bool FlagOf(const Operation& op, std::string_view attr, bool otherwise) {
  const program::AttrValue* found = op.attr(attr);
  if (found == nullptr) return otherwise;
  if (const auto* x = std::get_if<bool>(&found->value)) return *x;
  if (const auto* x = std::get_if<int64_t>(&found->value)) return *x != 0;
  return otherwise;
}

std::string WordOf(const Operation& op, std::string_view attr) {
  const program::AttrValue* found = op.attr(attr);
  if (found == nullptr) return "";
  const auto* x = std::get_if<std::string>(&found->value);
  return x == nullptr ? "" : *x;
}

std::string Describe(const Operation& op) {
  return op.made_at.empty() ? op.type : op.type + " (" + op.made_at + ")";
}

void Rewrite::Apply(program::Block& block) {
  const size_t num_ops = block.num_ops();
  for (size_t i = num_ops + 1; i-- > 0;) {
    if (i < num_ops && removed_.contains(i)) block.Remove(i, i + 1);
    auto [first, last] = added_.equal_range(i);
    size_t at = i;
    for (auto it = first; it != last; ++it) {
      block.Insert(at++, std::move(it->second));
    }
  }
}

}  // namespace fleet::plan
