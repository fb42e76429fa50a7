// SPDX-License-Identifier: Apache-2.0

// Ops over bare memory. Where types and shapes are known beforehand, as in a
// plan, a call needs no tensors: its form looks at them once and gives a
// function that works on addresses. The form stands beside the kernel, and both
// call the same arithmetic; KernelTable::OnMemory adds it.
//
//   bool SoftmaxForm(BareCall& c) {
//     const int x = c.In(0), y = c.Out(0);
//     if (!c.AreFloat({x, y})) return false;
//     ...
//     return c.Run({x}, [=](void* const* m) {
//       SoftmaxRows(size, FloatIn(m, x), FloatOut(m, y));
//     });
//   }

#ifndef FLEET_OPS_BARE_H_
#define FLEET_OPS_BARE_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fleet/program/op_def.h"

namespace fleet::ops {

using program::Dims;

// In place of the number of a value: there is none.
inline constexpr int kNone = -1;

// The work of a call, on the address of every value by its number. Throws as
// kernels do. One thread at a time.
using Bare = std::function<void(void* const* memory)>;

inline const float* FloatIn(void* const* memory, int value) {
  return static_cast<const float*>(memory[value]);
}
inline float* FloatOut(void* const* memory, int value) {
  return static_cast<float*>(memory[value]);
}
// Null for an output that nobody wants.
inline float* FloatOutOrNull(void* const* memory, int value) {
  return value == kNone ? nullptr : FloatOut(memory, value);
}

// One call of an op, forward or backward, whose types are known. Values have
// numbers. Dense ones lie in memory one element behind the other.
class BareCall {
 public:
  // All of them outlive the call. `slot_end` says where each slot ends in
  // `inputs`; absent values and unwanted outputs are kNone.
  BareCall(const program::OpDef& def, bool backward,
           const program::Attrs& attrs, std::span<const uint32_t> slot_end,
           std::span<const int> inputs, std::span<const int> outputs)
      : def_(def),
        backward_(backward),
        attrs_(attrs),
        slot_end_(slot_end),
        inputs_(inputs),
        outputs_(outputs) {}
  virtual ~BareCall() = default;

  const program::OpDef& def() const { return def_; }
  bool backward() const { return backward_; }
  // A backward call has the slots that its gradient rule uses and the outputs
  // that it gives.
  size_t num_slots() const { return slot_end_.size(); }
  std::span<const int> inputs() const { return inputs_; }
  std::span<const int> outputs() const { return outputs_; }
  // The first input of a slot; kNone when it is absent.
  int In(size_t slot) const;
  // kNone when nobody wants it.
  int Out(size_t position) const {
    return position < outputs_.size() ? outputs_[position] : kNone;
  }
  template <class T>
  const T& attr(std::string_view name) const {
    return std::get<T>(attrs_[def_.AttrIndex(name)]);
  }
  bool has_attr(std::string_view name) const {
    return def_.AttrIndex(name) >= 0;
  }

  virtual const program::TensorType& type(int value) const = 0;
  // Whether it is an ordinary tensor on the CPU.
  virtual bool IsDense(int value) const = 0;
  // Whether an image [n, c, h, w] was laid in memory as [n, h, w, c], as only
  // rules of images ask for (LayoutRule).
  virtual bool ChannelsLast(int value) const = 0;
  // What all elements of a value are, if that is known already.
  virtual std::optional<float> Constant(int value) const = 0;

  const Dims& dims(int value) const { return type(value).dims; }
  int64_t numel(int value) const;
  bool IsFloat(int value) const {
    return value != kNone && IsDense(value) &&
           type(value).dtype == program::DType::kFloat32;
  }
  // Whether all of these are dense floats; kNone is not one.
  bool AreFloat(std::initializer_list<int> values) const;
  bool AreFloat(std::span<const int> values) const;
  // The same, but kNone is as good.
  bool AreFloatOrNone(std::initializer_list<int> values) const;

  // Whether it holds dense floats in four dimensions, and any at all.
  bool IsImage(int value) const;
  // Whether memory has the channels of [n, c, ...] last: laid so, or the same
  // both ways, with one channel or one element for each.
  bool HasChannelsLast(int value) const;

  // What a form says at its end, and returns: `work` does the call and needs
  // the memory of `reads` (kNone among them is left out) and of no other input.
  // Always true.
  virtual bool Run(std::span<const int> reads, Bare work) = 0;
  bool Run(std::initializer_list<int> reads, Bare work) {
    return Run(std::span(reads.begin(), reads.size()), std::move(work));
  }
  // The output is `number` in all runs, nothing is left to do. False, and
  // nothing is done, where somebody else writes or keeps its memory. For calls
  // with one output.
  virtual bool Fill(int out, float number) = 0;
  // From now on `out` lives in the memory of the input `in`; false, and nothing
  // is done, where that is not possible. Run must follow.
  virtual bool Share(int out, int in) = 0;

 private:
  const program::OpDef& def_;
  const bool backward_;
  const program::Attrs& attrs_;
  std::span<const uint32_t> slot_end_;
  std::span<const int> inputs_;
  std::span<const int> outputs_;
};

// Gives a call its work, and returns true; or returns false and changes nothing
// where types or attributes are others than it takes. Then the kernel runs.
using BareForm = bool (*)(BareCall& call);

// How the images [n, c, h, w] of a call are to lie in memory. A plan that may
// fuse lays them so.
enum class ImageLayout {
  kAsDefined,
  kChannelsLast,  // its form takes no other; the kernel does without
  kAny,           // element by element: as they come, if all of them lie alike
};
using LayoutRule = ImageLayout (*)(const BareCall& call);

}  // namespace fleet::ops

#endif  // FLEET_OPS_BARE_H_
