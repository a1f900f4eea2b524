// SPDX-License-Identifier: Apache-2.0
// Precedents as words, for files that outlive a process.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "passes/precedent/precedent.h"

namespace spmdx {

std::vector<uint64_t> words_of(const Precedent& precedent);
// Nothing where the words are not those of a precedent.
std::optional<Precedent> precedent_of(std::span<const uint64_t> words);

}  // namespace spmdx
