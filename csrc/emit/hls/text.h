// SPDX-License-Identifier: Apache-2.0
// Text: the design as C++.
#pragma once
#include <string>

#include "emit/hls/design.h"

namespace spmdx::emit::hls {

std::string stage_text(const Design& design, const Uses& uses, uint32_t stage);  // the function of a stage
// A stream that several stages read is spread by a stage of its own: "s3" becomes "s3_0", "s3_1" …
std::string spread_text(const Design& design, const Uses& uses, uint32_t stream);
std::string top_text(const Design& design, const Uses& uses);         // top.cpp
std::string top_header_text(const Design& design, const Uses& uses);  // top.h
std::string weights_text(const Design& design, const Uses& uses);     // weights.h
std::string top_arguments(const Design& design);                      // of the top function, with types

}  // namespace spmdx::emit::hls
