// SPDX-License-Identifier: Apache-2.0
// Compiler: makes one kernel of many ops. The bridge implements it, and compilers themselves are Python.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/segments/segment.h"

namespace spmdx {

enum class CompileState : uint8_t {
  unknown,   // nobody has asked for it
  waiting,   // it is being compiled, or will be
  compiled,  // there is a kernel
  refused    // there will be none
};

struct CompileStanding {
  CompileState state = CompileState::unknown;
  std::string why;         // of what was refused
  int64_t compile_ns = 0;  // what that took
};

// All: Any thread, without the GIL.
class Compiler {
 public:
  virtual ~Compiler() = default;
  // Whether it takes this call; others are run by the backend.
  virtual bool takes(const Call& local) const = 0;
  // Whether numbers of such a call may differ from run to run; else they have to be constants.
  virtual bool takes_numbers(const Call& local) const = 0;
  // The kernel of a segment, which takes the inputs of its graph and its parameters, and may be run by several threads.
  // Null: there is none so far; it is asked for by the first call.
  virtual std::shared_ptr<Kernel> kernel(const Segment& segment) = 0;
  virtual CompileStanding standing(const Segment& segment) const = 0;
  // A kernel that failed, or whose numbers are wrong, is not used again.
  virtual void refuse(const Segment& segment, const std::string& why) = 0;
  // Returns when every segment that was asked for has a kernel or is refused, if the program wants to wait for that.
  virtual void await() = 0;
  // Whether kernels may write results over inputs that nobody reads later, as outputs of the segment's graph say.
  virtual bool in_place() const = 0;
  // Whether the first run of a kernel is compared with the backend's.
  virtual bool checks() const = 0;
  // Another number whenever there is another kernel, or one less, or fewer calls are taken.
  virtual uint64_t version() const = 0;
  // Another number whenever fewer calls are taken, so that programs have to be cut again.
  virtual uint64_t cuts() const = 0;
};

// The compilers of devices. Those of one kind have the same one.
struct Compilers {
  std::vector<std::shared_ptr<Compiler>> all;  // null: the backend's own kernels; never empty
  std::vector<uint32_t> of_device;             // which of them, by the device's number; others have the first one

  const std::shared_ptr<Compiler>& of(int64_t device) const {
    const auto number = static_cast<size_t>(device);
    return all[number < of_device.size() ? of_device[number] : 0];
  }
  // As those of all of them.
  uint64_t version() const;
  uint64_t cuts() const;
  void await() const;
};

}  // namespace spmdx
