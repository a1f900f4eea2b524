// SPDX-License-Identifier: Apache-2.0
// Own kernels: what computes the ops named "spmdx.…", and some of ATen's. A file of kernels names them in a table of
// its own, which adds them when the library is loaded:
//   const OwnKernels ctc_kernels = {{"spmdx.ctc_loss", prepare_ctc_loss}};
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "runtime/data/backend.h"

namespace spmdx::bridge {

// All results of a call, from its operands and parameters.
using Compute = std::function<std::vector<at::Tensor>(std::span<const BufferRef> inputs, std::span<const Param>)>;
using PrepareCompute = Compute (*)(const Call& local);
// A kernel that does all by itself; null: ATen's is to run this call.
using PrepareKernel = std::unique_ptr<Kernel> (*)(const Call& local);

enum class Runs : uint8_t { everywhere, off_the_cpu };  // off the CPU: where ATen's kernel is the CPU's alone

// REQUIRES: of static storage; an op has one kernel.
class OwnKernels {
 public:
  OwnKernels(std::initializer_list<std::pair<std::string_view, PrepareCompute>> rows)
      : OwnKernels(rows, Runs::everywhere) {}
  OwnKernels(std::initializer_list<std::pair<std::string_view, PrepareCompute>> rows, Runs runs);
  OwnKernels(std::initializer_list<std::pair<std::string_view, PrepareKernel>> rows);
  // The same kernel for every op of a table, which must have been made.
  template <class Table>
  OwnKernels(PrepareKernel prepare, const Table& table) {
    for (const auto& row : table) add(row.first, prepare);
  }

 private:
  static void add(std::string_view op, PrepareKernel prepare);
};

// The kernel of an op that has one of our own here; null for any other.
std::unique_ptr<Kernel> prepare_own(const Call& local);
// Whether ours runs where ATen's, which is the CPU's alone, cannot.
bool stands_in(std::string_view op);

template <class T>
const T& own_argument(const Call& call, size_t index) {
  internal_check(index < call.args.size() && std::holds_alternative<T>(call.args[index]),
                 call.op + " has no argument " + std::to_string(index) + " of the kind it needs");
  return std::get<T>(call.args[index]);
}

}  // namespace spmdx::bridge
