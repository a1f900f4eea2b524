// SPDX-License-Identifier: Apache-2.0
// Philox for many elements at once, by the vector instructions of the machine: the words are those of philox_words().
#pragma once
#include <cstdint>
#include <span>

#include "base/philox.h"

namespace spmdx {

// first[i], second[i] = philox_words(seed, draw, elements[i]). Both arrays are as long as `elements`.
void philox_fill(uint64_t seed, uint64_t draw, std::span<const uint64_t> elements, uint64_t* first, uint64_t* second);

}  // namespace spmdx
