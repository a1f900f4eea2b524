// SPDX-License-Identifier: Apache-2.0
// Number: an argument of a call that is a constant or a parameter of the plan.
#pragma once
#include <span>

#include "runtime/data/backend.h"

namespace spmdx::bridge {

struct Number {
  Param constant = {.integer = 0};
  int64_t param = -1;    // index of the parameter; -1: `constant` is the value
  bool integer = false;  // which member of Param holds the value
  int64_t plus = 0;      // what is added to an integer parameter

  Param get(std::span<const Param> params) const {
    if (param < 0) return constant;
    const Param value = params[static_cast<size_t>(param)];
    return integer ? Param{.integer = value.integer + plus} : value;
  }
  double real(std::span<const Param> params) const {
    const Param value = get(params);
    return integer ? static_cast<double>(value.integer) : value.real;
  }
  int64_t whole(std::span<const Param> params) const {
    const Param value = get(params);
    return integer ? value.integer : static_cast<int64_t>(value.real);
  }
};

// Argument `index` of the call; a bool counts as 0 or 1. Throws InternalError where it is absent or no number.
Number number(const Call& call, size_t index);
Number number_or(const Call& call, size_t index, int64_t missing);  // `missing` where it is absent

}  // namespace spmdx::bridge
