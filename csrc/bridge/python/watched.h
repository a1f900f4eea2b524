// SPDX-License-Identifier: Apache-2.0
// Python state that was seen once, and whether it is still the same: what guards the replay of a step.
#pragma once
#include <Python.h>

#include <utility>
#include <vector>

namespace spmdx::bridge {

// A flat list of places that objects can be read from, each with what was read there. Its objects are held, owners and
// what was seen alike, so that no address is used twice. All members want the GIL. What is Python code of the user's
// may run only where a place is an attribute that such code computes.
class Watched {
 public:
  enum class Kind {
    item,       // dict[key], or that it is missing
    whole,      // all keys and values, or items, of a container in their order
    size,       // how many items a container has
    attribute,  // getattr(object, name), or that it is missing
    cell,       // the contents of a cell, or that it is empty
    type,       // the class of an object
    tensor,     // of a tensor: whether it requires a gradient, has one, and has hooks; its dtype and shape
    data,       // the bytes of a tensor of the CPU that is contiguous
  };

  Watched() = default;
  Watched(const Watched&) = delete;
  ~Watched() { clear(); }

  // Reads a place and keeps what it gives. Throws what Python raises, as pybind11::error_already_set.
  void add(Kind kind, PyObject* owner, PyObject* key);
  // What can be read from an object may change from now on.
  void forget(const PyObject* owner);
  // The elements of a tensor may.
  void let_change(const PyObject* tensor);
  size_t size() const { return entries_.size(); }
  // The first entry from `start` on at which something else is read now than was seen; -1: none.
  Py_ssize_t changed(size_t start = 0) const;
  Kind kind(size_t entry) const { return entries_.at(entry).kind; }
  PyObject* owner(size_t entry) const { return entries_.at(entry).owner; }  // borrowed
  PyObject* seen(size_t entry) const;     // a new reference; nullptr: nothing was there
  PyObject* present(size_t entry) const;  // a new reference to what is read now, for words; nullptr: nothing is there

  int traverse(visitproc visit, void* arg) const;  // for the collector of cycles
  void clear();

 private:
  struct Entry {
    Kind kind;
    PyObject* owner;
    PyObject* key;   // nullptr: the kind has none
    PyObject* seen;  // nullptr: nothing was there; of a whole dict key, value, key, value …
  };
  static void forget(Entry& entry);

  std::vector<Entry> entries_;
};

// The same object, or two that cannot be told apart by what they hold: numbers (by their bits), texts, tuples of these,
// and methods bound to the same object. Any thread. REQUIRES: the GIL.
bool is_same(PyObject* a, PyObject* b);

}  // namespace spmdx::bridge
