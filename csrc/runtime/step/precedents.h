// SPDX-License-Identifier: Apache-2.0
// Precedents: what was decided for the programs that were planned last, for those that differ from them by sizes alone.
#pragma once
#include <list>
#include <memory>
#include <vector>

#include "passes/precedent/precedent.h"

namespace spmdx {

using PrecedentRef = std::shared_ptr<const Precedent>;

// Not thread-safe: the engine holds a lock around it.
class Precedents {
 public:
  static constexpr size_t kMost = 128;  // of all programs
  static constexpr size_t kOfOne = 4;   // programs that are alike, of other sizes
  // A dim of so many times the elements, or of as many times fewer, makes it another program: what is best depends on
  // sizes, too.
  static constexpr double kFar = 2.5;
  // That of the program that is like this one, and nearest to it by the sizes of all values; null: there is none.
  PrecedentRef find(const Graph& traced);
  // Drops the oldest of too many.
  void insert(const Graph& traced, PrecedentRef precedent);
  void clear() { recent_.clear(); }

 private:
  struct Entry {
    uint64_t likeness = 0;
    std::vector<float> sizes;  // logarithms
    PrecedentRef precedent;
  };
  std::list<Entry> recent_;  // inserted or found last first
};

}  // namespace spmdx
