// SPDX-License-Identifier: Apache-2.0

// What all functions of the builder (builder.h) stand on: the programs, the
// place where the next operation goes, and values, which are variables that the
// builder has made.

#ifndef FLEET_PROGRAM_BUILDING_H_
#define FLEET_PROGRAM_BUILDING_H_

#include <map>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/program/append.h"
#include "fleet/program/op_def.h"
#include "fleet/program/op_role.h"
#include "fleet/program/param_attr.h"
#include "fleet/program/program.h"
#include "fleet/program/unique_names.h"

namespace fleet::program {

class Building;

// The user's line; functions of the builder take it by themselves, and errors
// name it.
using Line = std::source_location;

// A variable of a program that is being built. An empty value stands for an
// optional input that is left out, and for what could not be made. Its builder
// must outlive it.
class Value final {
 public:
  Value() = default;
  Value(Building& building, std::string name)
      : building_(&building), name_(std::move(name)) {}

  explicit operator bool() const { return !name_.empty(); }
  const std::string& name() const { return name_; }
  // Of an empty value: float32 without dimensions.
  const TensorType& type() const;
  DType dtype() const { return type().dtype; }
  const Dims& dims() const { return type().dims; }
  // The builder that made it; null for an empty value.
  Building* building() const { return building_; }

 private:
  Building* building_ = nullptr;
  std::string name_;
};
using Values = std::vector<Value>;

// All ops that Fleet defines; made at the first call, then only read.
const OpRegistry& AllOps();

struct BuildOptions {
  // The seed of random operations of both programs; 0 leaves theirs.
  int64_t seed = 0;
  // Makes new names, to go on with those of another builder; empty: they begin
  // with number 0.
  NameMaker new_name = {};
  // The block of the main program that operations are added to, and what they
  // say of themselves.
  int block = 0;
  AppendOptions append = {};
};

// The programs that are built, and where and as what operations are added. One
// thread at a time.
//
// The first failure stays: functions then do nothing and return empty values,
// so that one look at status() after the last call is enough.
class Building {
 public:
  // Both programs must outlive the builder. Operations are added after those
  // that are there.
  Building(Program& main, Program& startup, BuildOptions options = {});
  Building(const Building&) = delete;
  Building& operator=(const Building&) = delete;

  // The first failure; names the user's line, the op, and the shapes.
  const Status& status() const { return status_; }
  // The same, and building goes on as if it had not failed.
  Status TakeStatus() { return std::exchange(status_, OkStatus()); }
  // Fails with `status`, unless something has failed already.
  void Fail(const Status& status);

  Program& main() { return *main_; }
  Program& startup() { return *startup_; }
  // Where operations are added: block() of program().
  Program& program() { return *program_; }
  Block& block() { return program_->block(block_); }
  // What operations that are added now say of themselves.
  const AppendOptions& append_options() const { return options_; }
  // The variable behind a value that is not empty.
  Variable& VariableOf(const Value& value) {
    return *block().Find(value.name());
  }

  // A name that begins with `key` and occurs once: fc_0.
  std::string NewName(const std::string& key) { return new_name_(key); }
  // The variable of that name that the current block sees; NotFound without.
  Value Find(const std::string& name);

  // Appends one operation as it is given. Its outputs may be variables that are
  // there already. FailedPrecondition etc. are kept in status().
  void Append(Operation op);
  // Calls an op by name: inputs by slot, attributes in the order of the
  // definition. Returns its outputs by slot, which are empty after a failure.
  std::vector<Values> Call(std::string_view op, std::vector<Values> inputs,
                           Attrs attrs, Line at = Line::current());
  // The same with attributes by name; others have their defaults.
  std::vector<Values> CallWith(
      std::string_view op, std::vector<Values> inputs,
      const std::map<std::string, Attr, std::less<>>& attrs,
      Line at = Line::current());

  // A new parameter of the main program, which the startup program fills; the
  // one that has its name already, if type and shape are equal. `initializer`
  // counts where `attr` has none. The parameter of layer fc_0 is called
  // fc_0.w_0, or fc_0.b_0 if `suffix` is "b".
  Value NewParameter(const Dims& dims, DType dtype, const ParamAttr& attr,
                     const Initializer& initializer, const std::string& suffix);
  // What was said about the parameter `name`; null for other variables.
  const ParamAttr* attr_of(const std::string& name) const;
  // A variable of the current block with these values; one value fills all of
  // `dims` or there are as many as it has elements.
  Value Constant(const Dims& dims, DType dtype, std::vector<double> values,
                 Line at = Line::current());
  // A variable that lives longer than a step and that the startup program
  // fills with `value`: the state of an optimizer, a learning rate, a count.
  Value NewPersistable(const std::string& name, const Dims& dims, DType dtype,
                       double value);

 protected:
  // Outputs of a call, where a slot has one.
  static Value One(const std::vector<Values>& outputs, size_t slot) {
    return slot < outputs.size() && !outputs[slot].empty() ? outputs[slot][0]
                                                           : Value();
  }
  static Values Many(std::vector<Values>& outputs, size_t slot) {
    return slot < outputs.size() ? std::move(outputs[slot]) : Values();
  }

 private:
  friend class Scope;
  void Fill(const std::string& name, const Dims& dims, DType dtype,
            const Initializer& initializer);

  Program* main_;
  Program* startup_;
  Program* program_;
  int block_ = 0;
  UniqueNames own_names_;
  NameMaker new_name_;
  AppendOptions options_;
  std::map<std::string, ParamAttr> attrs_;
  Status status_;
};

// What holds for the operations that are added while it lives. Scopes end in
// the reverse order of their beginning.
class [[nodiscard]] Scope final {
 public:
  explicit Scope(Building& building);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  // Outputs are named after the layer: fc_0.tmp_0.
  Scope& Layer(std::string name);
  Scope& Role(OpRole role);
  // The user's line, unless one that encloses it is known.
  Scope& At(const Line& line);
  // Adds to block 0 of the startup program; the first output is called `name`.
  Scope& Startup(const std::string& name);
  // Adds to a block of the program.
  Scope& InBlock(int block);

 private:
  Building& building_;
  Program* const program_;
  const int block_;
  const AppendOptions options_;
};

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_BUILDING_H_
