// SPDX-License-Identifier: Apache-2.0

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "auto_cast.h"

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
  nb::class_<Lists>(m, "AutoCast",
                    "What eager calls cast their inputs to, by lists.")
      .def(
          "__init__",
          [](Lists* self, program::DType dtype,
             const std::set<std::string>& white,
             const std::set<std::string>& black) {
            new (self) Lists{std::make_shared<const ops::AutoCast>(
                ops::AutoCast{.dtype = dtype,
                              .white{white.begin(), white.end()},
                              .black{black.begin(), black.end()}})};
          },
          nb::arg("dtype"), nb::arg("white"), nb::arg("black"));
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
