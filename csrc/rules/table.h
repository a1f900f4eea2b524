// SPDX-License-Identifier: Apache-2.0
// The table of rules: one row per op, looked up by full name, then by base name.
#pragma once
#include <span>
#include <string_view>

#include "rules/composite.h"
#include "rules/families.h"
#include "rules/localise.h"

namespace spmdx {

struct Row {
  std::string_view op;
  std::string_view letters = {};         // see letters.h; empty: the family says
  Reduction reduction = Reduction::sum;  // of the factors that only operands have
  Family family = nullptr;
  Linearity linearity = Linearity::none;  // what the family says where this is none
  uint64_t linear_inputs = ~uint64_t{0};
  Localise localise = nullptr;
  Expand expand = nullptr;
  double flops = 1;  // per element; matrix products have 2
  bool random = false;
  bool registered = false;  // a user's
};

std::span<const Row> rows();

// Pointwise ops that need no more than their name, by how a partial value passes through them.
struct PointwiseOps {
  Linearity linearity;
  uint64_t linear_inputs;
  std::span<const std::string_view> ops;
};
std::span<const PointwiseOps> pointwise_ops();

// The row of this op, or null.
const Row* find_row(std::string_view op);

// An op's entry of a map under its full name, or else its base name.
template <class Map>
auto find_named(Map& entries, std::string_view op) {
  const auto found = entries.find(op);
  return found == entries.end() ? entries.find(base_name(op)) : found;
}

}  // namespace spmdx
