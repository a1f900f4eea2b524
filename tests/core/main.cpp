// SPDX-License-Identifier: Apache-2.0
// Runs the core tests: all, or those whose name contains one of the arguments.
#include <cstdio>
#include <cstring>

#include "check.h"

namespace spmdx::test {
namespace {
int64_t num_checks = 0;
bool current_failed = false;

bool selected(const Case& test, int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::strstr(test.name, argv[i]) || std::strstr(test.file, argv[i])) return true;
  return argc == 1;
}

// A test without a single check that held has tested nothing: it fails.
bool run_case(const Case& test) {
  current_failed = false;
  const int64_t before = num_checks;
  try {
    test.run();
    if (num_checks == before && !current_failed) fail(test.file, 0, "the test checked nothing");
  } catch (const std::exception& error) {
    fail(test.file, 0, std::string("threw: ") + error.what());
  }
  if (current_failed) std::printf("FAILED %s (%s)\n", test.name, test.file);
  return !current_failed;
}
}  // namespace

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

void passed() { ++num_checks; }

void fail(const char* file, int line, const std::string& what) {
  current_failed = true;
  std::printf("%s:%d: %s\n", file, line, what.c_str());
}

}  // namespace spmdx::test

int main(int argc, char** argv) {
  using namespace spmdx::test;
  int run = 0, failed = 0;
  for (const Case& test : cases()) {
    if (!selected(test, argc, argv)) continue;
    ++run;
    failed += !run_case(test);
  }
  std::printf("%d tests, %lld checks, %d failed\n", run, static_cast<long long>(num_checks), failed);
  if (run == 0) std::printf("no test matches the arguments\n");
  return failed > 0 || run == 0;
}
