// SPDX-License-Identifier: Apache-2.0
// PositionSet: some of the numbers below a bound, found in order in steps that do not depend on how many there are.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace spmdx {

// A tree of words: a bit says that the word below it is not empty.
class PositionSet {
 public:
  static constexpr uint32_t kEnd = UINT32_MAX;

  PositionSet() = default;
  explicit PositionSet(uint32_t bound) {
    for (; bound > 64; bound = (bound + 63) / 64) {
      starts_.push_back(static_cast<uint32_t>(words_.size()));
      words_.resize(words_.size() + (bound + 63) / 64, 0);
    }
  }

  bool empty() const { return top_ == 0; }
  bool contains(uint32_t position) const { return word(0, position / 64) >> position % 64 & 1; }

  void insert(uint32_t position) {
    for (size_t level = 0; level <= starts_.size(); ++level, position /= 64)
      word(level, position / 64) |= uint64_t{1} << position % 64;
  }

  void erase(uint32_t position) {
    for (size_t level = 0; level <= starts_.size(); ++level, position /= 64) {
      uint64_t& here = word(level, position / 64);
      here &= ~(uint64_t{1} << position % 64);
      if (here) return;
    }
  }

  uint32_t first() const { return next(0); }

  // The first position that is `from` or after it; kEnd: there is none.
  uint32_t next(uint32_t from) const {
    for (size_t level = 0; level <= starts_.size(); ++level, from = from / 64 + 1) {
      if (from / 64 >= size(level)) return kEnd;
      if (const uint64_t rest = word(level, from / 64) & ~uint64_t{0} << from % 64)
        return down(level, from / 64 * 64 + static_cast<uint32_t>(std::countr_zero(rest)), false);
    }
    return kEnd;
  }

  // The last position before `end`; kEnd: there is none.
  uint32_t before(uint32_t end) const {
    for (size_t level = 0; end > 0; ++level, end = (end - 1) / 64) {
      const uint32_t at = end - 1;
      if (const uint64_t rest = word(level, at / 64) & ~uint64_t{0} >> (63 - at % 64))
        return down(level, at / 64 * 64 + 63 - static_cast<uint32_t>(std::countl_zero(rest)), true);
    }
    return kEnd;
  }

 private:
  // Of the words below this bit of a level, the first or last position.
  uint32_t down(size_t level, uint32_t bit, bool last) const {
    while (level-- > 0) {
      const uint64_t here = word(level, bit);
      bit = bit * 64 + static_cast<uint32_t>(last ? 63 - std::countl_zero(here) : std::countr_zero(here));
    }
    return bit;
  }
  size_t size(size_t level) const {
    if (level == starts_.size()) return 1;
    return (level + 1 < starts_.size() ? starts_[level + 1] : words_.size()) - starts_[level];
  }
  uint64_t word(size_t level, uint32_t at) const {
    return level == starts_.size() ? top_ : words_[starts_[level] + at];
  }
  uint64_t& word(size_t level, uint32_t at) { return level == starts_.size() ? top_ : words_[starts_[level] + at]; }

  uint64_t top_ = 0;
  std::vector<uint64_t> words_;   // level by level, the lowest first
  std::vector<uint32_t> starts_;  // of each level in `words_`
};

}  // namespace spmdx
