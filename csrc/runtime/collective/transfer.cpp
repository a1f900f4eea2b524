// SPDX-License-Identifier: Apache-2.0
// Transfer: messages out, messages in, shards put together.
#include "runtime/collective/transfer.h"

#include <algorithm>

#include "base/error.h"

namespace spmdx {
namespace {

// What partner i sums, of the elements in one row.
Range share_of(const Target& target, size_t i) {
  return part_of(numel(target.shape), std::ssize(target.partners), static_cast<int64_t>(i));
}

// It comes from another process as the buffer that becomes the term.
bool is_received_whole(const Target& target, const Term& term, int64_t here) {
  return term.size() == 1 && term[0].provider != here && term[0].shape == target.shape;
}

size_t partner_index(const std::vector<int64_t>& partners, int64_t process) {
  return static_cast<size_t>(std::find(partners.begin(), partners.end(), process) - partners.begin());
}

}  // namespace

Transfer::Transfer(Backend& backend, const Route& route, DType dtype, Reduction reduction, Shards shards, bool ours)
    : backend_(backend),
      route_(route),
      dtype_(dtype),
      reduction_(reduction),
      shards_(std::move(shards)),
      ours_(ours),
      arrivals_(route.targets.size()) {}

BufferRef Transfer::shard(const BoxCopy& piece) const {
  const auto at = std::lower_bound(route_.sources.begin(), route_.sources.end(), piece.source);
  const auto index = static_cast<size_t>(at - route_.sources.begin());
  internal_check(at != route_.sources.end() && *at == piece.source && index < shards_.size() && shards_[index],
                 "a collective misses a shard");
  return shards_[index];
}

BufferRef Transfer::join(const Summand& summand, const Shape& shape) const {
  if (summand.size() == 1)
    return summand[0].whole ? shard(summand[0]) : backend_.narrow(shard(summand[0]), summand[0].box);
  BufferRef whole = backend_.empty(dtype_, shape);
  for (const BoxCopy& piece : summand) backend_.copy_box(whole, piece.starts, shard(piece), piece.box);
  return whole;
}

BufferRef Transfer::give(const Contribution& contribution) const {
  if (contribution.summands.size() == 1) return join(contribution.summands[0], contribution.shape);
  Shards terms;
  for (const Summand& summand : contribution.summands) terms.push_back(join(summand, contribution.shape));
  return backend_.reduce(terms, reduction_);
}

void Transfer::ask(const Target& target, Arrival& arrival, Messages& receives) const {
  if (target.native) return;
  const auto await = [&](int64_t peer, const Shape& shape) {
    arrival.received.push_back(backend_.empty(dtype_, shape));
    receives.push_back({peer, arrival.received.back()});
  };
  const auto& partners = target.partners;
  if (!partners.empty()) {
    const size_t here = partner_index(partners, route_.here);
    arrival.mine = backend_.reshape(give(target.terms[here].front()), {numel(target.shape)});
    for (const int64_t partner : partners)
      if (partner != route_.here) await(partner, {share_of(target, here).extent});
    return;
  }
  for (const Term& term : target.terms)
    for (const Contribution& contribution : term)
      if (contribution.provider != route_.here) await(contribution.provider, contribution.shape);
}

void Transfer::first_round(Messages& sends, Messages& receives, NativeCalls& calls) {
  for (size_t t = 0; t < arrivals_.size(); ++t) ask(route_.targets[t], arrivals_[t], receives);
  for (const Delivery& delivery : route_.deliveries) {
    if (!delivery.contribution.summands.empty()) {
      sends.push_back({delivery.peer, give(delivery.contribution)});
      continue;
    }
    const Target& target = route_.targets[delivery.target];
    const size_t there = partner_index(target.partners, delivery.peer);
    sends.push_back({delivery.peer, backend_.narrow(arrivals_[delivery.target].mine, {share_of(target, there)})});
  }
  call_natives(calls);
}

bool Transfer::is_one_round() const {
  return route_.natives.empty() && std::all_of(route_.targets.begin(), route_.targets.end(),
                                               [](const Target& target) { return target.partners.empty(); });
}

void Transfer::second_round(Messages& sends, Messages& receives) {
  for (size_t t = 0; t < arrivals_.size(); ++t) {
    const Target& target = route_.targets[t];
    const auto& partners = target.partners;
    if (partners.empty()) continue;
    Arrival& arrival = arrivals_[t];
    const size_t here = partner_index(partners, route_.here);
    Shards terms = arrival.received;
    terms.insert(terms.begin() + static_cast<int64_t>(here), backend_.narrow(arrival.mine, {share_of(target, here)}));
    const BufferRef sum = backend_.reduce(terms, reduction_, here == 0 ? 1 : 0);  // one that was received
    for (size_t i = 0; i < partners.size(); ++i) {
      const Shape shape = {share_of(target, i).extent};
      arrival.parts.push_back(i == here ? sum : backend_.empty(dtype_, shape));
      if (i == here) continue;
      sends.push_back({partners[i], sum});
      receives.push_back({partners[i], arrival.parts.back()});
    }
  }
}

BufferRef Transfer::joined_shards(const Target& target) const {
  Shards parts;
  for (const Contribution& piece : target.terms[0]) parts.push_back(shard(piece.summands[0][0]));
  BufferRef whole = backend_.empty(dtype_, target.shape);
  backend_.concatenate(whole, parts, static_cast<size_t>(target.joined));
  return whole;
}

BufferRef Transfer::finish_term(const Target& target, const Term& term, const Arrival& arrival, size_t& next) const {
  const auto value = [&](const Contribution& contribution) {
    return contribution.provider == route_.here ? give(contribution) : arrival.received.at(next++);
  };
  if (term.size() == 1 && term[0].shape == target.shape) return value(term[0]);
  BufferRef whole =
      target.holes ? backend_.identity(dtype_, target.shape, Reduction::sum) : backend_.empty(dtype_, target.shape);
  for (const Contribution& contribution : term) {
    const bool piece_here = contribution.provider == route_.here && contribution.summands.size() == 1 &&
                            contribution.summands[0].size() == 1;
    if (piece_here) {
      const BoxCopy& piece = contribution.summands[0][0];
      backend_.copy_box(whole, contribution.starts, shard(piece), piece.box);
    } else {
      backend_.copy_box(whole, contribution.starts, value(contribution), whole_box(contribution.shape));
    }
  }
  return whole;
}

BufferRef Transfer::finish_shared(const Target& target, const Arrival& arrival) const {
  BufferRef row = backend_.empty(dtype_, {numel(target.shape)});
  for (size_t i = 0; i < arrival.parts.size(); ++i) {
    const Range range = share_of(target, i);
    backend_.copy_box(row, {range.start}, arrival.parts[i], {{0, range.extent}});
  }
  return backend_.reshape(row, target.shape);
}

// As one that was received lies.
BufferRef Transfer::in_rows(const BufferRef& buffer, const Shape& shape) const {
  return backend_.reshape(backend_.reshape(backend_.compact(buffer), {numel(shape)}), shape);
}

BufferRef Transfer::part_of_sum(const Target& target) {
  const std::vector<Summand>& summands = target.terms[0][0].summands;
  BufferRef& sum = sums_[target.sum];
  if (!sum) {
    Shards terms;
    for (const Summand& summand : summands) terms.push_back(shard(summand[0]));
    sum = backend_.reduce(terms, reduction_);
  }
  return backend_.narrow(sum, summands[0][0].box);
}

BufferRef Transfer::finish_target(const Target& target, const Arrival& arrival) {
  if (target.identity) return backend_.identity(dtype_, target.shape, reduction_);
  if (target.terms.empty()) return backend_.empty(dtype_, target.shape);
  if (target.native && !arrival.parts.empty()) return arrival.parts.front();
  if (!target.partners.empty()) return finish_shared(target, arrival);
  if (target.joined >= 0) return joined_shards(target);
  if (target.sum != Target::kAlone) return part_of_sum(target);
  Shards terms;
  size_t next = 0;
  int ours = -1;
  for (const Term& term : target.terms) {
    if (terms.size() < 2 && is_received_whole(target, term, route_.here)) ours = static_cast<int>(terms.size());
    terms.push_back(finish_term(target, term, arrival, next));
  }
  return terms.size() == 1 ? terms[0] : backend_.reduce(terms, reduction_, ours);
}

Shards Transfer::finish() {
  Shards shards;
  sums_.resize(arrivals_.size());
  for (size_t n = 0; n < taken_.size(); ++n) hand_out(route_.natives[n], taken_[n]);
  for (size_t t = 0; t < arrivals_.size(); ++t) {
    const Target& target = route_.targets[t];
    const BufferRef shard = finish_target(target, arrivals_[t]);
    shards.push_back(target.in_rows ? in_rows(shard, target.shape) : shard);
  }
  return shards;
}

Shards transfer_here(Backend& backend, DType dtype, const Relayout& relayout, Shards shards) {
  const Route route = make_route({}, relayout);
  return Transfer(backend, route, dtype, relayout.reduction(), std::move(shards)).finish();
}

}  // namespace spmdx
