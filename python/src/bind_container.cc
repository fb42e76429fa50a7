// SPDX-License-Identifier: Apache-2.0

// The files of paddle.save (fleet/saved/container.h): Python's objects as their
// values. What numpy knows of, arrays and Tensors, is asked of Python by two
// functions, once for each.

#include <complex>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "fleet/base/status.h"
#include "fleet/saved/container.h"
#include "fleet/saved/value.h"

#include "buffer.h"
#include "status.h"

namespace nb = nanobind;

namespace fleet::python {
namespace {

using saved::Blob;
using saved::BlobId;
using saved::ContainerReader;
using saved::ContainerWriter;
using saved::Value;

// A tuple in a key may hold a tuple.
constexpr int kMaxKeyDepth = 2;

nb::object Checked(PyObject* made) {
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

std::string Utf8(nb::handle text) {
  const nb::object bytes =
      Checked(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogatepass"));
  return {PyBytes_AS_STRING(bytes.ptr()),
          static_cast<size_t>(PyBytes_GET_SIZE(bytes.ptr()))};
}

nb::object TextOf(const std::string& utf8) {
  return Checked(PyUnicode_DecodeUTF8(
      utf8.data(), static_cast<Py_ssize_t>(utf8.size()), "surrogatepass"));
}

// None, a bool, an int, a float or a str, and no subclass of them. False for
// anything else.
bool TakePlain(nb::handle object, Value* value) {
  PyObject* const o = object.ptr();
  if (o == Py_None) {
    *value = Value();
  } else if (PyBool_Check(o)) {
    value->held = o == Py_True;
  } else if (PyLong_CheckExact(o)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow == 0) {
      value->held = static_cast<int64_t>(number);
    } else {
      value->held = saved::BigInteger{Utf8(Checked(PyObject_Str(o)))};
    }
  } else if (PyFloat_CheckExact(o)) {
    value->held = PyFloat_AS_DOUBLE(o);
  } else if (PyUnicode_CheckExact(o)) {
    value->held = Utf8(object);
  } else {
    return false;
  }
  return true;
}

// One object on its way into a file.
class ObjectWriter final {
 public:
  // `append` takes the file piece by piece. `leaf(object, path)` gives kind,
  // element type, shape, name and memory of an array, number of numpy's or
  // Tensor, and raises TypeError for anything else.
  ObjectWriter(const nb::callable& append, const nb::callable& leaf)
      : leaf_(leaf), writer_([append](std::span<const std::byte> bytes) {
          append(Checked(PyMemoryView_FromMemory(
              const_cast<char*>(reinterpret_cast<const char*>(bytes.data())),
              static_cast<Py_ssize_t>(bytes.size()), PyBUF_READ)));
          return OkStatus();
        }) {}

  void Write(nb::handle object) {
    ThrowIfError(writer_.Finish(ValueOf(object, "obj", 0)));
  }

 private:
  Value ValueOf(nb::handle object, const std::string& path, int depth) {
    Value value;
    if (TakePlain(object, &value)) return value;
    PyObject* const o = object.ptr();
    if (PyBytes_CheckExact(o)) {
      const Buffer bytes(object);
      return Value(ValueOrThrow(writer_.Add(Blob{}, bytes.bytes())));
    }
    if (PyComplex_CheckExact(o)) {
      const Py_complex number = PyComplex_AsCComplex(o);
      return Value(std::complex<double>(number.real, number.imag));
    }
    if (PyList_CheckExact(o) || PyTuple_CheckExact(o) || PyDict_Check(o)) {
      return ContainerOf(object, path, depth);
    }
    const auto known = leaves_.find(o);
    if (known != leaves_.end()) return Value(known->second);
    const BlobId id = LeafOf(object, path);
    leaves_.emplace(o, id);
    kept_.push_back(nb::borrow(object));
    return Value(id);
  }

  Value ContainerOf(nb::handle object, const std::string& path, int depth) {
    if (!open_.insert(object.ptr()).second) {
      throw nb::value_error(
          base::Concat("paddle.save: ", path, " contains itself").c_str());
    }
    if (depth >= saved::kMaxContainerDepth) {
      throw nb::value_error(
          base::Concat("paddle.save: ", path, " is nested too deeply").c_str());
    }
    Value value;
    if (PyDict_Check(object.ptr())) {
      value.held = DictOf(object, path, depth);
    } else {
      saved::List items;
      for (nb::handle item : object) {
        const std::string at = base::Concat(path, "[", items.size(), "]");
        items.push_back(ValueOf(item, at, depth + 1));
      }
      if (PyList_Check(object.ptr())) {
        value.held = std::move(items);
      } else {
        value.held = saved::Tuple{std::move(items)};
      }
    }
    open_.erase(object.ptr());
    return value;
  }

  saved::Dict DictOf(nb::handle object, const std::string& path, int depth) {
    saved::Dict dict;
    dict.ordered = nb::isinstance(object, ordered_);
    for (nb::handle item : object.attr("items")()) {
      const nb::object key = item[0];
      const std::string at = base::Concat(path, "[", Utf8(nb::repr(key)), "]");
      Value key_value = KeyOf(key, path, 0);
      dict.items.emplace_back(std::move(key_value),
                              ValueOf(item[1], at, depth + 1));
    }
    return dict;
  }

  Value KeyOf(nb::handle key, const std::string& path, int depth) {
    Value value;
    if (TakePlain(key, &value)) return value;
    if (PyTuple_CheckExact(key.ptr()) && depth < kMaxKeyDepth) {
      saved::Tuple parts;
      for (nb::handle part : key) {
        parts.items.push_back(KeyOf(part, path, depth + 1));
      }
      value.held = std::move(parts);
      return value;
    }
    throw nb::type_error(
        base::Concat("paddle.save: ", path, " has a key of type ",
                     Utf8(key.type().attr("__qualname__")),
                     ", and only strings, numbers, None and tuples of them can "
                     "be keys")
            .c_str());
  }

  BlobId LeafOf(nb::handle object, const std::string& path) {
    const auto told = nb::cast<nb::tuple>(leaf_(object, TextOf(path)));
    Blob blob;
    blob.kind = static_cast<Blob::Kind>(nb::cast<int>(told[0]));
    blob.element = nb::cast<std::string>(told[1]);
    blob.shape = nb::cast<std::vector<int64_t>>(told[2]);
    blob.name = Utf8(told[3]);
    const Buffer memory(told[4]);
    return ValueOrThrow(writer_.Add(blob, memory.bytes()));
  }

  const nb::callable leaf_;
  const nb::object ordered_ =
      nb::module_::import_("collections").attr("OrderedDict");
  ContainerWriter writer_;
  // An object that stands in several places is written once.
  std::unordered_map<PyObject*, BlobId> leaves_;
  std::vector<nb::object> kept_;        // so that no address is used twice
  std::unordered_set<PyObject*> open_;  // the containers around the present one
};

// One object out of a file.
class ObjectReader final {
 public:
  // `leaf(kind, element, shape, name, memory)` makes an array, number of
  // numpy's or Tensor of memory that is its own.
  ObjectReader(const ContainerReader& reader, const nb::callable& leaf)
      : reader_(reader), leaf_(leaf) {}

  nb::object Read() { return ObjectOf(reader_.root()); }

 private:
  nb::object ObjectOf(const Value& value) {
    return std::visit([this](const auto& held) { return Made(held); },
                      value.held);
  }

  nb::object Made(std::monostate) { return nb::none(); }
  nb::object Made(bool held) { return nb::bool_(held); }
  nb::object Made(int64_t held) { return nb::int_(held); }
  nb::object Made(double held) { return nb::float_(held); }
  nb::object Made(const saved::BigInteger& held) {
    return Checked(PyLong_FromString(held.digits.c_str(), nullptr, 10));
  }
  nb::object Made(const std::complex<double>& held) {
    return Checked(PyComplex_FromDoubles(held.real(), held.imag()));
  }
  nb::object Made(const std::string& held) { return TextOf(held); }
  nb::object Made(const saved::List& held) {
    nb::list list;
    for (const Value& item : held) list.append(ObjectOf(item));
    return list;
  }
  nb::object Made(const saved::Tuple& held) {
    return nb::tuple(Made(held.items));
  }
  nb::object Made(const saved::Dict& held) {
    nb::object dict =
        held.ordered ? nb::module_::import_("collections").attr("OrderedDict")()
                     : nb::object(nb::dict());
    for (const auto& [key, value] : held.items) {
      dict[ObjectOf(key)] = ObjectOf(value);
    }
    return dict;
  }
  nb::object Made(BlobId id) {
    nb::object& object = blobs_[static_cast<uint32_t>(id)];
    if (!object.is_valid()) object = LeafOf(id);
    return object;
  }

  nb::object LeafOf(BlobId id) {
    const Blob& blob = reader_.blob(id);
    const uint64_t byte_size = reader_.byte_size(id);
    if (blob.kind == Blob::Kind::kBytes) {
      nb::object bytes = Checked(PyBytes_FromStringAndSize(
          nullptr, static_cast<Py_ssize_t>(byte_size)));
      auto* const into =
          reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes.ptr()));
      ThrowIfError(reader_.Read(id, {into, byte_size}));
      return bytes;
    }
    // numpy does not clear the memory first, and it can be written to.
    const nb::object memory = empty_(byte_size, "u1");
    {
      const Buffer buffer(memory, Buffer::Access::kWrite);
      ThrowIfError(reader_.Read(id, buffer.writable()));
    }
    return leaf_(static_cast<int>(blob.kind), blob.element, blob.shape,
                 TextOf(blob.name), memory);
  }

  const ContainerReader& reader_;
  const nb::callable leaf_;
  const nb::object empty_ = nb::module_::import_("numpy").attr("empty");
  std::unordered_map<uint32_t, nb::object> blobs_;
};

}  // namespace

void BindContainer(nb::module_& m) {
  m.attr("CONTAINER_MAGIC") =
      nb::bytes(saved::kContainerMagic.data(), saved::kContainerMagic.size());
  m.def(
      "write_container",
      [](nb::handle object, const nb::callable& append,
         const nb::callable& leaf) {
        ObjectWriter(append, leaf).Write(object);
      },
      nb::arg("object").none(), nb::arg("append"), nb::arg("leaf"));
  m.def("read_container_file",
        [](int descriptor, uint64_t byte_size, const nb::callable& leaf) {
          const ContainerReader reader = ValueOrThrow(ContainerReader::Open(
              saved::ReadFromDescriptor(descriptor), byte_size));
          return ObjectReader(reader, leaf).Read();
        });
  m.def(
      "read_container",
      [](const nb::bytes& bytes, const nb::callable& leaf) {
        const Buffer buffer(bytes);
        const size_t end = saved::FindContainerEnd(buffer.bytes());
        const ContainerReader reader = ValueOrThrow(ContainerReader::Open(
            saved::ReadFromMemory(buffer.bytes().first(end)), end));
        return nb::make_tuple(ObjectReader(reader, leaf).Read(), end);
      },
      "The object at the beginning of the bytes, and where it ends.");
}

}  // namespace fleet::python
