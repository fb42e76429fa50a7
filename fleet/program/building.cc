// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/building.h"

#include <cmath>
#include <memory>
#include <utility>
#include <variant>

#include "fleet/base/check.h"
#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

namespace fleet::program {
namespace {

// How many inputs an output adds up, and how many outputs an input reaches.
struct Fans {
  double in = 1;
  double out = 1;
};

Fans FansOf(const Dims& dims) {
  if (dims.empty()) return {};
  const auto size = [&dims](size_t i) { return static_cast<double>(dims[i]); };
  if (dims.size() == 1) return {size(0), size(0)};
  if (dims.size() == 2) return {size(0), size(1)};
  double field = 1;
  for (size_t i = 2; i < dims.size(); ++i) field *= size(i);
  return {size(1) * field, size(0) * field};
}

template <class Xavier>
double XavierDeviation(const Xavier& init, const Dims& dims) {
  const Fans fans = FansOf(dims);
  const double sum =
      init.fan_in.value_or(fans.in) + init.fan_out.value_or(fans.out);
  return sum == 0 ? 0.0 : init.gain * std::sqrt(2.0 / sum);
}

template <class Kaiming>
double KaimingDeviation(const Kaiming& init, const Dims& dims) {
  const double fan = init.fan_in.value_or(FansOf(dims).in);
  return fan == 0 ? 0.0 : init.gain / std::sqrt(fan);
}

// The operation that writes `values`, in the attributes that Paddle has for
// their type.
Operation ConstantOp(const std::string& name, const TensorType& type,
                     std::vector<double> values) {
  Operation op{
      .outputs = {{"Out", {name}}},
      .attrs = {{"shape", {AttrKind::kInts, type.dims}},
                {"dtype", {AttrKind::kInt, static_cast<int64_t>(type.dtype)}}}};
  const bool floating = IsFloating(type.dtype);
  if (type.dtype == DType::kFloat32) {
    for (double& value : values) value = static_cast<float>(value);
  }
  if (values.size() == 1) {
    op.type = "fill_constant";
    if (floating) {
      op.attrs["value"] = {AttrKind::kFloat, values[0]};
    } else {
      op.attrs["str_value"] = {AttrKind::kString,
                               std::to_string(static_cast<int64_t>(values[0]))};
    }
    return op;
  }
  op.type = "assign_value";
  if (floating) {
    op.attrs["fp32_values"] = {AttrKind::kFloats, std::move(values)};
    return op;
  }
  const char* slot = type.dtype == DType::kBool    ? "bool_values"
                     : type.dtype == DType::kInt64 ? "int64_values"
                                                   : "int32_values";
  op.attrs[slot] = {AttrKind::kInts,
                    std::vector<int64_t>(values.begin(), values.end())};
  return op;
}

std::string FileAndLine(const Line& line) {
  std::string_view file = line.file_name();
  if (const size_t slash = file.rfind('/'); slash != file.npos) {
    file.remove_prefix(slash + 1);
  }
  return base::Concat(file, ':', line.line());
}

}  // namespace

const TensorType& Value::type() const {
  static const TensorType none;
  if (building_ == nullptr) return none;
  const Variable* variable = building_->block().Find(name_);
  return variable == nullptr ? none : variable->type;
}

const OpRegistry& AllOps() {
  static const std::unique_ptr<const OpRegistry> ops = [] {
    auto made = std::make_unique<OpRegistry>();
    DefineAllOps(*made);
    return made;
  }();
  return *ops;
}

Building::Building(Program& main, Program& startup, BuildOptions options)
    : main_(&main),
      startup_(&startup),
      program_(&main),
      block_(options.block),
      new_name_(std::move(options.new_name)),
      options_(std::move(options.append)) {
  if (new_name_ == nullptr) {
    new_name_ = [this](const std::string& key) {
      return own_names_.Generate(key);
    };
  }
  if (options.seed != 0) main.random_seed = startup.random_seed = options.seed;
}

void Building::Fail(const Status& status) {
  if (!status_.ok() || status.ok()) return;
  const std::string& line = options_.made_at;
  const bool named = line.empty() || status.message().starts_with(line);
  status_ = named ? status : status.WithContext(line);
}

Value Building::Find(const std::string& name) {
  if (!status_.ok()) return {};
  if (block().Find(name) != nullptr) return {*this, name};
  Fail(NotFound("the program has no variable ", name));
  return {};
}

void Building::Append(Operation op) {
  if (!status_.ok()) return;
  Fail(AppendOperation(AllOps(), block(), std::move(op), options_));
}

std::vector<Values> Building::Call(std::string_view op,
                                   std::vector<Values> inputs, Attrs attrs,
                                   Line at) {
  if (!status_.ok()) return {};
  Scope scope(*this);
  scope.At(at);
  const OpDef* def = AllOps().Find(op);
  if (def == nullptr) {
    Fail(NotFound("there is no op ", op));
    return {};
  }
  FLEET_CHECK_EQ(attrs.size(), def->attrs.size(), op);
  OpCall call{.def = *def, .inputs = {}, .attrs = std::move(attrs)};
  inputs.resize(def->inputs.size());
  for (const Values& slot : inputs) {
    std::vector<std::string>& names = call.inputs.emplace_back();
    for (const Value& value : slot) {
      if (value) names.push_back(value.name());
    }
  }
  Result<Slots> outputs =
      AppendCall(AllOps(), *program_, block_, std::move(call), options_,
                 [this](const std::string& key) { return NewName(key); });
  if (!outputs.ok()) {
    Fail(outputs.status());
    return {};
  }
  std::vector<Values> result;
  for (Slot& slot : *outputs) {
    Values& values = result.emplace_back();
    for (std::string& name : slot.arguments) {
      values.emplace_back(*this, std::move(name));
    }
  }
  return result;
}

std::vector<Values> Building::CallWith(
    std::string_view op, std::vector<Values> inputs,
    const std::map<std::string, Attr, std::less<>>& attrs, Line at) {
  const OpDef* def = AllOps().Find(op);
  if (def == nullptr) {
    Fail(NotFound("there is no op ", op));
    return {};
  }
  Attrs all = def->DefaultAttrs();
  for (const auto& [name, value] : attrs) {
    const int index = def->AttrIndex(name);
    FLEET_CHECK(index >= 0, op, " has no attribute ", name);
    all[static_cast<size_t>(index)] = value;
  }
  return Call(op, std::move(inputs), std::move(all), at);
}

Value Building::NewParameter(const Dims& dims, DType dtype,
                             const ParamAttr& attr,
                             const Initializer& initializer,
                             const std::string& suffix) {
  if (!status_.ok()) return {};
  const std::string name =
      attr.name.empty() ? NewName(options_.owner + '.' + suffix) : attr.name;
  for (int64_t n : dims) {
    if (n >= 0) continue;
    Fail(InvalidArgument("parameter ", name, ": shape ", ToString(dims),
                         " has a negative dimension"));
    return {};
  }
  const TensorType type{dtype, dims};
  Block& global = main_->block(0);
  if (const Variable* found = global.FindHere(name); found != nullptr) {
    if (found->type == type) return {*this, name};
    Fail(InvalidArgument("parameter ", name, ": the program has it as ",
                         ToString(found->type), ", so it cannot be ",
                         ToString(type)));
    return {};
  }
  const Variable parameter{.name = name,
                           .type = type,
                           .persistable = true,
                           .is_parameter = true,
                           .trainable = attr.trainable,
                           .stop_gradient = !attr.trainable};
  global.AddVariable(parameter);
  attrs_[name] = attr;
  if (startup_->block(0).FindHere(name) == nullptr) {
    startup_->block(0).AddVariable(parameter);
    Fill(name, dims, dtype, attr.initializer.value_or(initializer));
  }
  return {*this, name};
}

const ParamAttr* Building::attr_of(const std::string& name) const {
  const auto found = attrs_.find(name);
  return found == attrs_.end() ? nullptr : &found->second;
}

Value Building::Constant(const Dims& dims, DType dtype,
                         std::vector<double> values, Line at) {
  if (!status_.ok()) return {};
  Scope scope(*this);
  scope.At(at);
  const auto count = static_cast<int64_t>(values.size());
  if (count != 1 && count != NumElements(dims)) {
    Fail(InvalidArgument("a constant of shape ", ToString(dims), " is given ",
                         count, " values"));
    return {};
  }
  const std::string name = NewName(NewName("constant") + ".tmp");
  block().AddVariable(
      {.name = name, .type = {dtype, dims}, .stop_gradient = true});
  Append(ConstantOp(name, {dtype, dims}, std::move(values)));
  return {*this, name};
}

Value Building::NewPersistable(const std::string& name, const Dims& dims,
                               DType dtype, double value) {
  if (!status_.ok()) return {};
  const Variable variable{.name = name,
                          .type = {dtype, dims},
                          .persistable = true,
                          .stop_gradient = true};
  main_->block(0).AddVariable(variable);
  if (startup_->block(0).FindHere(name) == nullptr) {
    startup_->block(0).AddVariable(variable);
    Scope scope(*this);
    scope.Role(OpRole::kForward);
    Fill(name, dims, dtype, init::Constant{value});
  }
  return {*this, name};
}

void Building::Fill(const std::string& name, const Dims& dims, DType dtype,
                    const Initializer& initializer) {
  Scope scope(*this);
  scope.Startup(name);
  const Attr shape = dims;
  const Attr type = static_cast<int64_t>(dtype);
  const auto uniform = [&](double low, double high, int64_t seed) {
    CallWith("uniform_random", {},
             {{"shape", shape},
              {"dtype", type},
              {"min", low},
              {"max", high},
              {"seed", seed}});
  };
  const auto normal = [&](const char* op, double mean, double std,
                          int64_t seed) {
    CallWith(op, {},
             {{"shape", shape},
              {"dtype", type},
              {"mean", mean},
              {"std", std},
              {"seed", seed}});
  };
  const auto assign = [&](const init::Assign& given) {
    if (static_cast<int64_t>(given.values.size()) != NumElements(dims)) {
      return Fail(InvalidArgument("parameter ", name, " has shape ",
                                  ToString(dims), ", but is given ",
                                  given.values.size(), " values"));
    }
    Append(ConstantOp(name, {dtype, dims}, given.values));
  };
  std::visit(
      [&]<class Init>(const Init& init) {
        if constexpr (std::is_same_v<Init, init::Constant>) {
          CallWith("fill_constant", {},
                   {{"shape", shape}, {"dtype", type}, {"value", init.value}});
        } else if constexpr (std::is_same_v<Init, init::Uniform>) {
          uniform(init.low, init.high, init.seed);
        } else if constexpr (std::is_same_v<Init, init::Normal>) {
          normal("gaussian_random", init.mean, init.std, init.seed);
        } else if constexpr (std::is_same_v<Init, init::TruncatedNormal>) {
          normal("truncated_gaussian_random", init.mean, init.std, init.seed);
        } else if constexpr (std::is_same_v<Init, init::XavierUniform>) {
          const double limit = std::sqrt(3.0) * XavierDeviation(init, dims);
          uniform(-limit, limit, init.seed);
        } else if constexpr (std::is_same_v<Init, init::XavierNormal>) {
          normal("gaussian_random", 0.0, XavierDeviation(init, dims),
                 init.seed);
        } else if constexpr (std::is_same_v<Init, init::KaimingUniform>) {
          const double limit = std::sqrt(3.0) * KaimingDeviation(init, dims);
          uniform(-limit, limit, init.seed);
        } else if constexpr (std::is_same_v<Init, init::KaimingNormal>) {
          normal("gaussian_random", 0.0, KaimingDeviation(init, dims),
                 init.seed);
        } else {
          assign(init);
        }
      },
      initializer);
}

// ---- Scope

Scope::Scope(Building& building)
    : building_(building),
      program_(building.program_),
      block_(building.block_),
      options_(building.options_) {}

Scope::~Scope() {
  building_.program_ = program_;
  building_.block_ = block_;
  building_.options_ = options_;
}

Scope& Scope::Layer(std::string name) {
  building_.options_.owner = std::move(name);
  return *this;
}

Scope& Scope::Role(OpRole role) {
  building_.options_.role = static_cast<int64_t>(role);
  return *this;
}

Scope& Scope::At(const Line& line) {
  std::string& made_at = building_.options_.made_at;
  if (made_at.empty()) made_at = FileAndLine(line);
  return *this;
}

Scope& Scope::Startup(const std::string& name) {
  building_.program_ = building_.startup_;
  building_.block_ = 0;
  building_.options_.outputs = {name};
  return *this;
}

Scope& Scope::InBlock(int block) {
  building_.block_ = block;
  return *this;
}

}  // namespace fleet::program
