// SPDX-License-Identifier: Apache-2.0
// Candidates: the strategies that the shardings of an op's tensors suggest.
#include <algorithm>

#include "passes/settings/limits.h"
#include "passes/strategy/strategy.h"

namespace spmdx {
namespace {

// Adds what `more` cuts beyond `strategy`, as far as sub-axes are free and the factor can take them.
void merge(const OpContext& op, Strategy& strategy, const Strategy& more) {
  SubAxisSet used = strategy.used();
  for (size_t f = 0; f < strategy.cuts.size(); ++f) {
    DimSharding& mine = strategy.cuts[f];
    const DimSharding& other = more.cuts[f];
    if (other.sub_axes.size() <= mine.sub_axes.size()) continue;
    if (!mine.empty() && mine.tile != other.tile) continue;
    if (!std::equal(mine.sub_axes.begin(), mine.sub_axes.end(), other.sub_axes.begin())) continue;
    DimSharding longer{mine.sub_axes, other.tile};
    for (size_t i = mine.sub_axes.size(); i < other.sub_axes.size(); ++i) {
      if (used & (SubAxisSet{1} << other.sub_axes[i])) break;
      longer.sub_axes.push_back(other.sub_axes[i]);
    }
    while (longer.sub_axes.size() > mine.sub_axes.size() && !is_legal(*op.mesh, longer, op.rule->factors[f].size))
      longer.sub_axes.shorten(longer.sub_axes.size() - 1);
    if (longer.sub_axes.size() <= mine.sub_axes.size()) continue;
    used |= sub_axis_set(longer.sub_axes);
    mine = std::move(longer);
  }
}

struct Hint {
  Strategy strategy;
  int64_t bytes;
};

// By factor: how many operands the hints cut by it.
std::vector<int> operands_cut(const OpContext& op, const std::vector<std::vector<ShardingRef>>& hints) {
  std::vector<int> count(op.rule->factors.size(), 0);
  for (size_t t = 0; t < op.rule->inputs.size(); ++t) {
    std::vector<bool> cut(count.size(), false);
    for (const ShardingRef& sharding : hints[t]) {
      if (!sharding) continue;
      const Strategy strategy = project(op, t, sharding);
      for (size_t f = 0; f < cut.size(); ++f) cut[f] = cut[f] || !strategy.cuts[f].empty();
    }
    for (size_t f = 0; f < cut.size(); ++f) count[f] += cut[f];
  }
  return count;
}

// By factor: whether the op cannot take its cut, or only at the price of a product's sum. Where two operands are cut
// alike, the sum is intended: anything else would gather one of them.
std::vector<bool> in_the_way(const OpContext& op, const std::vector<DimSharding>& cuts, const std::vector<int>& count) {
  std::vector<bool> blocked(cuts.size(), false);
  Strategy rest{cuts, 0, Reduction::none};
  for (size_t f = 0; f < cuts.size(); ++f)
    if (!may_cut(op, op.rule->factors[f])) rest.cuts[f] = {};
  const bool is_there = fits(op, rest), product = op.rule->product;
  for (size_t f = 0; f < cuts.size(); ++f)
    blocked[f] = !cuts[f].empty() && (!is_there || rest.cuts[f].empty() ||
                                      (product && op.rule->factors[f].kind == FactorKind::reduce && count[f] == 1));
  return blocked;
}

// Of these sub-axes the longest minor part that divides the factor evenly: the major ones can go on cutting what they
// cut now.
SubAxisList minor_part(const Mesh& mesh, const SubAxisList& sub_axes, int64_t size) {
  for (auto first = sub_axes.begin(); first != sub_axes.end(); ++first) {
    SubAxisList part(first, sub_axes.end());
    if (size % mesh.group_size(sub_axis_set(part)) == 0 && is_legal(mesh, {part, 1}, size)) return part;
  }
  return {};
}

// `rest` with the sub-axes on each of these factors, or with their longest minor part that some of the factors can
// take. At most kLimits.moved, in the order of factors.
std::vector<Strategy> each_with(const OpContext& op, const Strategy& rest, const SubAxisList& sub_axes,
                                const std::vector<size_t>& factors) {
  std::vector<Strategy> result;
  size_t longest = 0;
  for (const size_t f : factors) {
    SubAxisList part = minor_part(*op.mesh, sub_axes, op.rule->factors[f].size);
    if (part.empty() || part.size() < longest) continue;
    if (part.size() > longest) result.clear();
    longest = part.size();
    if (result.size() == kLimits.moved) continue;
    Strategy strategy = rest;
    strategy.cuts[f] = {std::move(part), 1};
    result.push_back(std::move(strategy));
  }
  return result;
}

// Where a cut of `sharding` is blocked: the same sub-axes, as far as they divide it, on a factor that passes. An
// all_to_all leads there, which is cheaper than a gather.
std::vector<Strategy> moved(const OpContext& op, size_t tensor, const ShardingRef& sharding,
                            const std::vector<int>& count) {
  Strategy rest;
  rest.cuts = cuts_of(op, tensor, sharding);
  const std::vector<bool> blocked = in_the_way(op, rest.cuts, count);
  SubAxisList sub_axes;
  for (size_t f = 0; f < blocked.size(); ++f) {
    if (!blocked[f]) continue;
    sub_axes.append(rest.cuts[f].sub_axes);
    rest.cuts[f] = {};
  }
  if (sub_axes.empty()) return {};
  std::vector<size_t> open;
  for (size_t f = 0; f < blocked.size(); ++f)
    if (!blocked[f] && op.rule->factors[f].kind == FactorKind::pass && rest.cuts[f].empty() &&
        has_factor(op.factors(tensor), static_cast<int>(f)))
      open.push_back(f);
  return each_with(op, rest, sub_axes, open);
}

void add_hint(std::vector<Hint>& found, Strategy strategy, int64_t bytes) {
  if (strategy.used() == 0) return;
  auto same = std::find_if(found.begin(), found.end(), [&](const Hint& h) { return h.strategy == strategy; });
  if (same == found.end())
    found.push_back({std::move(strategy), bytes});
  else
    same->bytes = std::max(same->bytes, bytes);
}

void sort_hints(std::vector<Hint>& found) {
  std::stable_sort(found.begin(), found.end(), [](const Hint& a, const Hint& b) { return a.bytes > b.bytes; });
}

bool sums(const OpContext& op, const Strategy& strategy) {
  for (size_t f = 0; f < strategy.cuts.size(); ++f)
    if (op.rule->factors[f].kind == FactorKind::reduce && !strategy.cuts[f].empty()) return true;
  return false;
}

// Of a product, where two tensors cut different factors by the same sub-axes, or one that is summed over: those
// sub-axes, as far as they divide it, on a factor that all operands have. Two all_to_alls may be less than a gather or
// a sum.
std::vector<Strategy> agreed(const OpContext& op, const std::vector<Hint>& found) {
  if (found.empty() || !op.rule->product) return {};
  const Strategy& first = found[0].strategy;
  const auto differs = [&](const Hint& h) { return h.strategy.used() == first.used() && h.strategy != first; };
  if (!sums(op, first) && std::none_of(found.begin() + 1, found.end(), differs)) return {};
  SubAxisList sub_axes;
  for (const DimSharding& cut : first.cuts) sub_axes.append(cut.sub_axes);
  std::vector<size_t> shared;
  for (size_t f = 0; f < first.cuts.size(); ++f) {
    const auto has = [&](const TensorFactors& factors) { return has_factor(factors, static_cast<int>(f)); };
    if (op.rule->factors[f].kind == FactorKind::pass &&
        std::all_of(op.rule->inputs.begin(), op.rule->inputs.end(), has))
      shared.push_back(f);
  }
  return each_with(op, Strategy{std::vector<DimSharding>(first.cuts.size())}, sub_axes, shared);
}

// First what the tensors suggest directly, then what they suggest with blocked sub-axes moved; in both the largest
// tensor first.
std::vector<Hint> collect_hints(const OpContext& op, const std::vector<std::vector<ShardingRef>>& hints) {
  std::vector<Hint> found, far;
  const std::vector<int> count = op.composite ? std::vector<int>{} : operands_cut(op, hints);
  for (size_t t = 0; t < hints.size(); ++t)
    for (const ShardingRef& sharding : hints[t]) {
      if (!sharding || sharding->dim_sub_axes() == 0) continue;
      add_hint(found, project(op, t, sharding), op.type(t).bytes());
      if (op.composite) continue;  // while propagating: other ops should not follow a way around this one
      for (Strategy& strategy : moved(op, t, sharding, count)) add_hint(far, std::move(strategy), op.type(t).bytes());
    }
  sort_hints(found);
  sort_hints(far);
  if (!op.composite)
    for (Strategy& strategy : agreed(op, found)) add_hint(far, std::move(strategy), 0);
  for (Hint& hint : far) add_hint(found, std::move(hint.strategy), 0);
  return found;
}

}  // namespace

std::vector<Strategy> candidates(const OpContext& op, const std::vector<std::vector<ShardingRef>>& hints) {
  const std::vector<Hint> found = collect_hints(op, hints);
  std::vector<Strategy> result;
  for (size_t lead = 0; lead < found.size(); ++lead) {
    Strategy strategy = found[lead].strategy;
    for (size_t i = 0; i < found.size(); ++i)
      if (i != lead) merge(op, strategy, found[i].strategy);
    if (std::find(result.begin(), result.end(), strategy) == result.end()) result.push_back(std::move(strategy));
    if (found[lead].strategy != result.back() &&
        std::find(result.begin(), result.end(), found[lead].strategy) == result.end())
      result.push_back(found[lead].strategy);
  }
  result.push_back(Strategy{std::vector<DimSharding>(op.rule->factors.size()), 0, Reduction::none});
  return result;
}

}  // namespace spmdx
