// SPDX-License-Identifier: Apache-2.0
// TakeOver: the program that a plan runs, where kernels of segments take over between two steps.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/segments/fuse.h"
#include "runtime/segments/segment_kernel.h"

namespace spmdx {

// A segment of a plan, for reports.
struct SegmentStanding {
  NodeId first = 0;    // of the plan's graph
  int64_t device = 0;  // that it is of, the first one of those that have the same shard
  int64_t ops = 0;
  int64_t flops = 0;
  CompileStanding standing;
  int64_t of_ops_ns = 0, ns = 0;  // a run of its ops, and the mean one of what was compiled; 0: there was none
  std::string text;
};
struct SegmentsOfPlan {
  std::vector<SegmentStanding> segments;
  int64_t ops = 0, flops = 0;  // of the whole program, on all shards that this process has
};

// Program threads and the step thread, without the GIL; each function takes TakeOver::mutex, and within it that of the
// compiler.
class TakeOver {
 public:
  TakeOver(const Graph& graph, Backend& backend) : graph_(graph), backend_(backend) {}
  // What to run now, of a program that was prepared: with kernels of segments where the backend's compiler has some.
  // Asks for those that it has not. `program` has to outlive this; `params` are those of the run.
  std::shared_ptr<const Program> current(const Program& program, const std::vector<Param>& params);
  // Cuts and asks for what has run, as the next run would.
  void ask();
  // Those that were asked for; none without a compiler.
  SegmentsOfPlan segments() const;

 private:
  // Whether there is something new.
  bool update(const Program& program, const std::shared_ptr<const Compilers>& compilers);
  // Has the program cut again if a number that was the same in all runs before is another one. REQUIRES: it is about to
  // run.
  void note(const Program& program, const std::vector<Param>& params);
  void cut(const Program& program);
  void fuse(const Program& program);

  const Graph& graph_;
  Backend& backend_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Compilers> compilers_;  // that the segments were cut for; null: none
  uint64_t version_ = 0;                        // of the compilers, that `fused_` is for
  uint64_t cuts_ = 0;                           // of the compilers, that the segments were cut for
  const Program* program_ = nullptr;            // null: it has not run
  Numbers numbers_;
  int64_t ops_ = 0, flops_ = 0;  // of the program
  std::vector<Unit> units_;
  std::vector<Segment> segments_;                     // by unit
  std::vector<int64_t> flops_of_segments_;            // by unit
  std::vector<std::shared_ptr<Kernel>> kernels_;      // by unit
  std::vector<std::shared_ptr<SegmentTimes>> times_;  // by unit, of its kernel
  std::shared_ptr<const Program> fused_;              // null: no segment has a kernel
};

}  // namespace spmdx
