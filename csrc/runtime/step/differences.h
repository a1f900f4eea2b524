// SPDX-License-Identifier: Apache-2.0
// Differences: where processes that should do the same do not.
#pragma once
#include <string>
#include <vector>

namespace spmdx {

// What a process is about to run, as the others may see it: lines that must be equal everywhere but for what follows
// "  // ", which says where the line comes from.
struct Account {
  int64_t process = 0;
  std::string text;
};

// One sentence on the first line in which `mine` and another differ, and one that says what to do. Before the line
// `values` comes the program, after it what is fed to the program.
std::string first_difference(const Account& mine, const std::vector<Account>& others);

inline constexpr const char* kValuesHead = "values";

}  // namespace spmdx
