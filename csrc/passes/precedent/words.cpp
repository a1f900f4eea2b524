// SPDX-License-Identifier: Apache-2.0
// Precedents as words: each field in its order, lists after how many they are.
#include "passes/precedent/words.h"

#include <stdexcept>

namespace spmdx {
namespace {

// One function says the order of the fields, for both directions.
template <class Stream, class P>
void each_field(Stream& stream, P& precedent) {
  stream.number(precedent.traced);
  stream.list(precedent.trail.layouts, [&](auto& cuts) { stream.list(cuts, [&](auto& cut) { stream.cut(cut); }); });
  stream.list(precedent.trail.stretches, [&](auto& words) { stream.numbers(words); });
  stream.number(precedent.as_a_whole);
  stream.bits(precedent.split_views);
  stream.bits(precedent.interleaved);
  stream.bits(precedent.expanded);
  stream.bits(precedent.composites);
  stream.number(precedent.costs_asked);
  stream.number(precedent.likeness);
  stream.list(precedent.strategies, [&](auto& strategy) {
    stream.list(strategy.cuts, [&](auto& cut) { stream.cut(cut); });
    stream.number(strategy.partial);
    stream.number(strategy.reduction);
    stream.number(strategy.partial_operands);
  });
  stream.numbers(precedent.of_nodes);
  stream.bits(precedent.transient);
}

class Writer {
 public:
  template <class T>
  void number(const T& value) {
    words.push_back(static_cast<uint64_t>(value));
  }
  template <class T, class Item>
  void list(const std::vector<T>& items, const Item& item) {
    number(items.size());
    for (const T& one : items) item(one);
  }
  void numbers(const std::vector<uint32_t>& values) {
    list(values, [this](uint32_t value) { number(value); });
  }
  void bits(const std::vector<bool>& values) {
    number(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if (i % 64 == 0) words.push_back(0);
      words.back() |= uint64_t{values[i]} << i % 64;
    }
  }
  void cut(const DimSharding& cut) {
    number(cut.sub_axes.size());
    for (const SubAxisId sub_axis : cut.sub_axes) number(sub_axis);
    number(cut.tile);
  }

  std::vector<uint64_t> words;
};

struct Malformed : std::runtime_error {
  Malformed() : std::runtime_error("these are not the words of a precedent") {}
};

class Reader {
 public:
  explicit Reader(std::span<const uint64_t> words) : words_(words) {}
  bool at_end() const { return words_.empty(); }

  template <class T>
  void number(T& value) {
    value = static_cast<T>(take(most_of(value)));
  }
  template <class T, class Item>
  void list(std::vector<T>& items, const Item& item) {
    items.resize(count(1));
    for (T& one : items) item(one);
  }
  void numbers(std::vector<uint32_t>& values) {
    list(values, [this](uint32_t& value) { number(value); });
  }
  void bits(std::vector<bool>& values) {
    values.resize(count(64));
    uint64_t word = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (i % 64 == 0) word = take(UINT64_MAX);
      values[i] = word >> i % 64 & 1;
    }
  }
  void cut(DimSharding& cut) {
    const uint64_t sub_axes = take(kMostSubAxes);
    for (uint64_t i = 0; i < sub_axes; ++i) cut.sub_axes.push_back(static_cast<SubAxisId>(take(kMostSubAxes - 1)));
    cut.tile = static_cast<int64_t>(take(kMostTile));
    if (cut.tile == 0) throw Malformed();
  }

 private:
  static constexpr uint64_t kMostTile = uint64_t{1} << 40;

  static uint64_t most_of(const bool&) { return 1; }
  static uint64_t most_of(const uint32_t&) { return UINT32_MAX; }
  static uint64_t most_of(const int64_t&) { return INT64_MAX; }
  static uint64_t most_of(const uint64_t&) { return UINT64_MAX; }
  static uint64_t most_of(const Reduction&) { return static_cast<uint64_t>(Reduction::all); }

  uint64_t take(uint64_t most) {
    if (words_.empty() || words_.front() > most) throw Malformed();
    const uint64_t word = words_.front();
    words_ = words_.subspan(1);
    return word;
  }
  // Of items, so many of which take at least a word.
  size_t count(uint64_t in_a_word) { return take(in_a_word * words_.size()); }

  std::span<const uint64_t> words_;
};

}  // namespace

std::vector<uint64_t> words_of(const Precedent& precedent) {
  Writer writer;
  each_field(writer, precedent);
  return std::move(writer.words);
}

std::optional<Precedent> precedent_of(std::span<const uint64_t> words) {
  Reader reader(words);
  Precedent precedent;
  try {
    each_field(reader, precedent);
  } catch (const Malformed&) {
    return std::nullopt;
  }
  return reader.at_end() ? std::optional(std::move(precedent)) : std::nullopt;
}

}  // namespace spmdx
