// SPDX-License-Identifier: Apache-2.0
// PlanMaker: finds the plan of a graph, or makes it, as one of other sizes was made where there is one.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "runtime/step/plan_cache.h"
#include "runtime/step/precedent_files.h"
#include "runtime/step/precedents.h"

namespace spmdx {

// Not thread-safe: the engine holds a lock around it.
class PlanMaker {
 public:
  PlanMaker(Backend& backend, Comm& comm, CollectiveQueue& queue) : backend_(backend), comm_(comm), queue_(queue) {}
  struct Made {
    PlanRef plan;
    bool known = false;  // it was made before
  };
  // A plan that follows another one is made anew when it has been found so often: what is best for its own sizes is
  // worth a search then. By count, as all processes change plans at one step.
  static constexpr int64_t kWorthASearch = 64;
  Made plan(const Graph& graph, const CompileOptions& options, PlanFor purpose);
  // Whether the plan is still the one of its graph, and not to be made anew; counted as found.
  bool reuse(const PlanRef& plan);
  // From now on what is decided is kept in this folder, too.
  void keep_in(const std::string& folder, const std::string& version) { files_.emplace(folder, version); }
  // Forgets all plans and precedents, but not the files.
  void clear();
  const PlanCache& cache() const { return cache_; }

 private:
  bool are_several() const { return comm_.processes().count > 1; }
  PlanCache& cache_of(PlanFor purpose) { return are_several() && purpose == PlanFor::question ? asked_ : cache_; }
  std::shared_ptr<Plan> make(const Graph& graph, const CompileOptions& options, PlanFor purpose, bool may_follow);

  Backend& backend_;
  Comm& comm_;
  CollectiveQueue& queue_;
  PlanCache cache_;
  // Of several processes one alone may ask a question. Its plan may not be what the others run, and takes no place of
  // such a plan.
  PlanCache asked_;
  Repeats repeats_;
  Precedents precedents_;
  std::optional<PrecedentFiles> files_;
};

}  // namespace spmdx
