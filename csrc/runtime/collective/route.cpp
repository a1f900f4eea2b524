// SPDX-License-Identifier: Apache-2.0
// Route: the assemblies of all processes that send to or receive from this one; the nearest holder gives each piece.
#include "runtime/collective/route.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

using Providers = std::vector<int64_t>;

class Router {
 public:
  Router(const Processes& processes, const Relayout& relayout, NativeRules rules)
      : processes_(processes), relayout_(relayout), rules_(rules) {}

  Route run() {
    for (int64_t process = 0; process < processes_.count; ++process) {
      targets_[process] = targets_of(process);
      for (const auto& [index, target] : targets_[process]) providers_[{process, index}] = providers_of(target);
    }
    lay_out_received();
    Route route;
    route.natives = find_natives(processes_.here, rules_, targets_);
    for (auto& [process, targets] : targets_)
      for (auto& [index, target] : targets)
        if (!target.native) target.partners = partners_of(process, index);
    route.here = processes_.here;
    route.sources = holdings(processes_.here);
    for (const auto& [peer, targets] : targets_)
      if (peer != processes_.here) deliver_to(peer, targets, route);
    route.crosses = !route.deliveries.empty() || !route.natives.empty();
    for (auto& [index, target] : targets_[processes_.here]) {
      route.crosses |= is_received(processes_.here, target);
      target.joined = joined_along(target);
      route.targets.push_back(std::move(target));
    }
    find_common_sums(route.targets);
    return route;
  }

 private:
  const Sharding& from() const { return *relayout_.from; }
  const Sharding& to() const { return *relayout_.to; }

  const std::vector<int64_t>& holdings(int64_t process) {
    const auto [at, fresh] = holdings_.try_emplace(process);
    if (fresh) at->second = held_by(processes_, process, *from().mesh, from().used(), from().place);
    return at->second;
  }

  bool holds(int64_t process, const BoxCopy& piece) {
    const auto& held = holdings(process);
    return std::binary_search(held.begin(), held.end(), piece.source);
  }

  bool holds_all(int64_t process, const std::vector<Summand>& summands) {
    for (const Summand& summand : summands)
      for (const BoxCopy& piece : summand)
        if (!holds(process, piece)) return false;
    return true;
  }

  int64_t owner_of(const BoxCopy& piece) const { return processes_.owner(from().mesh->device_ids()[piece.position]); }

  // The process itself, if it holds them; else the owner of the nearest device, if that holds them; else `last`.
  int64_t provider(int64_t process, const std::vector<Summand>& summands, int64_t last) {
    if (holds_all(process, summands)) return process;
    const int64_t near = owner_of(summands.front().front());
    return holds_all(near, summands) ? near : last;
  }

  // The one owner of all pieces of a summand, seen from the canonical device of the target; -1: there are several.
  int64_t sole_owner(const Summand& summand) const {
    for (const BoxCopy& piece : summand)
      if (owner_of(piece) != owner_of(summand.front())) return -1;
    return summand.empty() ? -1 : owner_of(summand.front());
  }

  Term pieces_of(int64_t process, const Summand& summand, const Summand& canonical) {
    Term term;
    for (size_t i = 0; i < summand.size(); ++i) {
      BoxCopy piece = summand[i];
      Shape shape;
      for (const Range& range : piece.box) shape.push_back(range.extent);
      std::vector<int64_t> starts = piece.starts;
      piece.starts.assign(shape.size(), 0);
      const std::vector<Summand> alone = {{piece}};
      term.push_back({provider(process, alone, owner_of(canonical[i])), alone, shape, std::move(starts)});
    }
    return term;
  }

  // Summands that the canonical device would get from one process are summed before they are sent. Which these are is
  // the same in every process.
  void add_terms(int64_t process, const Assembly& assembly, const Assembly& canonical, Target& target) {
    std::map<int64_t, size_t> term_of;  // by owner
    for (size_t f = 0; f < assembly.summands.size(); ++f) {
      const int64_t owner = assembly.summands.size() > 1 ? sole_owner(canonical.summands[f]) : -1;
      if (owner < 0) {
        target.terms.push_back(pieces_of(process, assembly.summands[f], canonical.summands[f]));
        continue;
      }
      const auto [at, fresh] = term_of.try_emplace(owner, target.terms.size());
      if (fresh) target.terms.push_back({{owner, {}, assembly.shape, std::vector<int64_t>(assembly.shape.size(), 0)}});
      target.terms[at->second][0].summands.push_back(assembly.summands[f]);
    }
    for (const auto& [owner, index] : term_of) {
      Contribution& contribution = target.terms[index][0];
      contribution.provider = provider(process, contribution.summands, owner);
    }
  }

  // The first device that holds this shard of the new layout.
  int64_t position_of(int64_t index) const {
    return moved_to(*to().mesh, to().place, representative(*to().mesh, to().used(), index));
  }

  Target target_of(int64_t process, int64_t position, int64_t index) {
    const Assembly assembly = assembly_at(relayout_, position);
    const Assembly canonical = processes_.count == 1 ? assembly : assembly_at(relayout_, position_of(index));
    Target target{assembly.shape, assembly.identity, assembly.holes, false, {}, {}};
    add_terms(process, assembly, canonical, target);
    return target;
  }

  std::map<int64_t, Target> targets_of(int64_t process) {
    const Mesh& mesh = *to().mesh;
    std::map<int64_t, Target> targets;
    if (processes_.count == 1) {
      for (const int64_t index : held_by(processes_, 0, mesh, to().used(), to().place))
        targets.emplace(index, target_of(0, position_of(index), index));
      return targets;
    }
    for (const int64_t position : positions_of(processes_, process, mesh)) {
      if (!lies_at(mesh, to().place, position)) continue;
      const int64_t index = distinct_index(mesh, to().used(), position);
      if (!targets.contains(index)) targets.emplace(index, target_of(process, position, index));
    }
    return targets;
  }

  // The processes that give the terms of a shard, if each gives a whole term and they are enough to share the sum out;
  // else null.
  const Providers* providers_of(const Target& target) {
    if (target.terms.size() < 3 || numel(target.shape) < kLeastSharedSum) return nullptr;
    Providers providers;
    for (const Term& term : target.terms) {
      if (term.size() != 1 || term.front().shape != target.shape) return nullptr;
      providers.push_back(term.front().provider);
    }
    const std::set<int64_t> distinct(providers.begin(), providers.end());
    return distinct.size() == providers.size() ? &*lists_.insert(std::move(providers)).first : nullptr;
  }

  // The providers, where all of them want this shard, of the same terms.
  Providers partners_of(int64_t process, int64_t index) const {
    const auto wanted = [&](int64_t who) {
      const auto at = providers_.find({who, index});
      return at == providers_.end() ? nullptr : at->second;
    };
    const Providers* providers = wanted(process);
    if (!providers) return {};
    bool here = false;
    for (const int64_t provider : *providers) {
      here |= provider == process;
      if (wanted(provider) != providers) return {};
    }
    return here ? *providers : Providers{};
  }

  static bool is_received(int64_t process, const Target& target) {
    for (const Term& term : target.terms)
      for (const Contribution& contribution : term)
        if (contribution.provider != process) return true;
    return false;
  }

  void lay_out_received() {
    std::set<int64_t> received;
    for (const auto& [process, targets] : targets_)
      for (const auto& [index, target] : targets)
        if (is_received(process, target)) received.insert(index);
    for (auto& [process, targets] : targets_)
      for (auto& [index, target] : targets) target.in_rows = received.contains(index);
  }

  void deliver_to(int64_t peer, const std::map<int64_t, Target>& targets, Route& route) {
    for (const auto& [index, target] : targets) {
      if (target.native) continue;
      const auto& partners = target.partners;
      if (!partners.empty()) {
        if (std::find(partners.begin(), partners.end(), processes_.here) == partners.end()) continue;
        const auto& mine = targets_.at(processes_.here);
        const auto ordinal = static_cast<size_t>(std::distance(mine.begin(), mine.find(index)));
        route.deliveries.push_back({peer, {}, ordinal});
        continue;
      }
      for (const Term& term : target.terms)
        for (const Contribution& contribution : term)
          if (contribution.provider == processes_.here) route.deliveries.push_back({peer, contribution});
    }
  }

  int64_t joined_along(const Target& target) const {
    int64_t along = -1;
    if (target.terms.size() != 1) return along;
    std::vector<int64_t> starts(target.shape.size(), 0);
    for (const Contribution& piece : target.terms[0]) {
      const bool is_shard = piece.summands.size() == 1 && piece.summands[0].size() == 1 && piece.summands[0][0].whole;
      if (piece.provider != processes_.here || !is_shard || piece.starts != starts) return -1;
      for (size_t d = 0; d < starts.size(); ++d) {
        if (piece.shape[d] == target.shape[d]) continue;
        if (along >= 0 && along != static_cast<int64_t>(d)) return -1;
        along = static_cast<int64_t>(d);
      }
      if (along < 0) return -1;
      starts[along] += piece.shape[along];
    }
    return along >= 0 && starts[along] == target.shape[along] ? along : -1;
  }

  // The shards that a target is a part of the sum of, where all of them lie here and are small; else none.
  std::vector<int64_t> summed_here(const Target& target) const {
    std::vector<int64_t> sources;
    if (target.terms.size() != 1 || target.terms[0].size() != 1) return sources;
    const Contribution& all = target.terms[0][0];
    if (all.provider != processes_.here || all.summands.size() < 2 || all.shape != target.shape) return sources;
    for (const Summand& summand : all.summands)
      if (summand.size() != 1 || summand[0].box != all.summands[0][0].box) return sources;
    if (volume(local_box(from(), relayout_.shape, all.summands[0][0].position)) > kMostCutSum) return sources;
    for (const Summand& summand : all.summands) sources.push_back(summand[0].source);
    return sources;
  }

  void find_common_sums(std::vector<Target>& targets) const {
    std::map<std::vector<int64_t>, size_t> first_of;
    for (size_t t = 0; t < targets.size(); ++t) {
      const std::vector<int64_t> sources = summed_here(targets[t]);
      if (sources.empty()) continue;
      const auto [at, fresh] = first_of.try_emplace(sources, t);
      if (fresh) continue;
      targets[t].sum = targets[at->second].sum = at->second;
    }
  }

  Processes processes_;
  const Relayout& relayout_;
  NativeRules rules_;
  std::map<int64_t, std::vector<int64_t>> holdings_;  // by process
  Targets targets_;
  std::set<Providers> lists_;                                          // each once, to be known by its address
  std::map<std::pair<int64_t, int64_t>, const Providers*> providers_;  // by process and index
};

}  // namespace

Route make_route(const Processes& processes, const Relayout& relayout, NativeRules rules) {
  return Router(processes, relayout, processes.count > 1 ? rules : NativeRules{}).run();
}

}  // namespace spmdx
