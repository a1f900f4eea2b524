// SPDX-License-Identifier: Apache-2.0
// Warnings that Python's filters see.
#pragma once
#include <string>

namespace spmdx::bridge {

// A UserWarning; throws where the user has made it an error.
void warn(const std::string& message);

}  // namespace spmdx::bridge
