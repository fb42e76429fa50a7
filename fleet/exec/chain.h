// SPDX-License-Identifier: Apache-2.0

// A run of elementwise operations as one pass over memory: block by block, all
// operations on one block before the next, so that what lies between them stays
// in the first cache and needs no memory of its own.

#ifndef FLEET_EXEC_CHAIN_H_
#define FLEET_EXEC_CHAIN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "fleet/base/simd_blocks.h"
#include "fleet/exec/plan_graph.h"
#include "fleet/ops/spread.h"

namespace fleet::exec {

using ops::Spread;

// Where elements, or a number, come from or go to.
struct ChainOperand {
  enum From : uint8_t {
    kAbsent,
    kTemporary,  // what an earlier step of the chain made
    kValue,      // a value of the graph
    kNumber,     // one number for all elements
  };

  From from = kAbsent;
  // The temporary or the value; of a number, the value that holds it, or kNone
  // if it is `number`.
  int index = kNone;
  float number = 0;
  Spread spread;  // of a value that is smaller than the pass

  static ChainOperand Temporary(int index) { return {kTemporary, index}; }
  static ChainOperand Of(int value) { return {kValue, value}; }
  static ChainOperand Number(float number) { return {kNumber, kNone, number}; }
};

// One operation of simd_blocks.h, or a sum.
struct ChainStep {
  base::BlockOp op = base::BlockOp::kCopy;
  ChainOperand a, b, c;  // elements
  ChainOperand s, t;     // numbers
  ChainOperand out;      // a temporary, or a value; each is written once
  // `out` is a smaller value: each element gets the sum of those of `a` over
  // which it lies by out.spread, times `factor`. The steps of the chain cannot
  // read it.
  bool is_sum = false;
  double factor = 1;
};

class Chain final {
 public:
  // A chain of steps over `numel` elements, in their order. Those of the values
  // that they write which `is_needed` names go to memory; what nobody needs is
  // not computed. Null where there are more operands than a chain has room for.
  static std::shared_ptr<const Chain> Make(
      int64_t numel, std::span<const ChainStep> steps,
      const std::function<bool(int value)>& is_needed);

  // Values whose memory it reads and writes; none is in both.
  const std::vector<int>& reads() const { return reads_; }
  const std::vector<int>& writes() const { return writes_; }
  size_t num_steps() const { return steps_.size(); }

  // In several threads where there are enough elements; one call at a time.
  // The result does not depend on the number of threads.
  void Run(void* const* memory) const;

 private:
  class Maker;

  // Operands are places in a table of addresses: first the rooms for blocks,
  // then values, then values that are spread.
  struct Step {
    base::BlockFunction function;  // null: the sum number `out`
    uint8_t a, b, c, out;
    uint8_t s, t;  // in the table of numbers
  };
  struct Number {
    int value;  // or kNone
    float number;
  };
  struct Laid {
    int value;
    Spread spread;
    uint8_t room;
  };

  struct Sum {
    int value;
    Spread spread;
    double factor;
    int64_t offset;  // in the sums of a part
  };

  Chain() = default;
  void RunRange(void* const* memory, const float* numbers, int64_t begin,
                int64_t end, float* sums) const;
  void RunParts(void* const* memory, const float* numbers) const;

  int64_t numel_ = 0;
  int64_t grain_ = 0;
  std::vector<Step> steps_;
  std::vector<Number> numbers_;
  std::vector<int> values_;  // as large as the pass
  std::vector<Laid> laid_;
  std::vector<Sum> sums_;
  // With sums the elements are divided into parts, each with sums of its own.
  int64_t num_parts_ = 1;
  int64_t sums_size_ = 0;  // of one part
  mutable std::vector<float> partial_;
  std::vector<int> reads_;
  std::vector<int> writes_;
};

}  // namespace fleet::exec

#endif  // FLEET_EXEC_CHAIN_H_
