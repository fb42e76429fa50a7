// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_KERNEL_H_
#define FLEET_OPS_KERNEL_H_

#include <array>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/SmallVector.h>

#include "fleet/ops/bare.h"
#include "fleet/program/op_def.h"

// A kernel is a plain function over tensors:
//
//   at::Tensor Softmax(const at::Tensor& x, int64_t axis);
//   at::Tensor SoftmaxGrad(const at::Tensor& out, const at::Tensor& dout,
//                          int64_t axis);
//
// A forward kernel takes the op's inputs in slot order, then its attributes in
// order. A backward kernel takes what the gradient rule `uses`, in order, then
// the attributes, and returns what it `gives`. KernelTable::Add<Softmax,
// SoftmaxGrad>("softmax") wraps both and checks them against the definition.
//
//   slot      const at::Tensor&; undefined if optional and absent
//   slot*     at::TensorList
//   bool, int, float, string, ints, floats, dtype
//             bool, int64_t, double, const std::string&, at::IntArrayRef,
//             at::ArrayRef<double>, DType
//   result    at::Tensor, std::tuple of at::Tensor, or std::vector<at::Tensor>
//
// Two more may stand anywhere among the parameters: `const Context&`, and in
// backward kernels `GradNeeds`, which says whose gradient is asked for; a
// gradient that is not asked for may be left undefined.

namespace fleet::ops {

using program::Attr;
using program::Attrs;
using program::DType;
using Tensors = c10::SmallVector<at::Tensor, 4>;

// What a process has decided about where and in which type new tensors live.
struct Context {
  at::Device device = at::kCPU;
  DType default_dtype = DType::kFloat32;
};

at::ScalarType ToScalarType(DType dtype);
DType ToDType(at::ScalarType type);

// Which gradients a backward kernel must compute, by position among the tensors
// that it returns; those from the 64th on are always asked for.
class GradNeeds {
 public:
  explicit GradNeeds(uint64_t bits) : bits_(bits) {}
  bool operator[](int i) const { return i >= 64 || ((bits_ >> i) & 1); }

 private:
  uint64_t bits_;
};

struct KernelCall {
  std::span<const at::Tensor> tensors;  // all slots, one after the other
  std::span<const uint32_t> slot_end;   // where each slot ends in `tensors`
  const Attrs& attrs;
  const Context& context;
  GradNeeds needs{~uint64_t{0}};
  Tensors out;
};

using KernelFn = void (*)(KernelCall&);

// What a kernel function takes, for the check against the definition: 't' a
// slot, 'l' a list slot, and b i f s I F d for attributes.
using KernelSignature = std::string;

namespace kernel_internal {

class ArgReader {
 public:
  explicit ArgReader(const KernelCall& call) : call_(call) {}

  template <class T>
  decltype(auto) Next() {
    using Plain = std::remove_cvref_t<T>;
    if constexpr (std::is_same_v<Plain, at::Tensor>) {
      auto slot = NextSlot();
      return slot.empty() ? kAbsent : slot.front();
    } else if constexpr (std::is_same_v<Plain, at::TensorList>) {
      auto slot = NextSlot();
      return at::TensorList(slot.data(), slot.size());
    } else if constexpr (std::is_same_v<Plain, Context>) {
      return (call_.context);
    } else if constexpr (std::is_same_v<Plain, GradNeeds>) {
      return GradNeeds(call_.needs);
    } else if constexpr (std::is_same_v<Plain, DType>) {
      return static_cast<DType>(std::get<int64_t>(NextAttr()));
    } else if constexpr (std::is_same_v<Plain, at::IntArrayRef>) {
      return at::IntArrayRef(std::get<std::vector<int64_t>>(NextAttr()));
    } else if constexpr (std::is_same_v<Plain, at::ArrayRef<double>>) {
      return at::ArrayRef<double>(std::get<std::vector<double>>(NextAttr()));
    } else {
      return (std::get<Plain>(NextAttr()));
    }
  }

 private:
  std::span<const at::Tensor> NextSlot() {
    size_t begin = slot_ == 0 ? 0 : call_.slot_end[slot_ - 1];
    size_t end = call_.slot_end[slot_++];
    return call_.tensors.subspan(begin, end - begin);
  }
  const Attr& NextAttr() { return call_.attrs[attr_++]; }

  static const at::Tensor kAbsent;
  const KernelCall& call_;
  size_t slot_ = 0;
  size_t attr_ = 0;
};

template <class T>
constexpr const char* SignatureLetter() {
  using Plain = std::remove_cvref_t<T>;
  if constexpr (std::is_same_v<Plain, at::Tensor>) return "t";
  if constexpr (std::is_same_v<Plain, at::TensorList>) return "l";
  if constexpr (std::is_same_v<Plain, bool>) return "b";
  if constexpr (std::is_same_v<Plain, int64_t>) return "i";
  if constexpr (std::is_same_v<Plain, double>) return "f";
  if constexpr (std::is_same_v<Plain, std::string>) return "s";
  if constexpr (std::is_same_v<Plain, at::IntArrayRef>) return "I";
  if constexpr (std::is_same_v<Plain, at::ArrayRef<double>>) return "F";
  if constexpr (std::is_same_v<Plain, DType>) return "d";
  return "";
}

inline void Store(Tensors& out, at::Tensor&& result) {
  out.push_back(std::move(result));
}
inline void Store(Tensors& out, std::vector<at::Tensor>&& results) {
  for (at::Tensor& t : results) out.push_back(std::move(t));
}
template <class... T>
void Store(Tensors& out, std::tuple<T...>&& results) {
  std::apply([&](auto&&... t) { (out.push_back(std::move(t)), ...); },
             std::move(results));
}

// Fn is a function or a lambda without captures.
template <auto Fn, class Pointer = decltype(+Fn)>
struct Adapter;

template <auto Fn, class R, class... A>
struct Adapter<Fn, R (*)(A...)> {
  static void Run(KernelCall& call) {
    ArgReader reader(call);
    // Braces fix the order of evaluation, and with it the order of arguments.
    std::tuple<decltype(reader.template Next<A>())...> args{
        reader.template Next<A>()...};
    Store(call.out, std::apply(Fn, std::move(args)));
  }
  static KernelSignature Signature() {
    return (std::string() + ... + SignatureLetter<A>());
  }
};

}  // namespace kernel_internal

// A definition with its kernels, and their forms over bare memory where they
// have some.
struct Op {
  const program::OpDef* def;
  KernelFn forward;
  KernelFn backward;  // nullptr for an op without gradient
  BareForm bare_forward = nullptr;
  BareForm bare_backward = nullptr;
  LayoutRule layout = nullptr;  // none: ImageLayout::kAsDefined

  BareForm bare(bool backward_call) const {
    return backward_call ? bare_backward : bare_forward;
  }
  ImageLayout LayoutOf(const BareCall& call) const {
    return layout == nullptr ? ImageLayout::kAsDefined : layout(call);
  }
};

// All kernels of one process. Filled once, then only read.
class KernelTable {
 public:
  // `registry` must outlive the table.
  explicit KernelTable(const program::OpRegistry& registry)
      : registry_(registry) {}

  // Adds the kernels of an op that the registry defines. Functions that do not
  // fit the definition are a broken invariant and abort.
  template <auto Forward>
  void Add(const char* name) {
    using F = kernel_internal::Adapter<Forward>;
    AddChecked(name, F::Run, F::Signature(), nullptr, "");
  }
  template <auto Forward, auto Backward>
  void Add(const char* name) {
    using F = kernel_internal::Adapter<Forward>;
    using B = kernel_internal::Adapter<Backward>;
    AddChecked(name, F::Run, F::Signature(), B::Run, B::Signature());
  }

  // Adds forms over bare memory to an op that is there (bare.h), and how they
  // want images to lie; nullptr: there is none.
  void OnMemory(std::string_view name, BareForm forward, BareForm backward,
                LayoutRule layout = nullptr);

  const Op* Find(std::string_view name) const;  // nullptr: no such op
  std::vector<const Op*> All() const;           // sorted by name

 private:
  void AddChecked(const char* name, KernelFn forward,
                  const KernelSignature& forward_signature, KernelFn backward,
                  const KernelSignature& backward_signature);

  const program::OpRegistry& registry_;
  std::map<std::string, Op, std::less<>> ops_;
};

}  // namespace fleet::ops

#endif  // FLEET_OPS_KERNEL_H_
