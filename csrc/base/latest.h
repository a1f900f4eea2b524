// SPDX-License-Identifier: Apache-2.0
// Latest: a table of bounded size that keeps the entries used last.
#pragma once
#include <cstddef>
#include <functional>
#include <unordered_map>
#include <utility>

namespace spmdx {

// It has two generations of up to `half` entries. An entry that is added or found goes to the young one; when that is
// full, the old generation is dropped and the young one takes its place. A returned pointer or reference is valid until
// the next call, so callers copy the value (a shared_ptr). Not thread-safe.
template <class Key, class Value, class Hash = std::hash<Key>, class Equal = std::equal_to<Key>>
class Latest {
 public:
  explicit Latest(size_t half) : half_(half) {}

  // The value of the key, or null.
  const Value* find(const Key& key) {
    if (const auto young = young_.find(key); young != young_.end()) return &young->second;
    const auto old = old_.find(key);
    if (old == old_.end()) return nullptr;
    Value value = std::move(old->second);
    old_.erase(old);
    return &insert(key, std::move(value));
  }

  // Adds the value, if the young generation has none for the key. Returns the value that it then has.
  const Value& insert(Key key, Value value) {
    if (young_.size() >= half_) old_ = std::exchange(young_, {});
    return young_.try_emplace(std::move(key), std::move(value)).first->second;
  }

  size_t size() const { return young_.size() + old_.size(); }
  void clear() { young_.clear(), old_.clear(); }

 private:
  size_t half_;
  std::unordered_map<Key, Value, Hash, Equal> young_, old_;
};

}  // namespace spmdx
