// SPDX-License-Identifier: Apache-2.0
// How each kind of place is read, and read again without making objects where that is possible.
#include "bridge/python/watched.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>
#include <string_view>

namespace spmdx::bridge {
namespace {

namespace py = pybind11;

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

bool same_tuples(PyObject* a, PyObject* b) {
  const Py_ssize_t size = PyTuple_GET_SIZE(a);
  if (size != PyTuple_GET_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < size; ++i)
    if (!is_same(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
  return true;
}

// A new reference; nullptr without an error: there is no such attribute.
PyObject* attribute_or_null(PyObject* owner, PyObject* name) {
  PyObject* found = PyObject_GetAttr(owner, name);
  if (found) return found;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw py::error_already_set();
  PyErr_Clear();
  return nullptr;
}

PyObject* borrowed_item(PyObject* dict, PyObject* key) {
  PyObject* found = PyDict_GetItemWithError(dict, key);
  if (!found && PyErr_Occurred()) throw py::error_already_set();
  return found;
}

// Whether PyDict_Next goes through a container in the order that Python code sees.
bool is_plain_dict(PyObject* owner) { return PyDict_Check(owner) && !PyODict_Check(owner); }

// `take(object)` for the items of a container, in their order, a dict's as key, value, key, value …; until it says no.
// Whether it never said so.
template <class Take>
bool each_of(PyObject* owner, const Take& take) {
  if (is_plain_dict(owner)) {
    Py_ssize_t at = 0;
    PyObject *key, *value;
    while (PyDict_Next(owner, &at, &key, &value))
      if (!take(key) || !take(value)) return false;
    return true;
  }
  if (PyList_Check(owner)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(owner); ++i)
      if (!take(PyList_GET_ITEM(owner, i))) return false;
    return true;
  }
  const bool is_dict = PyDict_Check(owner);
  // The iterators of Python's own classes: what a subclass overrides, code of the user's, is not called.
  const auto iterate = is_dict ? PyODict_Type.tp_iter : PyAnySet_Check(owner) ? PySet_Type.tp_iter : PyObject_GetIter;
  const auto items = py::reinterpret_steal<py::object>(iterate(owner));
  if (!items) throw py::error_already_set();
  while (const auto item = py::reinterpret_steal<py::object>(PyIter_Next(items.ptr())))
    if (!take(item.ptr()) || (is_dict && !take(borrowed_item(owner, item.ptr())))) return false;
  if (PyErr_Occurred()) throw py::error_already_set();
  return true;
}

Py_ssize_t size_of(PyObject* owner) {
  if (PyDict_Check(owner)) return PyDict_GET_SIZE(owner);
  if (PyList_Check(owner)) return PyList_GET_SIZE(owner);
  const Py_ssize_t size = PyAnySet_Check(owner) ? PySet_GET_SIZE(owner) : PyObject_Size(owner);
  if (size < 0) throw py::error_already_set();
  return size;
}

bool is_whole(PyObject* owner, PyObject* seen) {
  const Py_ssize_t size = PyTuple_GET_SIZE(seen);
  if (size_of(owner) != (PyDict_Check(owner) ? size / 2 : size)) return false;
  Py_ssize_t at = 0;
  const auto take = [&](PyObject* item) {
    if (at == size) return false;
    PyObject* before = PyTuple_GET_ITEM(seen, at++);
    return item == before || is_same(item, before);
  };
  return size == 0 || (each_of(owner, take) && at == size);
}

// What a tensor has, as bits: whether it requires a gradient, one, and hooks of Python's; above, its dtype and shape.
int64_t flags_of(PyObject* owner) {
  const at::Tensor& tensor = THPVariable_Unpack(owner);
  const auto* variable = reinterpret_cast<THPVariable*>(owner);
  const auto has_any = [](PyObject* hooks) { return hooks && PyObject_IsTrue(hooks) == 1; };
  const bool has_hooks = has_any(variable->backward_hooks);
  const bool has_late_hooks = has_any(variable->post_accumulate_grad_hooks);
  constexpr uint64_t kMixed = 0x9e3779b97f4a7c15ULL;
  uint64_t shape = (static_cast<uint64_t>(tensor.scalar_type()) + 1) * kMixed;
  for (const int64_t size : tensor.sizes()) shape = (shape ^ static_cast<uint64_t>(size + 1)) * kMixed;
  return static_cast<int64_t>((shape >> 4) << 3) + tensor.requires_grad() + 2 * has_hooks + 4 * has_late_hooks;
}

std::string_view data_of(PyObject* owner) {
  const at::Tensor& tensor = THPVariable_Unpack(owner);
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// A new reference to what is read at a place; nullptr: nothing is there.
PyObject* read(Watched::Kind kind, PyObject* owner, PyObject* key) {
  switch (kind) {
    case Watched::Kind::item:
      return Py_XNewRef(borrowed_item(owner, key));
    case Watched::Kind::attribute:
      return attribute_or_null(owner, key);
    case Watched::Kind::cell:
      return PyCell_Get(owner);
    case Watched::Kind::type:
      return Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(owner)));
    case Watched::Kind::size:
      return PyLong_FromSsize_t(size_of(owner));
    case Watched::Kind::tensor:
      return PyLong_FromLongLong(flags_of(owner));
    case Watched::Kind::data:
      return py::bytes(data_of(owner)).release().ptr();
    case Watched::Kind::whole:
      break;
  }
  py::list items;
  each_of(owner, [&](PyObject* item) { return items.append(py::handle(item)), true; });
  return PyList_AsTuple(items.ptr());
}

bool is_unchanged(Watched::Kind kind, PyObject* owner, PyObject* key, PyObject* seen) {
  switch (kind) {
    case Watched::Kind::item:
      return is_same(borrowed_item(owner, key), seen);
    case Watched::Kind::whole:
      return is_whole(owner, seen);
    case Watched::Kind::size:
      return size_of(owner) == PyLong_AsSsize_t(seen);
    case Watched::Kind::cell:
      return is_same(PyCell_GET(owner), seen);
    case Watched::Kind::type:
      return reinterpret_cast<PyObject*>(Py_TYPE(owner)) == seen;
    case Watched::Kind::tensor:
      return flags_of(owner) == PyLong_AsLongLong(seen);
    case Watched::Kind::data:
      return data_of(owner) == std::string_view(PyBytes_AS_STRING(seen), PyBytes_GET_SIZE(seen));
    case Watched::Kind::attribute:
      return is_same(py::reinterpret_steal<py::object>(read(kind, owner, key)).ptr(), seen);
  }
  return false;
}

}  // namespace

bool is_same(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (!a || !b || Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_CheckExact(a)) return same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
  if (PyLong_CheckExact(a) || PyBytes_CheckExact(a) || PyUnicode_CheckExact(a))
    return PyObject_RichCompareBool(a, b, Py_EQ) == 1;  // of these it raises nothing
  if (PyTuple_CheckExact(a)) return same_tuples(a, b);
  if (PyMethod_Check(a))
    return PyMethod_GET_SELF(a) == PyMethod_GET_SELF(b) && PyMethod_GET_FUNCTION(a) == PyMethod_GET_FUNCTION(b);
  if (PyCFunction_Check(a))
    return PyCFunction_GET_SELF(a) == PyCFunction_GET_SELF(b) &&
           PyCFunction_GET_FUNCTION(a) == PyCFunction_GET_FUNCTION(b);
  if (!PyComplex_CheckExact(a)) return false;
  const Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
  return same_bits(x.real, y.real) && same_bits(x.imag, y.imag);
}

void Watched::add(Kind kind, PyObject* owner, PyObject* key) {
  PyObject* seen = read(kind, owner, key);
  if (PyErr_Occurred()) throw py::error_already_set();
  entries_.push_back({kind, Py_NewRef(owner), Py_XNewRef(key), seen});
}

// Its class is watched instead.
void Watched::forget(Entry& entry) {
  Py_SETREF(entry.seen, Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(entry.owner))));
  entry.kind = Kind::type;
}

void Watched::forget(const PyObject* owner) {
  for (Entry& entry : entries_)
    if (entry.owner == owner) forget(entry);
}

void Watched::let_change(const PyObject* tensor) {
  for (Entry& entry : entries_)
    if (entry.kind == Kind::data && entry.owner == tensor) forget(entry);
}

Py_ssize_t Watched::changed(size_t start) const {
  for (size_t i = start; i < entries_.size(); ++i) {
    const Entry entry = entries_[i];
    if (!is_unchanged(entry.kind, entry.owner, entry.key, entry.seen)) return static_cast<Py_ssize_t>(i);
  }
  return -1;
}

PyObject* Watched::seen(size_t entry) const { return Py_XNewRef(entries_.at(entry).seen); }

PyObject* Watched::present(size_t entry) const {
  const Entry& of = entries_.at(entry);
  return read(of.kind, of.owner, of.key);
}

int Watched::traverse(visitproc visit, void* arg) const {
  for (const Entry& entry : entries_) {
    Py_VISIT(entry.owner);
    Py_VISIT(entry.key);
    Py_VISIT(entry.seen);
  }
  return 0;
}

void Watched::clear() {
  for (const Entry& entry : std::exchange(entries_, {})) {  // what dies may run code that asks this object again
    Py_DECREF(entry.owner);
    Py_XDECREF(entry.key);
    Py_XDECREF(entry.seen);
  }
}

}  // namespace spmdx::bridge
