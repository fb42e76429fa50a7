// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PLAN_PROGRAM_INDEX_H_
#define FLEET_PLAN_PROGRAM_INDEX_H_

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fleet/program/op_role.h"
#include "fleet/program/program.h"

namespace fleet::plan {

// Who reads and who writes each variable of block 0, by the positions of
// operations, in order. An operation with a body counts with all that the body
// does. Of the program as it was when the index was made.
class ProgramIndex final {
 public:
  explicit ProgramIndex(const program::Program& program);

  const program::Block& block() const { return *block_; }
  const program::Operation& op(size_t i) const { return block_->op(i); }

  const std::vector<size_t>& readers(const std::string& name) const;
  const std::vector<size_t>& writers(const std::string& name) const;
  // The operation that writes `name`, if it is one alone, and one that does
  // not read it. Null otherwise.
  const program::Operation* maker(const std::string& name) const;

  const std::set<std::string>& reads(size_t op) const { return reads_[op]; }
  const std::set<std::string>& writes(size_t op) const { return writes_[op]; }

 private:
  const program::Block* block_;
  std::vector<std::set<std::string>> reads_;
  std::vector<std::set<std::string>> writes_;
  std::map<std::string, std::vector<size_t>> readers_;
  std::map<std::string, std::vector<size_t>> writers_;
};

bool HasRole(const program::Operation& op, program::OpRole role);

// The attribute of that name as a number, a word, a truth; `otherwise` where
// it is absent or of another kind.
double NumberOf(const program::Operation& op, std::string_view attr,
                double otherwise);
bool FlagOf(const program::Operation& op, std::string_view attr,
            bool otherwise = false);
std::string WordOf(const program::Operation& op, std::string_view attr);

// "sgd (train.py:17)": an operation for a person.
std::string Describe(const program::Operation& op);

// Operations to put in and to take out of a block, by the positions before the
// change.
class Rewrite final {
 public:
  void Remove(size_t at) { removed_.insert(at); }
  // Several before the same position stand in the order of these calls.
  void InsertBefore(size_t at, program::Operation op) {
    added_.emplace(at, std::move(op));
  }
  bool removes(size_t at) const { return removed_.contains(at); }
  const std::set<size_t>& removed() const { return removed_; }
  void Apply(program::Block& block);

 private:
  std::set<size_t> removed_;
  std::multimap<size_t, program::Operation> added_;
};

}  // namespace fleet::plan

#endif  // FLEET_PLAN_PROGRAM_INDEX_H_
