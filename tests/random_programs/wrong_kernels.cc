// SPDX-License-Identifier: Apache-2.0

// Ten places of the engine made wrong on purpose, to see that the random
// programs find them. A process that loads this library before the engine, with
// its symbols in front, computes wrongly in the place that WRONG_KERNEL names:
// the functions below stand before those of the same name in the engine, and
// call these.

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string_view>

#include "fleet/comm/reduce.h"
#include "fleet/exec/direct.h"
#include "fleet/ops/kernels.h"

namespace fleet {
namespace {

bool Wrong(std::string_view place) {
  const char* name = std::getenv("WRONG_KERNEL");
  return name != nullptr && place == name;
}

// The function behind this library's with the same mangled name.
template <class F>
F Next(const char* symbol) {
  void* found = dlsym(RTLD_NEXT, symbol);
  if (found == nullptr) {
    std::abort();  // the engine's function has another name now
  }
  return reinterpret_cast<F>(found);
}

// ---- kernels

// One thousandth too much in the tensor `I` of the result.
template <int I>
void Enlarge(ops::KernelCall& call) {
  if (call.out[I].defined()) call.out[I] = call.out[I] * 1.001;
}

// A kernel of the engine and what is done to its result, for each place.
template <int Place>
ops::KernelFn kernel = nullptr;

template <int Place, ops::KernelFn Spoil>
void RunWrong(ops::KernelCall& call) {
  kernel<Place>(call);
  Spoil(call);
}

template <int Place, ops::KernelFn Spoil>
void Replace(ops::KernelFn& in_table) {
  kernel<Place> = in_table;
  in_table = RunWrong<Place, Spoil>;
}

void EnlargeFloats(ops::KernelCall& call) {
  if (call.out[0].scalar_type() == at::kFloat) Enlarge<0>(call);
}

void EnlargeSmallerY(ops::KernelCall& call) {
  if (call.out[1].defined() && call.out[0].defined() &&
      call.out[1].numel() < call.out[0].numel()) {
    Enlarge<1>(call);
  }
}

void EnlargeRows(ops::KernelCall& call) {
  if (call.out[0].defined() && call.out[0].is_sparse()) Enlarge<0>(call);
}

ops::Op& Find(ops::KernelTable& table, const char* name) {
  return const_cast<ops::Op&>(*table.Find(name));
}

void SpoilKernels(ops::KernelTable& table) {
  if (Wrong("tanh_grad")) Replace<0, Enlarge<0>>(Find(table, "tanh").backward);
  if (Wrong("softmax")) Replace<1, Enlarge<0>>(Find(table, "softmax").forward);
  if (Wrong("matmul_float")) {
    Replace<2, EnlargeFloats>(Find(table, "matmul_v2").forward);
  }
  if (Wrong("add_grad_broadcast")) {
    Replace<3, EnlargeSmallerY>(Find(table, "elementwise_add").backward);
  }
  if (Wrong("sparse_rows")) {
    Replace<4, EnlargeRows>(Find(table, "lookup_table_v2").backward);
  }
  if (Wrong("conv2d_filter_grad")) {
    Replace<5, Enlarge<1>>(Find(table, "conv2d").backward);
  }
}

// ---- direct forms

// The first element of `value` is wrong behind the node.
void SpoilNode(exec::Graph& graph, exec::Node& node, int value) {
  if (value == exec::kNone || !graph.values[value].is_float() ||
      graph.numel(value) == 0) {
    return;
  }
  exec::Direct right = node.direct;
  node.direct = [right, value](void* const* memory) {
    right(memory);
    float& first = *exec::FloatOut(memory, value);
    first = first * 1.001F + 0.001F;
  };
}

void SpoilForms(exec::Graph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    exec::Node& node = graph.nodes[i];
    if (node.gone || node.direct == nullptr) continue;
    const bool kernel = node.kernel != nullptr && !node.outputs.empty();
    const int n = static_cast<int>(i);
    if (kernel && Wrong("direct_matmul") && graph.Is(n, "matmul_v2_grad")) {
      SpoilNode(graph, node, node.outputs.back());
    }
    if (kernel && Wrong("fused") && node.fused) {
      SpoilNode(graph, node, node.outputs[0]);
    }
    if (!kernel && Wrong("direct_update") && !node.inputs.empty() &&
        dynamic_cast<exec::OptimizerStep*>(node.step) != nullptr &&
        !node.outputs.empty()) {
      SpoilNode(graph, node, node.outputs[0]);
    }
  }
}

}  // namespace

namespace ops {

void AddRandomKernels(KernelTable& kernels) {
  using F = void (*)(KernelTable&);
  static const F next =
      Next<F>("_ZN5fleet3ops16AddRandomKernelsERNS0_11KernelTableE");
  next(kernels);  // the last group: all others are there
  SpoilKernels(kernels);
}

}  // namespace ops

namespace exec {

void MakeDirectForms(Graph& graph, bool fusing) {
  using F = void (*)(Graph&, bool);
  static const F next =
      Next<F>("_ZN5fleet4exec15MakeDirectFormsERNS0_5GraphEb");
  next(graph, fusing);
  SpoilForms(graph);
}

}  // namespace exec

namespace comm {

void CombineAll(ReduceOp op, DataType type,
                std::span<const std::byte* const> inputs,
                std::span<std::byte* const> outputs, size_t count) {
  using F = decltype(&CombineAll);
  static const F next = Next<F>(
      "_ZN5fleet4comm10CombineAllENS0_8ReduceOpENS0_8DataTypeE"
      "St4spanIKPKSt4byteLm18446744073709551615EE"
      "S3_IKPS4_Lm18446744073709551615EEm");
  next(op, type, inputs, outputs, count);
  if (!Wrong("reduction") || type != DataType::kFloat32 || count == 0) return;
  for (std::byte* output : outputs) {
    float first;
    std::memcpy(&first, output, sizeof(first));
    first = first * 1.001F + 0.001F;
    std::memcpy(output, &first, sizeof(first));
  }
}

}  // namespace comm
}  // namespace fleet
