// SPDX-License-Identifier: Apache-2.0
// Sent: how many bytes which device sends to which, where a collective is made of messages between two devices.
#pragma once
#include "base/types.h"
#include "runtime/collective/assembly.h"

namespace spmdx {

struct Sent {
  int64_t from = 0, to = 0;  // ids of devices
  int64_t bytes = 0;
};

// Each pair once, by receiver, then by sender. What a device has already is not sent.
std::vector<Sent> sent(const Relayout& relayout, DType dtype);

}  // namespace spmdx
