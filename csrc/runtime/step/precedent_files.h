// SPDX-License-Identifier: Apache-2.0
// PrecedentFiles: what was decided for programs, in a folder that outlives the process: a file for each program.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "passes/settings/options.h"
#include "runtime/step/precedents.h"

namespace spmdx {

// Several processes may use one folder: a file is written elsewhere, and then moved to its name. A damaged one is as
// good as none. Not thread-safe: the engine holds a lock around it.
class PrecedentFiles {
 public:
  // `version`: of what decides. Files of another one are not found.
  PrecedentFiles(std::filesystem::path folder, const std::string& version);
  // For this program with these options; null: there is none.
  PrecedentRef find(const Graph& traced, const CompileOptions& options) const;
  // Nothing is kept where the folder cannot be written to.
  void insert(const Graph& traced, const CompileOptions& options, const Precedent& precedent) const;

 private:
  std::filesystem::path path_of(const Graph& traced, const CompileOptions& options) const;

  const std::filesystem::path folder_;
  const uint64_t version_;
};

}  // namespace spmdx
