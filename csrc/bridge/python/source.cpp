// SPDX-License-Identifier: Apache-2.0
// Sources: pairs of a code object and an instruction, which become file and line only when somebody asks.
#include "bridge/python/source.h"

#include <frameobject.h>

#include <ATen/SequenceNumber.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <unordered_map>

#include "bridge/python/gil.h"

namespace spmdx::bridge {
namespace {

constexpr size_t kSequences = 1 << 16;  // how many forward ops keep their source for the backward pass

struct Spot {
  PyCodeObject* code = nullptr;  // an owned reference
  int instruction = 0;
};

// `mutex` guards the tables, which the engine's thread reads, too; the GIL guards Python objects. The mutex is taken
// first: no thread waits for it while it holds the GIL. For making a frame object may collect garbage and so run any
// Python code, which may give up the GIL and take it again while the mutex is held. Such code may also come here again
// on the same thread, so the mutex is recursive.
struct Sources {
  std::recursive_mutex mutex;
  std::vector<Spot> places{Spot{}};
  std::unordered_map<uint64_t, SourceId> ids;
  std::unordered_map<PyCodeObject*, bool> is_user;
  std::vector<std::string> libraries;                    // folders of code that is not the user's
  PyObject* name_of_file = nullptr;                      // a function
  std::unordered_map<PyCodeObject*, std::string> names;  // of files, by the code that `places` hold
  struct Forward {
    uint64_t sequence = UINT64_MAX;
    SourceId source = 0;
  };
  std::vector<Forward> forwards = std::vector<Forward>(kSequences);  // by sequence number, modulo their count

  Forward& forward(uint64_t sequence) { return forwards[sequence % kSequences]; }
};
Sources& sources() {
  static auto* instance = new Sources;
  return *instance;
}

std::string_view text_of(PyObject* text) {
  const char* found = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : nullptr;
  if (!found) PyErr_Clear();
  return found ? found : "";
}

// Whether a frame runs the user's code, by the test of errors.py: its file is not in a folder of a library, and its
// module is not one of spmdx or torch (they also run code that they have generated).
bool runs_user_code(const Sources& all, PyFrameObject* frame, PyCodeObject* code) {
  const std::string_view file = text_of(code->co_filename);
  if (file.empty() || file.starts_with("<frozen ")) return false;
  const auto is_within = [&](const std::string& folder) { return file.starts_with(folder); };
  if (std::any_of(all.libraries.begin(), all.libraries.end(), is_within)) return false;
  PyObject* globals = PyFrame_GetGlobals(frame);
  const std::string_view module = text_of(PyDict_GetItemString(globals, "__name__"));
  Py_DECREF(globals);
  return !module.starts_with("spmdx.") && !module.starts_with("torch.");
}

bool is_user(Sources& all, PyFrameObject* frame, PyCodeObject* code) {
  const auto known = all.is_user.find(code);
  if (known != all.is_user.end()) return known->second;
  Py_INCREF(code);  // so that no other code object gets this address
  return all.is_user[code] = runs_user_code(all, frame, code);
}

// The source of the innermost frame that runs the user's code; 0: none. REQUIRES: the GIL.
SourceId innermost(Sources& all) {
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  SourceId found = 0;
  while (frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    if (is_user(all, frame, code)) {
      const int instruction = PyFrame_GetLasti(frame);
      const uint64_t key =
          reinterpret_cast<uintptr_t>(code) * 0x9e3779b97f4a7c15ULL ^ static_cast<uint64_t>(instruction);
      auto [entry, fresh] = all.ids.emplace(key, static_cast<SourceId>(all.places.size()));
      if (fresh) all.places.push_back({code, instruction});
      found = entry->second;
    }
    Py_DECREF(code);
    PyFrameObject* outer = found ? nullptr : PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
  }
  return found;
}

// In a backward pass: the source of the forward op that made the current node; 0: unknown.
SourceId of_backward(Sources& all) {
  auto node = torch::autograd::get_current_node();
  if (!node) return 0;
  const auto& forward = all.forward(node->sequence_nr());
  return forward.sequence == node->sequence_nr() ? forward.source : 0;
}

// What messages call the file of a code object, which is asked for once: profiles name a line for each op that runs.
// REQUIRES: the GIL.
std::string name_of(Sources& all, PyCodeObject* code) {
  if (const auto known = all.names.find(code); known != all.names.end()) return known->second;
  PyObject* path = code->co_filename;
  const pybind11::error_scope keeps_what_is_raised;
  PyObject* name = all.name_of_file ? PyObject_CallFunctionObjArgs(all.name_of_file, path, nullptr) : nullptr;
  if (!name) PyErr_Clear();
  const std::string found(text_of(name ? name : path));
  Py_XDECREF(name);
  return all.names[code] = found;
}

// Takes the mutex, then the GIL.
class Reading {
 public:
  explicit Reading(Sources& all) : lock_(all.mutex) {}

 private:
  NoGil no_gil_;
  std::lock_guard<std::recursive_mutex> lock_;
  WithGil gil_;
};

}  // namespace

void set_libraries(std::vector<std::string> folders) {
  Sources& all = sources();
  const Reading reading(all);
  all.libraries = std::move(folders);
  all.is_user.clear();
}

void set_name_of_files(PyObject* function) {
  Py_INCREF(function);
  sources().name_of_file = function;
}

SourceId current_source() {
  Sources& all = sources();
  if (torch::autograd::get_current_node()) {
    NoGil no_gil;
    std::lock_guard lock(all.mutex);
    if (const SourceId forward = of_backward(all)) return forward;
  }
  // PyTorch's bindings give up the GIL before they dispatch, but the frames of this thread are still there. A thread
  // that never ran Python has no frames.
  if (!Py_IsInitialized() || !PyGILState_GetThisThreadState()) return 0;
  const Reading reading(all);
  const SourceId source = innermost(all);
  if (source && at::GradMode::is_enabled()) {
    // Autograd's node for this op has taken the last sequence number.
    const uint64_t sequence = at::sequence_number::peek() - 1;
    all.forward(sequence) = {sequence, source};
  }
  return source;
}

std::string source_text(SourceId source) {
  if (source == 0 || !Py_IsInitialized()) return "";
  Sources& all = sources();
  const Reading reading(all);
  if (source >= all.places.size()) return "";
  const Spot place = all.places[source];
  const int line = PyCode_Addr2Line(place.code, place.instruction);
  return name_of(all, place.code) + ":" + std::to_string(line);
}

}  // namespace spmdx::bridge
