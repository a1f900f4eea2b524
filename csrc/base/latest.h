// SPDX-License-Identifier: Apache-2.0
// Latest: a bounded table of what was used last, in two generations: the young one becomes the old one when it is full.
#pragma once
#include <cstddef>
#include <functional>
#include <unordered_map>
#include <utility>

namespace spmdx {

// Holds up to 2·half entries; an entry that is looked up moves to the young generation. What leaves is dropped, so
// values are handed out as copies (a shared_ptr). Not thread-safe.
template <class Key, class Value, class Hash = std::hash<Key>, class Equal = std::equal_to<Key>>
class Latest {
 public:
  explicit Latest(size_t half) : half_(half) {}

  const Value* find(const Key& key) {
    if (const auto young = young_.find(key); young != young_.end()) return &young->second;
    const auto old = old_.find(key);
    if (old == old_.end()) return nullptr;
    Value value = std::move(old->second);
    old_.erase(old);
    return &insert(key, std::move(value));
  }

  // The value that is there already, if there is one.
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
