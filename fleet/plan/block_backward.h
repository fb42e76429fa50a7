// SPDX-License-Identifier: Apache-2.0

// Backward of one block; AppendBackward (backward.h) begins with the main one.

#ifndef FLEET_PLAN_BLOCK_BACKWARD_H_
#define FLEET_PLAN_BLOCK_BACKWARD_H_

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/plan/backward.h"
#include "fleet/program/op_def.h"
#include "fleet/program/program.h"

namespace fleet::plan {

// What the gradients of all blocks of a program share: for loops, the variables
// of the main block that count turns and hold what was saved in them, and the
// operations with which these begin; and the arrays through which gradients may
// flow, each with the array of its gradients. That one is changed in place all
// through backward: a read of the array adds to it, a write takes from it.
struct BackwardRecords {
  std::set<std::string> names;
  std::vector<program::Operation> beginnings;
  std::map<std::string, std::string> arrays;
};

// Differentiates the operations of one block. Their gradients go to the end of
// the same block or, for the body of control flow, into another block, which
// then is the body of the gradient.
class BlockBackward {
 public:
  using Gradients = std::map<std::string, std::string>;  // by variable

  // Whether a gradient by a variable is asked for that no operation of the
  // block made.
  using WantsOuter = std::function<bool(const std::string&)>;

  BlockBackward(const program::OpRegistry& registry, program::Program& program,
                program::Block& from, program::Block& to,
                const std::set<std::string>& no_grad, BackwardRecords& records,
                WantsOuter wants_outer)
      : registry_(registry),
        program_(program),
        from_(from),
        to_(to),
        no_grad_(no_grad),
        records_(records),
        wants_outer_(std::move(wants_outer)) {}

  // The operations from number `begin` on. `starts` holds gradients that are
  // there already; an empty one stands for ones.
  Result<Gradients> Run(size_t begin,
                        const std::vector<BackwardTarget>& starts);

  // The variables that operations made, and of which a gradient may be asked.
  std::set<std::string> FindDepending(size_t begin);

 private:
  bool Stops(const std::string& name) const;

  bool WantedFromOutside(const std::string& name) const;

  // The variables by which a gradient can be asked for: those that do not stop
  // it, and what operations make of them.
  void FindDifferentiable();

  // A parameter is given from outside, also behind the operation of an
  // optimizer that changed it.
  bool Counts(const std::string& name) const;

  bool IsMade(const std::string& name) const;

  bool IsArray(const std::string& name) const;

  // Whether the value that it has at this point of the walk needs a gradient.
  bool Wanted(const std::string& name) const;

  Status Begin(const BackwardTarget& target);

  // In reverse, the operations that a target depends on.
  void FindUses(const std::vector<BackwardTarget>& targets);

  // The gradient operation of operation `i`, if it is on the way.
  Status Visit(size_t i);

  // Whether the gradient by input `slot` holds some rows only.
  static bool GivesRows(const program::Operation& op, const std::string& slot);

  Status NoGradient(const program::Operation& op) const;

  // The gradients of the outputs of `op`. Where an operation before it wrote
  // the same variable, or it works in place, further gradients by this name are
  // those of the older value.
  Gradients TakeGradients(const program::Operation& op);

  static bool IsIn(const program::Slots& slots, const std::string& name);

  // The gradient must not read a variable that has another value by then.
  Status CheckUse(const program::Operation& op, const program::OpDef& def,
                  const program::GradSource& use) const;

  // Whether no operation behind `op` changes the value that `name` has as its
  // input, or its output.
  bool IsUnchanged(const program::Operation& op, const std::string& name,
                   bool is_input) const;

  void AddUse(program::Operation& op, const program::OpDef& def,
              const program::GradSource& use, program::Operation& grad);

  // An output that only the gradient needs, and that whoever made the
  // operation left out.
  void AddOutput(program::Operation& op, const std::string& slot);

  // An output that the targets do not depend on has a gradient of zeros.
  std::string GradientOrZeros(const std::string& name);

  // ---- control flow (block_backward_control.cc)

  // Only the chosen one of X gets a gradient; the others get no value.
  Status VisitSelect(const program::Operation& op);

  // The gradient of a branch is a branch under the same condition. What it
  // needs of the forward body's own variables becomes variables of this block.
  Status VisitConditional(program::Operation& op);

  // Variables of `body` that `grad_body` reads move to the block around it.
  void Hoist(program::Block& body, const program::Block& grad_body);

  // Which outputs of a loop a gradient may be asked of: a value that is
  // constant at first may depend on others after the first turn.
  std::set<std::string> DependingOnLoop(const program::Operation& op);

  // The gradient of a loop is a loop that goes back through its turns. The
  // forward body writes what that needs into arrays, one place for each turn.
  Status VisitLoop(size_t position);

  // Hands the gradients of one turn to the turn before it, and adds up those of
  // what does not change from turn to turn.
  void EndTurn(const Gradients& gradients, const Gradients& state,
               const program::Block& body, program::Block& grad_body);

  // A count of all turns of this loop, also when a loop around it begins it
  // again, says where things are saved. `start` is the count when it began, so
  // the gradient goes back to there.
  void JoinLoops(size_t position, program::Block& body,
                 program::Block& grad_body);

  // One more operation among those that are differentiated.
  void InsertForward(size_t position, program::Operation op);

  // ---- arrays (block_backward_control.cc)

  const std::string& ArrayOfGradients(const std::string& array);

  // The place that the operation at `position` reads or writes, under a name
  // that nobody changes: loops often count in place.
  std::string PlaceIn(size_t position);

  Status VisitRead(size_t position);

  // Also where no gradient is wanted: what was at this place before has none.
  Status VisitWrite(size_t position);

  // ---- names

  // The name that people ask for. In a body it is another one: the block around
  // it may still give the plain one to its own.
  std::string PlainName(const std::string& name) const;

  // A new variable for one more part of the gradient of `name`.
  std::string NewPart(const std::string& name);

  static std::string Unused(std::string name, const program::Block& block);

  void AddGradient(const std::string& name, const std::string& gradient);

  // The parts of the gradient of `name` are all there: adds them up.
  void Settle(const std::string& name);

  static program::Operation Fill(const std::string& like,
                                 const std::string& out, double value);
  static program::Operation Assign(const std::string& from,
                                   const std::string& to);

  void Append(program::Operation op) { AppendTo(to_, std::move(op)); }

  void AppendTo(program::Block& block, program::Operation op);

  const program::OpRegistry& registry_;
  program::Program& program_;
  program::Block& from_;
  program::Block& to_;
  const std::set<std::string>& no_grad_;
  BackwardRecords& records_;
  const WantsOuter wants_outer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t appended_ = 0;              // the first operation that was added
  std::map<std::string, int> made_;  // how many operations write it
  // For each value that a variable gets, in order: whether a gradient can be
  // asked of it.
  std::map<std::string, std::vector<bool>> depends_;
  std::vector<bool> on_path_;
  std::map<std::string, std::vector<std::string>> parts_;
  std::set<std::string> own_;  // parts that were made here
  Gradients gradients_;
};

}  // namespace fleet::plan

#endif  // FLEET_PLAN_BLOCK_BACKWARD_H_
