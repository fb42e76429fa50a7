// SPDX-License-Identifier: Apache-2.0

// What a plan is made from: the steps of a schedule as a graph of values, each
// written once, with the types that they have for one set of feed shapes.
// Passes mark nodes as run by others, or give them a direct form.

#ifndef FLEET_EXEC_PLAN_GRAPH_H_
#define FLEET_EXEC_PLAN_GRAPH_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fleet/exec/step.h"
#include "fleet/ops/bare.h"
#include "fleet/program/op_def.h"

namespace fleet::exec {

using program::Dims;
using program::DType;

// Works on the address of every value, by its number.
using Direct = ops::Bare;
using ops::FloatIn;
using ops::FloatOut;
using ops::kNone;

// One value of a variable. A variable that is written twice has two.
struct Value {
  enum Origin {
    kFeed,
    kKept,      // from the scope
    kMade,      // by a node
    kConstant,  // filled when the plan is made
  };

  Place place = kNothing;
  program::TensorType type;
  bool dense = true;  // an ordinary tensor on the CPU
  Origin origin = kMade;
  int maker = kNone;
  std::vector<int> readers;  // nodes
  // Lives in the memory of that value: a view, or changed in place.
  int memory_of = kNone;
  bool needed_after = false;  // by fetches or by the scope
  // Somebody outside writes or keeps its memory: no other value may share it.
  bool pinned = false;
  float constant = 0;  // of kConstant: every element
  // An image [n, c, h, w] that lies in memory as [n, h, w, c].
  bool channels_last = false;

  int64_t numel() const;
  bool is_float() const { return dense && type.dtype == DType::kFloat32; }
};

struct Node {
  Step* step = nullptr;
  KernelStep* kernel = nullptr;  // null: another kind of step
  std::vector<int> inputs;       // as in the step; values
  std::vector<int> outputs;      // the same; kNone where nobody reads
  std::vector<int> reads;        // whose memory it needs
  Direct direct;                 // null: the step itself runs
  bool gone = false;             // others do its work
  bool fused = false;            // it does the work of others, too
};

class Graph final {
 public:
  std::vector<Value> values;
  std::vector<Node> nodes;

  // "matmul_v2" or "matmul_v2_grad", or empty for a step without kernel.
  bool Is(int node, std::string_view type) const;
  // The only input of a slot; kNone when it is absent.
  int In(const Node& node, size_t slot) const;
  int Out(const Node& node, size_t position) const;
  template <class T>
  const T& attr(const Node& node, std::string_view name) const {
    const KernelStep& k = *node.kernel;
    return std::get<T>(k.attrs[k.def().AttrIndex(name)]);
  }
  // Whether all of these are dense floats; kNone is not one.
  bool AreFloat(std::span<const int> values) const;
  bool AreFloat(std::initializer_list<int> values) const {
    return AreFloat(std::span(values.begin(), values.size()));
  }
  const Dims& dims(int value) const { return values[value].type.dims; }
  int64_t numel(int value) const { return values[value].numel(); }

  // The node needs none of its inputs' memory but these.
  void Reads(int node, std::vector<int> reads);
  // `value` lives in the memory of `other` from now on; false, and nothing is
  // done, where that is not possible.
  bool Share(int value, int other);
  // The value whose memory it really is.
  int Home(int value) const;
  // `value` is filled once, when the plan is made.
  void MakeConstant(Node& node, int value, float number);

  // Fills Value::readers and Value::maker from the nodes.
  void CountReaders();
};

}  // namespace fleet::exec

#endif  // FLEET_EXEC_PLAN_GRAPH_H_
