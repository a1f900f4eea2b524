// SPDX-License-Identifier: Apache-2.0
// SegmentKernel: what a compiler made of a segment, beside the backend's kernels of its ops.
#pragma once
#include <exception>
#include <memory>

#include "runtime/segments/compiler.h"

namespace spmdx {

// Thrown by the kernel of a segment whose ops fail, too: the node of the plan, and its error.
struct FailedWithin {
  NodeId node;
  std::exception_ptr error;
};

// Runs `compiled`. The first run of a segment is compared with its ops run one by one, if the compiler asks for it;
// what throws though its ops do not, or gives other numbers, is refused, and its ops run instead. Keeps what it needs
// of the program.
std::shared_ptr<Kernel> make_segment_kernel(const Segment& segment, const Program& program,
                                            std::shared_ptr<Kernel> compiled, Backend& backend,
                                            std::shared_ptr<Compiler> compiler);

}  // namespace spmdx
