// SPDX-License-Identifier: Apache-2.0
// Transfer by native collectives: rows out, rows in, and which elements of them are whose.
#include <algorithm>
#include <utility>

#include "runtime/collective/transfer.h"

namespace spmdx {
namespace {

// The contributions, one after the other, are the target itself: slices of its first dim that it is made up of in the
// order of the members, a row of one length from each.
bool are_rows_of(const Target& target, const Native& native) {
  if (native.targets.size() != 1 || target.shape.empty()) return false;
  int64_t at = 0, provider = -1;
  for (const Contribution& part : target.terms.front()) {
    if (part.provider < provider || part.starts.front() != at) return false;
    if (!std::equal(part.shape.begin() + 1, part.shape.end(), target.shape.begin() + 1, target.shape.end()))
      return false;
    at += part.shape.front();
    provider = part.provider;
  }
  return at == target.shape.front();
}

}  // namespace

// What it gives is one shard, of which the move needs nothing else.
bool Transfer::gives_ours(const Native& native) const {
  if (!ours_ || native.kind != NativeKind::all_reduce || native.gives.size() != 1 || shards_.size() != 1) return false;
  const std::vector<Summand>& summands = native.gives[0].summands;
  return route_.natives.size() == 1 && route_.deliveries.empty() && summands.size() == 1 && summands[0].size() == 1 &&
         summands[0][0].whole && std::ranges::all_of(route_.targets, &Target::native);
}

BufferRef Transfer::given_to(const Native& native) {
  if (gives_ours(native) && backend_.is_alone(shards_[0]))
    return backend_.reshape(std::exchange(shards_[0], nullptr), {native.part});
  Shards parts;
  int64_t elements = 0;
  for (const Contribution& part : native.gives) {
    elements += numel(part.shape);
    parts.push_back(backend_.reshape(give(part), {numel(part.shape)}));
  }
  if (parts.size() == 1 && native.kind == NativeKind::all_gather) return parts.front();
  BufferRef row = backend_.empty(dtype_, {elements});
  backend_.concatenate(row, parts, 0);
  return row;
}

void Transfer::hand_out_rows(const Native& native, const BufferRef& rows) {
  const Target& first = route_.targets[native.targets.front()];
  if (are_rows_of(first, native)) {
    arrivals_[native.targets.front()].parts = {backend_.reshape(rows, first.shape)};
    return;
  }
  std::vector<int64_t> next;
  for (size_t member = 0; member < native.group.size(); ++member)
    next.push_back(static_cast<int64_t>(member) * native.part);
  for (const size_t target : native.targets)
    for (const Contribution& part : route_.targets[target].terms.front()) {
      const auto member = std::ranges::lower_bound(native.group, part.provider) - native.group.begin();
      const Range range{next[member], numel(part.shape)};
      next[member] += range.extent;
      if (part.provider != route_.here)
        arrivals_[target].received.push_back(backend_.reshape(backend_.narrow(rows, {range}), part.shape));
    }
}

void Transfer::hand_out_sums(const Native& native, const BufferRef& sums) {
  int64_t next = 0;
  for (const size_t target : native.targets) {
    const Shape& shape = route_.targets[target].shape;
    arrivals_[target].parts = {backend_.reshape(backend_.narrow(sums, {{next, numel(shape)}}), shape)};
    next += numel(shape);
  }
}

void Transfer::hand_out(const Native& native, const BufferRef& taken) {
  native.kind == NativeKind::all_gather ? hand_out_rows(native, taken) : hand_out_sums(native, taken);
}

void Transfer::call_natives(NativeCalls& calls) {
  for (const Native& native : route_.natives) {
    const int64_t members = native.kind == NativeKind::all_gather ? std::ssize(native.group) : 1;
    NativeCall call{native.kind, &native.group, given_to(native), nullptr};
    call.taken = native.kind == NativeKind::all_reduce ? call.given : backend_.empty(dtype_, {native.part * members});
    taken_.push_back(call.taken);
    calls.push_back(std::move(call));
  }
}

}  // namespace spmdx
