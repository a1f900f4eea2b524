// SPDX-License-Identifier: Apache-2.0
// Setting: what PyTorch is set to on this thread, on which it depends what ops a call records.
#pragma once
#include <c10/core/DispatchKeySet.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>

namespace spmdx::bridge {

struct Setting {
  bool gradients = false, inference = false, autocast_caches = false, anomalies = false;
  std::array<bool, 2> autocast = {};  // of the device, of the CPU
  std::array<c10::ScalarType, 2> autocast_dtypes = {};
  uint64_t inference_settings = 0;      // default dtype, threads, oneDNN
  uint64_t backends = 0;                // what PyTorch's backends are switched to
  uint64_t included = 0, excluded = 0;  // dispatch keys: transforms and modes
  bool modes = false;                   // a mode in Python sees every call

  bool operator==(const Setting&) const = default;
};

// Program threads.
Setting current_setting();

}  // namespace spmdx::bridge
