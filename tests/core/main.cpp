// SPDX-License-Identifier: Apache-2.0
// Runs the core tests: all, or those whose name or file contains one of the arguments; -j N runs them in N processes.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "check.h"

namespace spmdx::test {
namespace {
int64_t num_checks = 0;
bool current_failed = false;

struct Asked {
  int processes = 1;
  std::vector<const char*> parts;
};

// What the processes share.
struct Progress {
  std::atomic<size_t> next{0};
  std::atomic<int64_t> run{0}, failed{0}, checks{0};
};

Asked asked_for(int argc, char** argv) {
  Asked asked;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "-j") == 0 && i + 1 < argc)
      asked.processes = std::max(1, std::atoi(argv[++i]));
    else
      asked.parts.push_back(argv[i]);
  }
  return asked;
}

bool selected(const Case& test, const std::vector<const char*>& parts) {
  for (const char* part : parts)
    if (std::strstr(test.name, part) || std::strstr(test.file, part)) return true;
  return parts.empty();
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

void run_cases(const Asked& asked, Progress& progress) {
  for (size_t at = progress.next++; at < cases().size(); at = progress.next++) {
    if (!selected(cases()[at], asked.parts)) continue;
    ++progress.run;
    progress.failed += !run_case(cases()[at]);
  }
  progress.checks += num_checks;
}

// One that ends in the midst of a test counts as a failed test.
void run_in_processes(const Asked& asked, Progress& progress) {
  std::fflush(stdout);
  for (int process = 0; process < asked.processes; ++process) {
    const pid_t child = fork();
    if (child < 0) throw std::bad_alloc();
    if (child > 0) continue;
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    run_cases(asked, progress);
    std::exit(0);
  }
  for (int status = 0; wait(&status) > 0;) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    ++progress.failed;
    std::printf("FAILED a process of tests ended with status %d\n", status);
  }
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
  const Asked asked = asked_for(argc, argv);
  void* shared = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::bad_alloc();
  auto& progress = *new (shared) Progress;
  if (asked.processes > 1)
    run_in_processes(asked, progress);
  else
    run_cases(asked, progress);
  const auto run = progress.run.load(), failed = progress.failed.load(), checks = progress.checks.load();
  std::printf("%lld tests, %lld checks, %lld failed\n", static_cast<long long>(run), static_cast<long long>(checks),
              static_cast<long long>(failed));
  if (run == 0) std::printf("no test matches the arguments\n");
  return failed > 0 || run == 0;
}
