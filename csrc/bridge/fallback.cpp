// SPDX-License-Identifier: Apache-2.0
// The warning and the error for ops without a rule.
#include "bridge/fallback.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <utility>

#include "base/error.h"
#include "bridge/tracer.h"

namespace spmdx::bridge {
namespace {

std::atomic<bool> are_errors{false};

// Guarded by the recorder's lock.
bool warned = false;
std::string to_say;

std::string what_happens(const Fallback& fallback) {
  const std::string line = source_text(fallback.source);
  return (line.empty() ? "" : line + ": ") + fallback.op + " has no sharding rule: " + std::to_string(fallback.bytes) +
         " bytes a device are gathered, and it runs whole on every device. Expected an op with a rule. "
         "Use one, or add a rule as docs/add_an_op.md shows";
}

}  // namespace

void set_fallbacks_are_errors(bool errors) { are_errors = errors; }

void mind_fallbacks(const Plan& plan) {
  for (const Fallback& fallback : plan.fallbacks) {
    if (fallback.bytes == 0) continue;
    if (are_errors) throw ShardingError(what_happens(fallback) + ", or unset SPMDX_FALLBACK.");
    if (warned || !to_say.empty()) continue;
    to_say = what_happens(fallback) +
             ". Said once: spmdx.explain().fallbacks lists all, SPMDX_FALLBACK=error makes it an error.";
  }
}

void warn_of_fallbacks() {
  if (to_say.empty()) return;
  const std::string message = std::exchange(to_say, "");
  warned = true;
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_WarnEx(PyExc_UserWarning, message.c_str(), 1) != 0) throw python_error();
}

}  // namespace spmdx::bridge
