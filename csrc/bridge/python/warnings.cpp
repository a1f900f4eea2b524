// SPDX-License-Identifier: Apache-2.0
// Gives warnings; takes the GIL for it.
#include "bridge/python/warnings.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace spmdx::bridge {
namespace {

std::mutex mutex;
std::deque<std::string> to_say;  // guarded by mutex
std::atomic<bool> any{false};

std::optional<std::string> next() {
  const std::lock_guard lock(mutex);
  any.store(to_say.size() > 1, std::memory_order_relaxed);
  if (to_say.empty()) return std::nullopt;
  std::string message = std::move(to_say.front());
  to_say.pop_front();
  return message;
}

}  // namespace

void warn(const std::string& message) {
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_WarnEx(PyExc_UserWarning, message.c_str(), 1) != 0) throw python_error();
}

void warn_later(std::string message) {
  const std::lock_guard lock(mutex);
  to_say.push_back(std::move(message));
  any.store(true, std::memory_order_relaxed);
}

void warn_of_events() {
  if (!any.load(std::memory_order_relaxed)) return;
  while (const std::optional<std::string> message = next()) warn(*message);
}

}  // namespace spmdx::bridge
