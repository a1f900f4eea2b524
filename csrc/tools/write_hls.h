// SPDX-License-Identifier: Apache-2.0
// Projects for high-level synthesis, written to a folder.
#pragma once
#include <cstdint>
#include <string>

namespace spmdx {

// Of graph text. Inputs of which the folder has a file constant0.bin, constant1.bin … (f64) are constants.
int write_hls(const std::string& text, const std::string& folder, const std::string& number, int64_t unroll);
int list_hls_ops();

}  // namespace spmdx
