// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_EXEC_SCHEDULE_MAKER_H_
#define FLEET_EXEC_SCHEDULE_MAKER_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fleet/exec/schedule.h"

namespace fleet::exec {

// Turns the operations of a program into the steps of a Schedule.
class ScheduleMaker final {
 public:
  ScheduleMaker(const program::Program& program, const ops::OpLibrary& library,
                const Extensions& extensions, Schedule::Target target)
      : program_(program),
        block_(&program.block(0)),
        library_(library),
        extensions_(extensions),
        target_(target) {}

  // Once. As Schedule::Compile.
  Result<std::unique_ptr<Schedule>> Make(
      const std::vector<std::string>& feeds,
      const std::vector<std::string>& fetches);

 private:
  // The place of a variable as the current block sees it.
  Place PlaceOf(const std::string& name);
  void Read(const std::string& name, const std::string& reader);

  Status Add(const program::Operation& op);
  Status AddForward(const program::Operation& op, const ops::Op& kernels);
  Status AddBackward(const program::Operation& op, const ops::Op& kernels);
  Status AddExtension(const program::Operation& op, Extension& extension);
  Status AddOptimizer(const program::Operation& op, const program::OpDef& def,
                      const ops::OptimizerOp& optimizer);
  Status AddConditional(const program::Operation& op);
  Status AddWhile(const program::Operation& op);
  // The steps of the op's body.
  Result<Steps> MakeBody(const program::Operation& op);
  // What the body touches, the step touches.
  static void Cover(Step& step, const Steps& body);
  bool AddSimpleControl(const program::Operation& op);
  Result<std::unique_ptr<KernelStep>> Begin(const program::Operation& op,
                                            const ops::Op& kernels);

  void AddInputs(Step& step, const std::vector<std::string>& names);
  void AddOutput(Step& step, const std::string& name);

  void FuseProducts();
  bool FusesAt(size_t step) const;
  bool IsLarge(Place parameter) const;
  void UpdateEarly();
  void AddKept();
  void AddLastUses();
  void MarkChangedFeeds();
  void AddSharers();

  const program::Program& program_;
  const program::Block* block_;  // whose operations are being added
  Steps* steps_ = nullptr;       // where to
  const ops::OpLibrary& library_;
  const Extensions& extensions_;
  const Schedule::Target target_;
  std::unique_ptr<Schedule> schedule_;
  // By the block that declares a variable, and its name.
  std::map<std::pair<int, std::string>, Place> places_;
  std::set<std::string> fed_;
  std::set<std::string> written_;
  std::map<std::string, std::string> read_first_;  // variable, who reads it
};

}  // namespace fleet::exec

#endif  // FLEET_EXEC_SCHEDULE_MAKER_H_
