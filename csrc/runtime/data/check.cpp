// SPDX-License-Identifier: Apache-2.0
// Check: process-wide flags.
#include "runtime/data/check.h"

#include <atomic>

namespace spmdx {
namespace {

std::atomic<bool> poison{false}, memory{false}, replicas{false};

}  // namespace

CheckModes check_modes() { return {poison.load(), memory.load(), replicas.load()}; }

void set_check_modes(CheckModes modes) {
  poison = modes.poison;
  memory = modes.memory;
  replicas = modes.replicas;
}

}  // namespace spmdx
