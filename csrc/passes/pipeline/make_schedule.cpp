// SPDX-License-Identifier: Apache-2.0
// Makes named schedules: the order of a rank's forwards, that of its backwards, and how they are merged.
#include "passes/pipeline/make_schedule.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "base/error.h"

namespace spmdx {
namespace {

constexpr int64_t kMostForwards = 16'777'216;

struct Kind {
  enum class Name { gpipe, one_f_one_b, interleaved, zero_bubble } name;
  int64_t chunks = 1;
};

std::optional<Kind> kind_of(std::string_view text) {
  constexpr std::string_view kInterleaved = "interleaved:";
  if (text == "gpipe") return Kind{Kind::Name::gpipe};
  if (text == "1f1b") return Kind{Kind::Name::one_f_one_b};
  if (text == "zb-h1") return Kind{Kind::Name::zero_bubble};
  if (!text.starts_with(kInterleaved)) return std::nullopt;
  const std::string_view digits = text.substr(kInterleaved.size());
  int64_t chunks = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), chunks);
  const bool is_whole = error == std::errc() && end == digits.data() + digits.size();
  return is_whole && chunks > 0 ? std::optional(Kind{Kind::Name::interleaved, chunks}) : std::nullopt;
}

void require_count(const char* what, int64_t count) {
  if (count < 1 || count >= kMostCounted)
    throw ShardingError("a schedule for " + std::to_string(count) + " " + what + ". Expected from 1 to " +
                        std::to_string(kMostCounted - 1) + ". Give the number that the pipeline has.");
}

// Microbatches go through the chunks in rounds of at least as many as there are ranks, so that a round's first one is
// back from the last rank when the first rank wants it. Rounds differ by 1 at most. The larger ones come first: a
// backward is then never wanted before its forward.
std::vector<int32_t> rounds_of(int32_t ranks, int32_t microbatches) {
  const int32_t count = std::max(1, microbatches / ranks);
  std::vector<int32_t> sizes(count, microbatches / count);
  std::fill_n(sizes.begin(), microbatches % count, microbatches / count + 1);
  return sizes;
}

// The order of a rank's forwards. Backwards have the same one with the chunks from the last.
std::vector<Action> forwards(const std::vector<int32_t>& rounds, int32_t chunks) {
  std::vector<Action> order;
  int32_t first = 0;
  for (const int32_t size : rounds) {
    for (int32_t chunk = 0; chunk < chunks; ++chunk)
      for (int32_t i = 0; i < size; ++i) order.push_back({ActionKind::F, chunk, first + i});
    first += size;
  }
  return order;
}

// How a rank merges its forwards and backwards: after `warmup` forwards one of each in turns, then what is left. With
// `delay`, backwards are in halves, and the second one follows the first one of so many backwards later.
struct Merge1F1B {
  int32_t warmup = 0;
  std::optional<int32_t> delay;
};

std::vector<Action> merged(const std::vector<Action>& forwards, int32_t chunks, const Merge1F1B& merge) {
  const auto count = static_cast<int32_t>(forwards.size());
  const auto backward = [&](int32_t i, ActionKind kind) {
    return Action{kind, chunks - 1 - forwards[i].chunk, forwards[i].microbatch};
  };
  std::vector<Action> order(forwards.begin(), forwards.begin() + std::min(merge.warmup, count));
  for (int32_t i = 0; i < count; ++i) {
    if (merge.warmup + i < count) order.push_back(forwards[merge.warmup + i]);
    order.push_back(backward(i, merge.delay ? ActionKind::I : ActionKind::B));
    if (merge.delay && i >= *merge.delay) order.push_back(backward(i - *merge.delay, ActionKind::W));
  }
  for (int32_t i = std::max(0, count - merge.delay.value_or(0)); i < count; ++i)
    order.push_back(backward(i, ActionKind::W));
  return order;
}

Merge1F1B merge_of(const Kind& kind, int32_t rank, int32_t ranks, int32_t microbatches, int32_t round) {
  const int32_t behind = ranks - 1 - rank;
  switch (kind.name) {
    case Kind::Name::gpipe:
      return {microbatches, std::nullopt};
    case Kind::Name::one_f_one_b:
      return {behind, std::nullopt};
    case Kind::Name::interleaved:
      return {static_cast<int32_t>(kind.chunks - 1) * round + (kind.chunks > 1 ? 2 : 1) * behind, std::nullopt};
    case Kind::Name::zero_bubble:
      return {behind, rank};
  }
  throw InternalError("a schedule of no kind");
}

}  // namespace

Schedule make_schedule(std::string_view kind, int64_t ranks, int64_t microbatches) {
  const auto known = kind_of(kind);
  if (!known)
    throw ShardingError("no schedule is called '" + std::string(kind) +
                        "'. Expected 'gpipe', '1f1b', 'interleaved:2' or another number of chunks, or 'zb-h1'. Write "
                        "one of these, or read a table of your own.");
  require_count("ranks", ranks);
  require_count("microbatches", microbatches);
  require_count("chunks", known->chunks);
  if (ranks * microbatches > kMostForwards / known->chunks)
    throw ShardingError("a schedule for " + std::to_string(ranks) + " ranks, " + std::to_string(known->chunks) +
                        " chunks and " + std::to_string(microbatches) + " microbatches. Expected at most " +
                        std::to_string(kMostForwards) + " forwards. Make fewer microbatches.");
  const auto p = static_cast<int32_t>(ranks), m = static_cast<int32_t>(microbatches);
  const auto chunks = static_cast<int32_t>(known->chunks);
  const std::vector<int32_t> rounds = chunks > 1 ? rounds_of(p, m) : std::vector<int32_t>{m};
  const std::vector<Action> order = forwards(rounds, chunks);
  Schedule schedule;
  for (int32_t rank = 0; rank < p; ++rank)
    schedule.ranks.push_back(merged(order, chunks, merge_of(*known, rank, p, m, rounds[0])));
  return schedule;
}

}  // namespace spmdx
