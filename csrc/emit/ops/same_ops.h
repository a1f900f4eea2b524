// SPDX-License-Identifier: Apache-2.0
// Same ops: names of ops that mean the same to whoever writes them.
#pragma once
#include <array>

namespace spmdx::emit {

inline constexpr std::array kCopies = {"prims.view_of", "prims.clone", "aten.clone",
                                       "aten.alias",    "aten.detach", "aten.lift_fresh"};
// The same elements in row-major order, in the shape of the result.
inline constexpr std::array kReshapes = {
    "prims.reshape",    "prims.collapse_view", "prims.split_dim", "prims.squeeze",       "aten.view",
    "aten.reshape",     "aten._unsafe_view",   "prims.collapse",  "aten._reshape_alias", "aten.squeeze",
    "aten.squeeze.dim", "aten.squeeze.dims",   "aten.unsqueeze"};
// Tensors of zeros, or of anything.
inline constexpr std::array kZeros = {"prims.empty_strided",  "aten.empty.memory_format", "prims.empty",
                                      "prims.empty_permuted", "aten.empty_permuted",      "aten.empty_strided",
                                      "aten.zeros",           "aten.zeros_like",          "aten.empty_like"};

}  // namespace spmdx::emit
