// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PYTHON_SRC_PYTHON_BUILDER_H_
#define FLEET_PYTHON_SRC_PYTHON_BUILDER_H_

#include <exception>
#include <utility>

#include "fleet/program/builder.h"

#include "program.h"
#include "status.h"

namespace fleet::python {

// A builder over the programs that Python functions add to, from where they
// are. Functions of fleet/program and fleet/plan that take a builder are called
// with it, so that both languages append the same operations.
class PythonBuilder {
 public:
  PythonBuilder()
      : main_(TheBuilding().main),
        startup_(TheBuilding().startup),
        builder_(*main_->graph, *startup_->graph,
                 {.new_name = NewName,
                  .block = main_->current_block,
                  .append = TheBuilding().options()}) {}
  PythonBuilder(const PythonBuilder&) = delete;
  PythonBuilder& operator=(const PythonBuilder&) = delete;

  program::Builder& operator*() { return builder_; }
  program::Builder* operator->() { return &builder_; }

  // The builder's value for a Variable; TypeError for anything else.
  program::Value ValueOf(nb::handle object);
  // The Variable of a value; None for an empty one.
  nb::object Wrap(const program::Value& value) {
    if (!value) return nb::none();
    return WrapVariable(main_, builder_.block().index(), value.name());
  }
  const ProgramRef& main() const { return main_; }

  // Calls `function`, which may call Python, from inside of a function that
  // works with the builder: what Python functions append then goes where the
  // builder is. What it throws is kept for Check.
  template <class Function>
  Status CallPython(Function function) {
    Building& building = TheBuilding();
    program::AppendOptions& options = building;
    const program::AppendOptions before =
        std::exchange(options, builder_.append_options());
    const int block =
        std::exchange(main_->current_block, builder_.block().index());
    const ProgramRef main = std::exchange(building.main, main_);
    try {
      function();
    } catch (...) {
      thrown_ = std::current_exception();
    }
    building.main = main;
    main_->current_block = block;
    options = before;
    if (thrown_ == nullptr) return OkStatus();
    return Internal("a Python function raised an error");
  }

  // Throws what a Python function threw, or else raises what failed first.
  void Check(const Status& status) {
    if (thrown_ != nullptr) std::rethrow_exception(thrown_);
    ThrowIfError(builder_.status());
    ThrowIfError(status);
  }

 private:
  const ProgramRef main_;
  const ProgramRef startup_;
  program::Builder builder_;
  std::exception_ptr thrown_;
};

}  // namespace fleet::python

#endif  // FLEET_PYTHON_SRC_PYTHON_BUILDER_H_
