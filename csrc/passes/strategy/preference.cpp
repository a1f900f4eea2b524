// SPDX-License-Identifier: Apache-2.0
// Preference: the cheapest candidate of one node, the moves around it among the costs.
#include "passes/strategy/preference.h"

#include <algorithm>

namespace spmdx {
namespace {

// Time of moving one tensor between what is known of it and what a strategy wants.
int64_t move_ns(const Known& known, ValueId value, bool is_input, const TensorType& type, const ShardingRef& wanted,
                const Topology& topology) {
  const auto time = [&](const ShardingRef& from, const ShardingRef& to) {
    return from == to ? 0 : plan_reshard(type.dtype, type.shape, from, to, topology)->cost_ns;
  };
  const ShardingRef& known_so_far = known.shardings[value];
  if (is_input) return time(known_so_far, wanted);
  if (known.fixed[value] || !known_so_far->replicated()) return time(wanted, known_so_far);
  return wanted->partial ? time(wanted, without_partial(wanted, type.shape)) : 0;
}

int64_t cost(const Node& node, const OpContext& op, const Strategy& strategy, const Placement& placement,
             const Known& known, const Topology& topology) {
  const OpTime time = time_of(op, strategy, topology);
  int64_t total = (op.rule->product ? time.weighted_ns : time.clock_ns) + composite_ns(op, strategy, topology);
  for (size_t t = 0; t < op.num_tensors(); ++t) {
    const ValueId value = tensor_of(node, t);
    if (known.hidden[value]) continue;
    total += move_ns(known, value, t < node.inputs.size(), op.type(t), placement.of(t), topology);
  }
  return total;
}

}  // namespace

ValueId tensor_of(const Node& node, size_t tensor) {
  const size_t operands = node.inputs.size();
  return tensor < operands ? node.inputs[tensor] : node.output + static_cast<ValueId>(tensor - operands);
}

std::optional<Strategy> preferred(const Node& node, const OpContext& op, const Known& known, const Topology& topology) {
  std::vector<std::vector<ShardingRef>> hints(op.num_tensors());
  bool any = false;
  for (size_t t = 0; t < hints.size(); ++t) {
    const ValueId value = tensor_of(node, t);
    if (!known.cuts(value)) continue;
    hints[t].push_back(known.shardings[value]);
    any = true;
  }
  if (!any) return std::nullopt;
  std::optional<Strategy> best;
  int64_t best_cost = 0;
  for (Strategy& strategy : candidates(op, hints)) {
    const auto placement = place(op, strategy);
    if (!placement) continue;
    const int64_t ns = cost(node, op, strategy, *placement, known, topology);
    if (!best || ns < best_cost) {
      best = std::move(strategy);
      best_cost = ns;
    }
  }
  return best;
}

const PreferenceTable::Preference* PreferenceTable::of(const Node& node, const OpContext& op, const Known& known) {
  std::vector<TensorKnown> tensors;
  uint64_t h = op.call->hash;
  bool any = false;
  for (size_t t = 0; t < op.num_tensors(); ++t) {
    const ValueId value = tensor_of(node, t);
    tensors.push_back({known.shardings[value], known.fixed[value], known.hidden[value]});
    h = hash_combine(hash_combine(h, reinterpret_cast<uintptr_t>(tensors.back().sharding.get())),
                     2 * known.fixed[value] + known.hidden[value]);
    any |= known.cuts(value);
  }
  if (!any) return nullptr;
  auto& bucket = entries_[h];
  auto at = std::find_if(bucket.begin(), bucket.end(), [&](const auto& entry) {
    return entry->tensors == tensors && (entry->call == op.call || *entry->call == *op.call);
  });
  if (at == bucket.end()) {
    Entry entry{op.call, std::move(tensors), std::nullopt};
    if (auto strategy = preferred(node, op, known, topology_)) {
      Placement placement = *place(op, *strategy);
      entry.preference = Preference{std::move(*strategy), std::move(placement)};
    }
    bucket.push_back(std::make_unique<Entry>(std::move(entry)));
    at = bucket.end() - 1;
  }
  return (*at)->preference ? &*(*at)->preference : nullptr;
}

}  // namespace spmdx
