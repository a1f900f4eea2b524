// SPDX-License-Identifier: Apache-2.0
// Warnings that Python's filters see.
#pragma once
#include <string>

namespace spmdx::bridge {

// Gives a UserWarning; throws if Python's filters make it an error.
void warn(const std::string& message);

// For threads that are not the program's, where a warning that is an error would be nobody's: it is given by the next
// warn_of_events, in the order of these. Any thread; takes a lock of its own.
void warn_later(std::string message);
// Program threads, with no lock. Takes the GIL if there is something to say; throws as warn does, and keeps the rest.
void warn_of_events();

}  // namespace spmdx::bridge
