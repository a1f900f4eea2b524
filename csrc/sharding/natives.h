// SPDX-License-Identifier: Apache-2.0
// Natives: which collectives between processes may be those that their backend has itself.
#pragma once
#include <cstdint>
#include <optional>

#include "base/types.h"
#include "sharding/sharding.h"

namespace spmdx {

enum class Way : uint8_t {
  direct,  // messages between two processes each
  native,  // the backend's own collective, where the parts are equal
};

// What the user asked for.
struct NativePolicy {
  std::optional<Way> way = {};   // null: the cheaper one, of each collective
  Way unmeasured = Way::direct;  // that is taken to be cheaper where a topology does not say
  bool sums = true;              // may be native: a backend adds in an order of its own
  bool operator==(const NativePolicy&) const = default;
};

// Backends add numbers of this dtype in the type in which messages would be added.
bool adds_natively(DType dtype, Reduction reduction);

}  // namespace spmdx
