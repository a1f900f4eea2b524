// SPDX-License-Identifier: Apache-2.0
// SegmentKernel: what a compiler made of a segment, beside the backend's kernels of its ops.
#pragma once
#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>

#include "runtime/segments/compiler.h"

namespace spmdx {

// Thrown by the kernel of a segment whose ops fail, too: the node of the plan, and its error.
struct FailedWithin {
  NodeId node;
  std::exception_ptr error;
};

// How long a segment takes, which the step thread writes and any thread reads.
struct SegmentTimes {
  std::atomic<int64_t> of_ops_ns = 0;  // its ops one by one, in the run that was compared; 0: none was
  std::atomic<int64_t> runs = 0;       // of what was compiled, but for the first one
  std::atomic<int64_t> ns = 0;         // all of them

  int64_t mean_ns() const { return ns / std::max<int64_t>(1, runs); }
};

// Runs `compiled`. The first run of a segment is compared with its ops run one by one, if the compiler asks for it;
// what throws though its ops do not, or gives other numbers, is refused, and its ops run instead. The first run writes
// over no input; later ones may, and what then throws has lost them, so that the error is the program's. Keeps what it
// needs of the program.
std::shared_ptr<Kernel> make_segment_kernel(const Segment& segment, const Program& program,
                                            std::shared_ptr<Kernel> compiled, Backend& backend,
                                            std::shared_ptr<Compiler> compiler, std::shared_ptr<SegmentTimes> times);

}  // namespace spmdx
