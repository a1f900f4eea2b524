// SPDX-License-Identifier: Apache-2.0
// Watched Python state from Python. It holds what it saw, so the collector of cycles is told of it.
#include "bridge/python/watched.h"

#include <torch/csrc/utils/pybind.h>

#include "bind/bind.h"

namespace spmdx {
namespace {

namespace py = pybind11;
using bridge::Watched;
using Kind = Watched::Kind;

constexpr const char* kNames[] = {"item", "whole", "size", "attribute", "cell", "type", "tensor", "data"};  // of kinds

// The object of an instance, or nullptr while that is being made.
Watched* held_by(PyObject* self) {
  if (!py::detail::is_holder_constructed(self)) return nullptr;
  return py::cast<Watched*>(py::handle(self));
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const Watched* watched = held_by(self);
  return watched ? watched->traverse(visit, arg) : 0;
}

int clear(PyObject* self) {
  if (Watched* watched = held_by(self)) watched->clear();
  return 0;
}

void collect(PyHeapTypeObject* of) {
  of->ht_type.tp_flags |= Py_TPFLAGS_HAVE_GC;
  of->ht_type.tp_traverse = traverse;
  of->ht_type.tp_clear = clear;
}

// What was read, and None with False where nothing was there.
py::object read(PyObject* found) {
  const bool is_there = found != nullptr;
  return py::make_tuple(is_there ? py::reinterpret_steal<py::object>(found) : py::none(), is_there);
}

// A method that adds an entry with a key, and one without.
auto keyed(Kind kind) {
  return [kind](Watched& self, py::handle owner, py::handle key) { self.add(kind, owner.ptr(), key.ptr()); };
}
auto bare(Kind kind) {
  return [kind](Watched& self, py::handle owner) { self.add(kind, owner.ptr(), nullptr); };
}

auto of_tensor(Kind kind) {
  return [kind](Watched& self, const at::Tensor& tensor) { self.add(kind, py::cast(tensor).ptr(), nullptr); };
}

}  // namespace

void bind_watched(py::module_& m) {
  m.def(
      "is_same", [](py::handle a, py::handle b) { return bridge::is_same(a.ptr(), b.ptr()); }, py::arg("a"),
      py::arg("b"));
  py::class_<Watched>(m, "Watched", py::custom_type_setup(collect))
      .def(py::init<>())
      .def("item", keyed(Kind::item), py::arg("dict"), py::arg("key"))
      .def("whole", bare(Kind::whole), py::arg("container"))
      .def("size", bare(Kind::size), py::arg("container"))
      .def("attribute", keyed(Kind::attribute), py::arg("owner"), py::arg("name"))
      .def("cell", bare(Kind::cell), py::arg("cell"))
      .def("type", bare(Kind::type), py::arg("owner"))
      .def("tensor", of_tensor(Kind::tensor), py::arg("tensor"))
      .def("data", of_tensor(Kind::data), py::arg("tensor"))
      .def(
          "forget", [](Watched& self, py::handle owner) { self.forget(owner.ptr()); }, py::arg("owner"))
      .def(
          "let_change", [](Watched& self, py::handle tensor) { self.let_change(tensor.ptr()); }, py::arg("tensor"))
      .def("changed", &Watched::changed, py::arg("start") = 0)
      .def(
          "seen", [](const Watched& self, size_t entry) { return read(self.seen(entry)); }, py::arg("entry"))
      .def(
          "present", [](const Watched& self, size_t entry) { return read(self.present(entry)); }, py::arg("entry"))
      .def(
          "kind", [](const Watched& self, size_t entry) { return kNames[static_cast<size_t>(self.kind(entry))]; },
          py::arg("entry"))
      .def(
          "owner",
          [](const Watched& self, size_t entry) { return py::reinterpret_borrow<py::object>(self.owner(entry)); },
          py::arg("entry"));
}

}  // namespace spmdx
