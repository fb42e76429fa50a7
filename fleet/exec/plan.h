// SPDX-License-Identifier: Apache-2.0

// The fast form of a schedule for one set of shapes on the CPU. Operations on
// dense floats are calls on bare memory, some of them several operations in
// one; what they write lies in one piece of memory that is laid out beforehand.
// Whatever has no such form runs as in the schedule.

#ifndef FLEET_EXEC_PLAN_H_
#define FLEET_EXEC_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/status.h"
#include "fleet/exec/plan_graph.h"
#include "fleet/exec/step.h"

namespace fleet::exec {

// What a plan is made from: a schedule, and the types that its values had in a
// run. Nothing in place of a type: the value was absent, or not a dense tensor
// on the CPU.
struct PlanSource {
  using Type = std::optional<program::TensorType>;
  struct Kept {
    Place place;
    bool written;
  };

  // Whether several operations may become one, and images lie in memory as is
  // fastest. Without it every operation gives the bits of an eager call.
  bool fusing = true;

  std::span<const std::unique_ptr<Step>> steps;  // they outlive the plan
  std::vector<Place> feeds;
  std::vector<Place> fetches;
  std::vector<Kept> kept;
  std::span<const std::string> names;  // by place; outlive the plan

  std::vector<Type> feed_types;
  std::vector<Type> kept_types;
  std::vector<std::vector<Type>> output_types;  // by step
};

// One thread at a time.
class Plan final {
 public:
  // Null when the types say that there can be none: a shape depends on data, or
  // a variable of the scope was not there.
  static std::unique_ptr<Plan> Make(const PlanSource& source);

  // Whether the scope's tensors have the types that the plan was made for.
  bool TakesKept(std::span<at::Tensor* const> kept) const;

  // As Schedule::Run, with the scope's tensors in the order of the source. What
  // the program writes goes into their memory.
  Result<std::vector<at::Tensor>> Run(std::span<const at::Tensor> feeds,
                                      std::span<at::Tensor* const> kept,
                                      const ops::Context& context);

  // Whether the plan has memory for results within a step. The next Run takes
  // it; it stays until ReleaseArena.
  bool holds_arena() const { return arena_.defined(); }
  void ReleaseArena() { arena_.reset(); }

  // For tests and for people who ask where memory and time go.
  int64_t arena_bytes() const { return arena_bytes_; }
  size_t num_direct() const;   // steps on bare memory
  size_t num_general() const;  // steps as in the schedule

 private:
  Plan() = default;
  bool Build(const PlanSource& source);
  bool AddNodes(const PlanSource& source);
  std::vector<int> LastUses() const;
  void AskForHomes();
  void PlaceInArena();
  void TakeArena();
  void SetAddress(int value, void* address);

  void LoadFeeds(std::span<const at::Tensor> feeds);
  void LoadKept(std::span<at::Tensor* const> kept);
  Status RunNodes(const ops::Context& context);
  Status RunGeneral(Node& node, const ops::Context& context);
  at::Tensor TensorOf(int value);
  bool KeepsItsMemory(int value) const;
  void Lend(const Node& node);
  at::Tensor Owned(at::Tensor made) const;
  at::Tensor OwnedSparse(const at::Tensor& made) const;
  Status Explain(const Node& node, const Status& reason) const;

  Graph graph_;
  std::vector<int> feeds_;    // values
  std::vector<int> kept_;     // values
  std::vector<int> fetches_;  // values
  // Values that go to the scope at the end, and where.
  std::vector<std::pair<int, size_t>> stores_;
  std::vector<std::vector<int>> followers_;  // by value: who shares its memory
  std::vector<int> run_order_;               // nodes
  std::vector<std::vector<int>> releases_;   // by node: tensors it ends

  std::vector<void*> memory_;  // by value
  std::vector<at::Tensor> tensors_;
  // Values that an extension put elsewhere in this run, and where they were.
  struct Moved {
    int value;
    at::Tensor tensor;
    void* address;
  };
  std::vector<Moved> moved_;
  at::Tensor arena_;
  std::vector<std::pair<int, int64_t>> in_arena_;  // values and offsets
  int64_t arena_bytes_ = 0;
  std::vector<at::Tensor> frame_;  // by place, for general steps
  // What the general step that runs got and must not give on (see Lend).
  std::vector<at::Tensor> lent_;
  std::span<const std::string> names_;
};

}  // namespace fleet::exec

#endif  // FLEET_EXEC_PLAN_H_
