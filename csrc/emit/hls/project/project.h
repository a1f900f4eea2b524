// SPDX-License-Identifier: Apache-2.0
// Project: the folder that g++ and the vendor's tool are given.
#pragma once
#include <map>
#include <string>

#include "emit/hls/design.h"

namespace spmdx::emit::hls {

// Texts of files, by their names; tensors are read from and written to its folder `data`.
std::map<std::string, std::string> project_files(const Design& design, const Uses& uses, const std::string& report);

// Headers that are in each project, or in those of one kind of number.
extern const char* const kOwnFixed;        // own_fixed.h, where the vendor's ap_fixed.h is not there
extern const char* const kOwnStream;       // own_stream.h, where hls_stream.h is not there
extern const char* const kCycles;          // cycles.h
extern const char* const kFunctions;       // the beginning of functions.h
extern const char* const kFloatFunctions;  // the rest of it
extern const char* const kFixedFunctions;
extern const char* const kTestbench;  // what comes before its main function

}  // namespace spmdx::emit::hls
