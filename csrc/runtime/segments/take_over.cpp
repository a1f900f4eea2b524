// SPDX-License-Identifier: Apache-2.0
// TakeOver: cuts a program once for each compiler, and fuses it again when there are more kernels.
#include "runtime/segments/take_over.h"

#include <algorithm>

#include "passes/report/flops.h"

namespace spmdx {
namespace {

int64_t flops_of(const Graph& graph, const Instruction& instruction) {
  return static_cast<int64_t>(flops_on_a_device(graph, graph.nodes[instruction.node]));
}

}  // namespace

std::shared_ptr<const Program> TakeOver::current(const Program& program, const std::vector<Param>& params) {
  const std::shared_ptr<const Program> own(std::shared_ptr<const Program>(), &program);  // not owned
  const std::shared_ptr<const Compilers> compilers = backend_.compilers();
  note(program, params);
  while (update(program, compilers)) compilers->await();  // with no lock: who reports does not wait for a compiler
  const std::lock_guard lock(mutex_);
  return fused_ ? fused_ : own;
}

void TakeOver::ask() {
  const Program* const program = [&] {
    const std::lock_guard lock(mutex_);
    return program_;
  }();
  if (program) update(*program, backend_.compilers());
}

void TakeOver::note(const Program& program, const std::vector<Param>& params) {
  const std::lock_guard lock(mutex_);
  program_ = &program;
  const bool is_first = numbers_.values.empty();
  numbers_.change.resize(params.size(), false);
  bool any = false;
  for (size_t i = 0; i < params.size() && !is_first; ++i) {
    const bool other = params[i].integer != numbers_.values[i].integer;  // its bits
    any |= other && !numbers_.change[i];
    if (other) numbers_.change[i] = true;
  }
  numbers_.values = params;
  if (!any) return;
  compilers_.reset();  // so that it is cut again, by whoever is next
  fused_.reset();
  kernels_.clear();
}

bool TakeOver::update(const Program& program, const std::shared_ptr<const Compilers>& compilers) {
  const std::lock_guard lock(mutex_);
  const uint64_t cuts = compilers ? compilers->cuts() : 0;
  const bool is_other = compilers != compilers_ || cuts != cuts_;
  if (is_other) {
    compilers_ = compilers;
    cuts_ = cuts;
    fused_.reset();
    kernels_.clear();
    cut(program);
  }
  if (!compilers_) return false;
  const uint64_t version = compilers_->version();
  if (!is_other && version == version_) return false;
  version_ = version;
  fuse(program);
  return true;
}

void TakeOver::cut(const Program& program) {
  units_.clear();
  segments_.clear();
  ops_ = flops_ = 0;
  if (!compilers_) return;
  units_ = units_of(graph_, program, *compilers_, numbers_);
  segments_ = segments_of(graph_, program, units_, *compilers_, numbers_);
  for (const Instruction& instruction : program.instructions) {
    if (instruction.kind != InstructionKind::kernel) continue;
    ops_ += 1;
    flops_ += flops_of(graph_, instruction);
  }
  times_.assign(units_.size(), nullptr);
  flops_of_segments_.clear();
  for (const Segment& segment : segments_) {
    int64_t flops = 0;
    for (const uint32_t index : segment.instructions) flops += flops_of(graph_, program.instructions[index]);
    flops_of_segments_.push_back(flops);
  }
}

void TakeOver::fuse(const Program& program) {
  kernels_.resize(units_.size());
  for (size_t u = 0; u < units_.size(); ++u) {
    if (!units_[u].is_segment) continue;
    std::shared_ptr<Kernel> compiled = segments_[u].compiler->kernel(segments_[u]);
    if (compiled && !kernels_[u]) {
      times_[u] = std::make_shared<SegmentTimes>();
      kernels_[u] =
          make_segment_kernel(segments_[u], program, std::move(compiled), backend_, segments_[u].compiler, times_[u]);
    } else if (!compiled) {
      kernels_[u].reset();
    }
  }
  const bool any = std::any_of(kernels_.begin(), kernels_.end(), [](const auto& kernel) { return kernel != nullptr; });
  fused_ = any ? std::make_shared<const Program>(fused(graph_, program, units_, segments_, kernels_)) : nullptr;
}

SegmentsOfPlan TakeOver::segments() const {
  const std::lock_guard lock(mutex_);
  SegmentsOfPlan all{{}, ops_, flops_};
  for (size_t s = 0; s < segments_.size(); ++s) {
    const Segment& segment = segments_[s];
    const auto ops = static_cast<int64_t>(segment.graph.nodes.size());
    if (!ops) continue;
    const SegmentTimes* const times = times_[s].get();
    all.segments.push_back({segment.first, segment.device, ops, flops_of_segments_[s],
                            segment.compiler->standing(segment), times ? times->of_ops_ns.load() : 0,
                            times ? times->mean_ns() : 0, segment.text});
  }
  return all;
}

}  // namespace spmdx
