// SPDX-License-Identifier: Apache-2.0
// Warnings that Python's filters see.
#pragma once
#include <string>

namespace spmdx::bridge {

// Gives a UserWarning; throws if Python's filters make it an error.
void warn(const std::string& message);

}  // namespace spmdx::bridge
