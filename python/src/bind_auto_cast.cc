// SPDX-License-Identifier: Apache-2.0

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "auto_cast.h"
#include "program.h"

namespace fleet::python {

namespace nb = nanobind;

namespace {

using AutoCastRef = std::shared_ptr<const ops::AutoCast>;

// What Python holds. The lists themselves may outlive Python, in a thread that
// left a context open.
struct Lists {
  AutoCastRef what;
};

// A context that was entered. It may be left out of order, and by another
// thread: a generator that holds one ends when it is collected.
struct Entered {
  explicit Entered(AutoCastRef wanted) : what(std::move(wanted)) {}

  const AutoCastRef what;  // null: nothing is cast
  std::atomic<bool> left = false;
};
using EnteredRef = std::shared_ptr<Entered>;

std::vector<EnteredRef>& TheEntered() {
  static thread_local std::vector<EnteredRef> entered;
  return entered;
}

// The last of TheEntered(). Apart from it, because every eager call looks here.
constinit thread_local const Entered* innermost = nullptr;

// Forgets contexts that were left behind the last that was not.
void Settle() {
  std::vector<EnteredRef>& entered = TheEntered();
  while (!entered.empty() && entered.back()->left) entered.pop_back();
  innermost = entered.empty() ? nullptr : entered.back().get();
}

EnteredRef Enter(AutoCastRef what) {
  Settle();
  EnteredRef made = std::make_shared<Entered>(std::move(what));
  TheEntered().push_back(made);
  innermost = made.get();
  return made;
}

}  // namespace

const ops::AutoCast* CurrentAutoCast() {
  if (innermost == nullptr) [[likely]]
    return nullptr;
  if (innermost->left) {
    Settle();
    if (innermost == nullptr) return nullptr;
  }
  return innermost->what.get();
}

void BindAutoCast(nb::module_& m) {
  using program::AmpLevel;
  using program::Precision;
  nb::enum_<Precision>(m, "Precision", "What an op does in mixed precision.")
      .value("unlisted", Precision::kUnlisted)
      .value("white", Precision::kWhite)
      .value("gray", Precision::kGray)
      .value("black", Precision::kBlack)
      .value("black_always", Precision::kBlackAlways);
  nb::enum_<AmpLevel>(m, "AmpLevel", "How far mixed precision goes.")
      .value("O0", AmpLevel::kNone)
      .value("OD", AmpLevel::kWhite)
      .value("O1", AmpLevel::kByList)
      .value("O2", AmpLevel::kAll);
  m.def(
      "op_precisions",
      [] {
        const auto& listed = program::DefinedPrecisions().listed();
        return std::map<std::string, Precision>(listed.begin(), listed.end());
      },
      "What the definitions of ops say; ops in no list are left out.");
  nb::class_<Lists>(m, "AutoCast",
                    "What eager calls cast their inputs to, by lists.")
      .def(
          "__init__",
          [](Lists* self, program::DType dtype, program::AmpLevel level,
             const std::map<std::string, program::Precision>& custom,
             bool promote) {
            new (self) Lists{std::make_shared<const ops::AutoCast>(
                ops::MakeAutoCast(Library().definitions(), dtype, level,
                                  {custom.begin(), custom.end()}, promote))};
          },
          nb::arg("dtype"), nb::arg("level"), nb::arg("custom"),
          nb::arg("promote"));
  nb::class_<Entered>(m, "EnteredAutoCast", "A context that was entered.")
      .def(
          "leave",
          [](Entered& self) {
            self.left = true;
            Settle();
          },
          "Ends it, whichever others were entered since.");
  m.def(
      "enter_auto_cast",
      [](const Lists* lists) {
        return Enter(lists == nullptr ? nullptr : lists->what);
      },
      nb::arg("lists").none(),
      "From now on eager calls of this thread cast by `lists`; None: not at "
      "all.");
}

}  // namespace fleet::python
