// SPDX-License-Identifier: Apache-2.0
// The one engine, over ATen's kernels and the processes of the program; errors of ops begin with the user's line.
#include "bridge/recorder/engine.h"

#include <atomic>

#include "bridge/backend/aten_backend.h"
#include "bridge/python/errors.h"
#include "bridge/world/c10d_comm.h"

namespace spmdx::bridge {
namespace {

std::atomic<bool> step_failed{false};

std::exception_ptr note_and_translate(std::exception_ptr error, const Node& node) {
  note_failure();
  return lead_error(error, node.source, node.call->op);
}

}  // namespace

bool has_unseen_failure() { return step_failed; }
void note_failure() { step_failed = true; }
void forget_failure() { step_failed = false; }

Engine& engine() {
  static auto* instance = [] {
    auto* made = new Engine(aten_backend(), comm());  // outlives every tensor; Python waits for it at exit
    made->set_translator(note_and_translate);
    return made;
  }();
  return *instance;
}

}  // namespace spmdx::bridge
