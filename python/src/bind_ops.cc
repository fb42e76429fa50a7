// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "fleet/base/check.h"
#include "fleet/ops/eager/eager.h"
#include "fleet/ops/kernels.h"
#include "fleet/program/dtype.h"

#include "auto_cast.h"
#include "program.h"
#include "status.h"
#include "tensor.h"

namespace fleet::python {
namespace {

using ops::Attr;
using ops::Attrs;
using program::AttrDef;
using program::AttrType;
using program::DType;
using program::OpDef;
using program::SlotDef;

std::string LowerCase(std::string text) {
  for (char& c : text) c = std::tolower(static_cast<unsigned char>(c));
  return text;
}

const char* TypeName(nb::handle object) {
  return Py_TYPE(object.ptr())->tp_name;
}

// Whether every call of this thread compares what its shape rule says with what
// came out.
constinit thread_local bool check_shape_rules = false;

// Name of a slot with its marks: "Bias?", "X*".
std::string Marked(const SlotDef& slot) {
  return slot.name + (slot.optional ? "?" : "") + (slot.variadic ? "*" : "");
}

// An op as a Python callable: inputs in slot order, then attributes, by
// position or by name (slots in lower case).
class OpFunction {
 public:
  explicit OpFunction(const ops::Op& op) : op_(op) {
    for (const SlotDef& slot : op.def->inputs) {
      names_.push_back(nb::str(LowerCase(slot.name).c_str()));
    }
    for (const AttrDef& attr : op.def->attrs) {
      names_.push_back(nb::str(attr.name.c_str()));
    }
    FLEET_CHECK(names_.size() <= kMaxArguments, op.def->name);
    for (nb::str& name : names_) {
      PyObject* interned = name.release().ptr();
      PyUnicode_InternInPlace(&interned);
      name = nb::steal<nb::str>(interned);
    }
  }

  const std::string& name() const { return op_.def->name; }

  // The definition in a line.
  std::string Help() const {
    const OpDef& def = *op_.def;
    std::string slots, attrs, outputs;
    for (const SlotDef& slot : def.inputs) AddTo(slots, Marked(slot));
    for (const AttrDef& attr : def.attrs) AddTo(attrs, attr.name);
    for (const SlotDef& slot : def.outputs) AddTo(outputs, Marked(slot));
    return base::Concat(def.name, "(", slots, attrs.empty() ? "" : "; ", attrs,
                        ") -> ", outputs);
  }

  // As inspect.signature() gives it.
  nb::object Signature() const {
    const OpDef& def = *op_.def;
    nb::module_ inspect = nb::module_::import_("inspect");
    nb::object parameter = inspect.attr("Parameter");
    nb::object kind = parameter.attr("POSITIONAL_OR_KEYWORD");
    nb::list parameters;
    for (size_t i = 0; i < names_.size(); ++i) {
      const bool is_input = i < def.inputs.size();
      nb::object initial = parameter.attr("empty");
      if (is_input && def.inputs[i].optional) initial = nb::none();
      if (!is_input && !def.attrs[i - def.inputs.size()].required) {
        initial = Default(def.attrs[i - def.inputs.size()]);
      }
      parameters.append(
          parameter(names_[i], kind, nb::arg("default") = initial));
    }
    // Some definitions have what must be given behind what may be left out.
    return inspect.attr("Signature")(
        parameters, nb::arg("__validate_parameters__") = false);
  }

  nb::object Call(const nb::args& args, const nb::kwargs& kwargs) const {
    const OpDef& def = *op_.def;
    Given given{};
    size_t num_args = PyTuple_GET_SIZE(args.ptr());
    if (num_args > names_.size()) {
      Fail("takes at most ", names_.size(), " arguments, but got ", num_args);
    }
    for (size_t i = 0; i < num_args; ++i) {
      given[i] = PyTuple_GET_ITEM(args.ptr(), i);
    }
    if (kwargs.is_valid() && PyDict_GET_SIZE(kwargs.ptr()) > 0) {
      TakeKeywords(kwargs, given);
    }
    if (building_.on && BuildsProgram(given)) return Append(given);

    c10::SmallVector<at::Tensor, 6> inputs;
    c10::SmallVector<uint32_t, 8> ends;
    for (size_t i = 0; i < def.inputs.size(); ++i) {
      TakeInput(def.inputs[i], given[i], inputs);
      ends.push_back(inputs.size());
    }
    // Only a variable of a program has no value.
    for (const at::Tensor& input : inputs) {
      if (!input.defined()) return Append(given);
    }
    Attrs attrs;
    attrs.reserve(def.attrs.size());
    for (size_t i = 0; i < def.attrs.size(); ++i) {
      attrs.push_back(TakeAttr(def.attrs[i], given[def.inputs.size() + i]));
    }

    if (const ops::AutoCast* auto_cast = CurrentAutoCast()) {
      ThrowIfError(ops::CastInputs(*auto_cast, *Library().Find("cast"), op_,
                                   inputs, ends, DefaultContext()));
    }
    Attrs kept;
    if (check_shape_rules) kept = attrs;
    auto run = [&] {
      nb::gil_scoped_release release;
      return ops::RunEager(op_, inputs, ends, std::move(attrs),
                           DefaultContext());
    };
    ops::Tensors outputs = ValueOrThrow(run());
    if (check_shape_rules) CheckShapeRule(inputs, ends, kept, outputs);
    return Wrap(std::move(outputs));
  }

 private:
  static void AddTo(std::string& list, const std::string& item) {
    if (!list.empty()) list += ", ";
    list += item;
  }

  static nb::object Default(const AttrDef& attr) {
    if (attr.type == AttrType::kDType) {
      return nb::cast(static_cast<DType>(std::get<int64_t>(attr.initial)));
    }
    return std::visit([](const auto& value) { return nb::cast(value); },
                      attr.initial);
  }

  static constexpr size_t kMaxArguments = 32;
  using Given = std::array<PyObject*, kMaxArguments>;  // nullptr: not given

  // In static mode everything but what has values already: ops on Tensors alone
  // are computed at once, and a program takes the result as a constant.
  bool BuildsProgram(const Given& given) const {
    bool any = false;
    for (size_t i = 0; i < op_.def->inputs.size(); ++i) {
      PyObject* object = given[i];
      if (object == nullptr || object == Py_None) continue;
      if (const at::Tensor* tensor = AsTensor(object)) {
        if (!tensor->defined()) return true;
        any = true;
      } else if (PyList_Check(object) || PyTuple_Check(object)) {
        for (nb::handle item : nb::handle(object)) {
          const at::Tensor* one = AsTensor(item);
          if (one != nullptr && !one->defined()) return true;
          any = true;
        }
      }
    }
    return !any;
  }

  // The op as an operation at the end of the current block.
  nb::object Append(const Given& given) const {
    program::OpCall call{.def = *op_.def, .inputs = {}, .attrs = {}};
    const size_t num_inputs = call.def.inputs.size();
    for (size_t i = 0; i < num_inputs; ++i) {
      call.inputs.push_back(Names(call.def.inputs[i], given[i]));
    }
    for (size_t i = 0; i < call.def.attrs.size(); ++i) {
      call.attrs.push_back(TakeAttr(call.def.attrs[i], given[num_inputs + i]));
    }
    StaticProgram& program = *building_.main;
    return WrapVariables(ValueOrThrow(program::AppendCall(
        Library().definitions(), *program.graph, program.current_block,
        std::move(call), building_.options(), NewName)));
  }

  // The names of the variables in `object`; Tensors become constants.
  std::vector<std::string> Names(const SlotDef& slot, PyObject* object) const {
    if (object == nullptr || object == Py_None) {
      if (!slot.optional) {
        Fail("argument '", LowerCase(slot.name), "' is missing");
      }
      return {};
    }
    if (!slot.variadic) return {NameOf(slot, object)};
    nb::object items = nb::steal(PySequence_Fast(object, ""));
    if (!items.is_valid() || AsTensor(object) != nullptr) {
      PyErr_Clear();
      Fail("argument '", LowerCase(slot.name),
           "' must be a list of Tensors, but got ", TypeName(object));
    }
    std::vector<std::string> names;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i) {
      names.push_back(NameOf(slot, PySequence_Fast_GET_ITEM(items.ptr(), i)));
    }
    return names;
  }

  std::string NameOf(const SlotDef& slot, PyObject* object) const {
    const at::Tensor& tensor = TensorArgument(slot, object);
    if (tensor.defined()) return AddConstant(tensor);
    return nb::inst_ptr<Variable>(object)->name;
  }

  nb::object WrapVariables(const program::Slots& outputs) const {
    const ProgramRef& program = building_.main;
    auto wrap = [&](const std::string& name) {
      return WrapVariable(program, program->current_block, name);
    };
    const OpDef& def = *op_.def;
    if (def.outputs.size() == 1 && !def.outputs[0].variadic) {
      return wrap(outputs[0].arguments[0]);
    }
    nb::list result;
    for (size_t i = 0; i < def.outputs.size(); ++i) {
      if (!def.outputs[i].variadic) {
        result.append(wrap(outputs[i].arguments[0]));
        continue;
      }
      nb::list items;
      for (const std::string& name : outputs[i].arguments) {
        items.append(wrap(name));
      }
      if (def.outputs.size() == 1) return items;
      result.append(items);
    }
    return nb::tuple(result);
  }

  template <class... Parts>
  [[noreturn]] void Fail(const Parts&... parts) const {
    std::string text = base::Concat(name(), "(): ", parts...);
    PyErr_SetString(PyExc_TypeError, text.c_str());
    throw nb::python_error();
  }

  void TakeKeywords(const nb::kwargs& kwargs, Given& given) const {
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(kwargs.ptr(), &position, &key, &value)) {
      int index = FindName(key);
      if (index < 0) {
        if (PyUnicode_CompareWithASCIIString(key, "name") == 0) continue;
        Fail("unknown argument '", PyUnicode_AsUTF8(key), "'");
      }
      if (given[index] != nullptr) {
        Fail("got two values for argument '", PyUnicode_AsUTF8(key), "'");
      }
      given[index] = value;
    }
  }

  int FindName(PyObject* key) const {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i].ptr() == key) return i;
    }
    for (size_t i = 0; i < names_.size(); ++i) {
      if (PyUnicode_Compare(names_[i].ptr(), key) == 0) return i;
    }
    return -1;
  }

  void TakeInput(const SlotDef& slot, PyObject* object,
                 c10::SmallVector<at::Tensor, 6>& inputs) const {
    if (object == nullptr || object == Py_None) {
      if (!slot.optional) {
        Fail("argument '", LowerCase(slot.name), "' is missing");
      }
      return;
    }
    if (!slot.variadic) {
      inputs.push_back(TensorArgument(slot, object));
      return;
    }
    nb::object items = nb::steal(PySequence_Fast(object, ""));
    if (!items.is_valid() || AsTensor(object) != nullptr) {
      PyErr_Clear();
      Fail("argument '", LowerCase(slot.name),
           "' must be a list of Tensors, but got ", TypeName(object));
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i) {
      inputs.push_back(
          TensorArgument(slot, PySequence_Fast_GET_ITEM(items.ptr(), i)));
    }
  }

  const at::Tensor& TensorArgument(const SlotDef& slot,
                                   PyObject* object) const {
    const at::Tensor* tensor = AsTensor(object);
    if (tensor == nullptr) {
      Fail("argument '", LowerCase(slot.name), "' must be a Tensor, but got ",
           TypeName(object));
    }
    return *tensor;
  }

  Attr TakeAttr(const AttrDef& attr, PyObject* object) const {
    if (object == nullptr || (object == Py_None && !attr.required)) {
      if (attr.required) Fail("argument '", attr.name, "' is missing");
      return attr.initial;
    }
    switch (attr.type) {
      case AttrType::kBool: {
        int value = PyObject_IsTrue(object);
        if (value < 0) throw nb::python_error();
        return value != 0;
      }
      case AttrType::kInt:
        return Integer(attr, object);
      case AttrType::kFloat:
        return Float(attr, object);
      case AttrType::kString:
        if (!PyUnicode_Check(object)) Wrong(attr, "a string", object);
        return std::string(PyUnicode_AsUTF8(object));
      case AttrType::kInts:
        return List<int64_t>(attr, object, &OpFunction::Integer);
      case AttrType::kFloats:
        return List<double>(attr, object, &OpFunction::Float);
      case AttrType::kDType:
        return static_cast<int64_t>(nb::cast<DType>(nb::handle(object)));
    }
    return false;
  }

  [[noreturn]] void Wrong(const AttrDef& attr, const char* wanted,
                          PyObject* object) const {
    Fail("argument '", attr.name, "' must be ", wanted, ", but got ",
         TypeName(object));
  }

  int64_t Integer(const AttrDef& attr, PyObject* object) const {
    nb::object index = nb::steal(PyNumber_Index(object));
    if (!index.is_valid()) {
      PyErr_Clear();
      const at::Tensor* tensor = AsTensor(object);
      if (tensor != nullptr && tensor->numel() == 1) {
        return tensor->item().toLong();
      }
      Wrong(attr, "an integer", object);
    }
    int overflow = 0;
    int64_t value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
    if (overflow != 0) {
      std::string text = base::Concat(name(), "(): argument '", attr.name,
                                      "' does not fit into 64 bits");
      PyErr_SetString(PyExc_OverflowError, text.c_str());
      throw nb::python_error();
    }
    return value;
  }

  double Float(const AttrDef& attr, PyObject* object) const {
    double value = PyFloat_AsDouble(object);
    if (value == -1.0 && PyErr_Occurred()) {
      PyErr_Clear();
      Wrong(attr, "a number", object);
    }
    return value;
  }

  template <class T>
  std::vector<T> List(const AttrDef& attr, PyObject* object,
                      T (OpFunction::*one)(const AttrDef&, PyObject*)
                          const) const {
    nb::object items;
    if (!PyUnicode_Check(object))
      items = nb::steal(PySequence_Fast(object, ""));
    if (!items.is_valid()) {
      PyErr_Clear();
      return {(this->*one)(attr, object)};
    }
    std::vector<T> values;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i) {
      values.push_back(
          (this->*one)(attr, PySequence_Fast_GET_ITEM(items.ptr(), i)));
    }
    return values;
  }

  // Whether a size of an input says how many outputs there are, or how many
  // dimensions one has: programs must know it.
  bool CountsDimensions(const SlotDef& slot, size_t rank, size_t i) const {
    if (slot.name == "ShapeTensor" || slot.name == "RepeatTimes") return true;
    if (name() == "squeeze2" || name() == "unstack") return true;
    return name() == "gather_nd" && slot.name == "Index" && i + 1 == rank;
  }

  // The shape rule and the kernel are written apart; tests compare them.
  void CheckShapeRule(std::span<const at::Tensor> inputs,
                      std::span<const uint32_t> ends, const Attrs& attrs,
                      std::span<const at::Tensor> outputs) const {
    std::vector<std::vector<program::TensorType>> types(ends.size());
    size_t next = 0;
    for (size_t slot = 0; slot < ends.size(); ++slot) {
      for (; next < ends[slot]; ++next) {
        types[slot].push_back(TypeOf(inputs[next]));
      }
    }
    CompareShapeRule(types, attrs, outputs);
    // What a program does not know yet, the size of a batch above all, must not
    // make the rule refuse what is right, nor promise something else.
    std::vector<std::vector<program::TensorType>> batch = types;
    for (size_t slot = 0; slot < types.size(); ++slot) {
      for (size_t k = 0; k < types[slot].size(); ++k) {
        program::Dims& dims = types[slot][k].dims;
        for (size_t i = 0; i < dims.size(); ++i) {
          if (CountsDimensions(op_.def->inputs[slot], dims.size(), i)) continue;
          if (i == 0) batch[slot][k].dims[i] = -1;
          int64_t& size = dims[i];
          const int64_t known = std::exchange(size, -1);
          CompareShapeRule(types, attrs, outputs);
          size = known;
        }
      }
    }
    CompareShapeRule(batch, attrs, outputs);
  }

  void CompareShapeRule(
      const std::vector<std::vector<program::TensorType>>& types,
      const Attrs& attrs, std::span<const at::Tensor> outputs) const {
    program::OpTypes call(*op_.def, types, attrs);
    auto inferred = ValueOrThrow(op_.def->InferTypes(call));
    bool same = inferred.size() == outputs.size();
    for (size_t i = 0; same && i < outputs.size(); ++i) {
      same = !outputs[i].defined() || Fits(inferred[i], TypeOf(outputs[i]));
    }
    if (same) return;
    std::vector<program::TensorType> found, given;
    for (const at::Tensor& out : outputs) {
      found.push_back(out.defined() ? TypeOf(out) : program::TensorType());
    }
    for (const auto& slot : types) {
      given.insert(given.end(), slot.begin(), slot.end());
    }
    std::string text =
        base::Concat(name(), ": of ", Listed(given), " the shape rule makes ",
                     Listed(inferred), ", the kernel ", Listed(found));
    PyErr_SetString(PyExc_AssertionError, text.c_str());
    throw nb::python_error();
  }

  static std::string Listed(const std::vector<program::TensorType>& types) {
    std::string text;
    for (const program::TensorType& type : types) {
      if (!text.empty()) text.append(", ");
      text.append(program::ToString(type));
    }
    return text;
  }

  static program::TensorType TypeOf(const at::Tensor& tensor) {
    return {ops::ToDType(tensor.scalar_type()), tensor.sizes().vec()};
  }

  // A dimension of -1 fits all.
  static bool Fits(const program::TensorType& rule,
                   const program::TensorType& found) {
    bool fits =
        rule.dtype == found.dtype && rule.dims.size() == found.dims.size();
    for (size_t i = 0; fits && i < rule.dims.size(); ++i) {
      fits = rule.dims[i] == -1 || rule.dims[i] == found.dims[i];
    }
    return fits;
  }

  static nb::object WrapOne(at::Tensor&& value) {
    if (!value.defined()) return nb::none();
    return nb::cast(Tensor{std::move(value)});
  }

  // One tensor, or a list for a list slot, or a tuple of slots.
  nb::object Wrap(ops::Tensors&& outputs) const {
    const OpDef& def = *op_.def;
    if (def.outputs.size() == 1 && !def.outputs[0].variadic) {
      return WrapOne(std::move(outputs[0]));
    }
    nb::list result;
    size_t next = 0;
    for (const SlotDef& slot : def.outputs) {
      if (!slot.variadic) {
        result.append(WrapOne(std::move(outputs[next++])));
        continue;
      }
      nb::list items;
      size_t end = outputs.size() - (def.outputs.size() - 1) + next;
      while (next < end) items.append(WrapOne(std::move(outputs[next++])));
      if (def.outputs.size() == 1) return items;
      result.append(items);
    }
    return nb::tuple(result);
  }

  const ops::Op& op_;
  Building& building_ = TheBuilding();
  std::vector<nb::str> names_;  // inputs, then attributes
};

nb::list Marked(const std::vector<SlotDef>& slots) {
  nb::list names;
  for (const SlotDef& slot : slots) names.append(Marked(slot));
  return names;
}

nb::dict Definitions() {
  nb::dict all;
  for (const OpDef* def : Library().definitions().All()) {
    nb::list attrs, gradients;
    for (const AttrDef& attr : def->attrs) attrs.append(attr.name);
    for (int slot : def->grad.gives) gradients.append(def->inputs[slot].name);
    nb::dict one;
    one["inputs"] = Marked(def->inputs);
    one["attrs"] = attrs;
    one["outputs"] = Marked(def->outputs);
    one["gradients"] = gradients;
    all[def->name.c_str()] = one;
  }
  return all;
}

}  // namespace

void BindOps(nb::module_& m) {
  nb::class_<OpFunction>(m, "Op",
                         "An operation, callable on tensors. Made from its "
                         "definition in fleet/program.")
      .def("__call__", &OpFunction::Call)
      .def_prop_ro("name", &OpFunction::name)
      .def_prop_ro("__doc__", &OpFunction::Help)
      .def_prop_ro("__signature__", &OpFunction::Signature)
      .def("__repr__",
           [](const OpFunction& f) { return "<op " + f.name() + ">"; });
  m.def("check_shape_rules", [](bool on) { check_shape_rules = on; });
  m.def("op_definitions", &Definitions,
        "All ops, also those that only programs hold, by name: inputs, "
        "attributes, outputs, and the inputs that have gradients.");
  nb::dict table;
  for (const ops::Op* op : Library().All()) {
    table[op->def->name.c_str()] = nb::cast(OpFunction(*op));
  }
  m.attr("ops") = table;
}

}  // namespace fleet::python
