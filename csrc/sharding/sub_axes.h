// SPDX-License-Identifier: Apache-2.0
// Sub-axes of a mesh: as a set, and as a list in their order.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>

#include "base/error.h"

namespace spmdx {

using SubAxisId = uint8_t;    // index into Mesh::sub_axes(); major → minor within an axis
using SubAxisSet = uint64_t;  // bit i set: sub-axis i is a member
constexpr size_t kMostSubAxes = 64;

// Used as a vector is. It lies in place, since searches copy very many.
class SubAxisList {
 public:
  using value_type = SubAxisId;
  using iterator = SubAxisId*;
  using const_iterator = const SubAxisId*;

  SubAxisList() = default;
  SubAxisList(std::initializer_list<SubAxisId> list) : SubAxisList(list.begin(), list.end()) {}
  template <class Iterator>
  SubAxisList(Iterator first, Iterator last) {
    for (; first != last; ++first) push_back(*first);
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  iterator begin() { return list_.data(); }
  iterator end() { return list_.data() + size_; }
  const_iterator begin() const { return list_.data(); }
  const_iterator end() const { return list_.data() + size_; }
  SubAxisId operator[](size_t at) const { return list_[at]; }
  SubAxisId front() const { return list_[0]; }
  SubAxisId back() const { return list_[size_ - 1]; }

  void push_back(SubAxisId sub_axis) {
    internal_check(size_ < kMostSubAxes, "more sub-axes than a mesh has");
    list_[size_++] = sub_axis;
  }
  // Behind the others.
  void append(const SubAxisList& more) { append(more.begin(), more.end()); }
  void append(const_iterator first, const_iterator last) {
    for (; first != last; ++first) push_back(*first);
  }
  // Drops what lies behind.
  void shorten(size_t size) { size_ = static_cast<uint8_t>(size); }
  template <class Predicate>
  void drop_if(const Predicate& predicate) {
    shorten(static_cast<size_t>(std::remove_if(begin(), end(), predicate) - begin()));
  }

  bool operator==(const SubAxisList& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

 private:
  uint8_t size_ = 0;
  std::array<SubAxisId, kMostSubAxes> list_{};  // what lies behind the last one has no meaning
};

// How many sub-axes both begin with.
inline size_t common_prefix(const SubAxisList& a, const SubAxisList& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

inline SubAxisSet sub_axis_set(const SubAxisList& sub_axes) {
  SubAxisSet set = 0;
  for (SubAxisId a : sub_axes) set |= SubAxisSet{1} << a;
  return set;
}
SubAxisList sub_axis_list(SubAxisSet set);  // ascending

}  // namespace spmdx
