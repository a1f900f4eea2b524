// SPDX-License-Identifier: Apache-2.0
// Settings of a thread in one number: twice how many threads its kernels use, and whether tiny numbers are zero.
#include "bridge/backend/thread_settings.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <limits>

namespace spmdx::bridge {
namespace {

// PyTorch sets the processor's mode, and has no function that says what it is.
bool flushes_denormals() {
  volatile float tiny = std::numeric_limits<float>::min();
  volatile float half = tiny * 0.5F;
  return half == 0;
}

}  // namespace

int64_t settings_of_thread() { return int64_t{at::get_num_threads()} * 2 + (flushes_denormals() ? 1 : 0); }

void use_settings(int64_t settings) {
  const int64_t now = settings_of_thread();
  if (settings / 2 != now / 2) at::set_num_threads(static_cast<int>(settings / 2));
  if (settings % 2 != now % 2) at::Context::setFlushDenormal(settings % 2 != 0);
}

}  // namespace spmdx::bridge
