// SPDX-License-Identifier: Apache-2.0
// Own kernels: those of the ops named "spmdx.…", and of some ops of ATen. A file of kernels has a static table, which
// registers them when the library is loaded:
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

// Computes all results of a call on one shard from its operands and parameters.
using Compute = std::function<std::vector<at::Tensor>(std::span<const BufferRef> inputs, std::span<const Param>)>;
using PrepareCompute = Compute (*)(const Call& local);  // `local`: with the arguments and types of one shard
// Makes the only result of `target`, which holds the elements of the first operand: in its memory if nobody else reads
// that, else in a copy.
using Write = std::function<void(at::Tensor& target, std::span<const BufferRef> inputs, std::span<const Param>)>;
using PrepareWrite = Write (*)(const Call& local);
// Makes a kernel that stores its results itself; null: ATen's kernel is to run this call.
using PrepareKernel = std::unique_ptr<Kernel> (*)(const Call& local);

enum class Runs : uint8_t { everywhere, off_the_cpu };  // off_the_cpu: ATen has a kernel for the CPU alone

// Registers kernels. REQUIRES: the object is static, and no op is registered twice.
class OwnKernels {
 public:
  OwnKernels(std::initializer_list<std::pair<std::string_view, PrepareCompute>> rows)
      : OwnKernels(rows, Runs::everywhere) {}
  OwnKernels(std::initializer_list<std::pair<std::string_view, PrepareCompute>> rows, Runs runs);
  OwnKernels(std::initializer_list<std::pair<std::string_view, PrepareWrite>> rows);
  OwnKernels(std::initializer_list<std::pair<std::string_view, PrepareKernel>> rows);
  // Registers `prepare` for every key of `table`, which must have been constructed before.
  template <class Table>
  OwnKernels(PrepareKernel prepare, const Table& table) {
    for (const auto& row : table) add(row.first, prepare);
  }

 private:
  static void add(std::string_view op, PrepareKernel prepare);
};

// For a PrepareKernel: the kernels that the other two kinds of tables make.
std::unique_ptr<Kernel> kernel_of(const Call& local, Compute compute);
std::unique_ptr<Kernel> kernel_of(const Call& local, Write write);

// Our own kernel of this call for the shard device, or null if there is none.
std::unique_ptr<Kernel> prepare_own(const Call& local);
// Whether an own kernel runs this op on accelerators, while ATen's runs it on the CPU.
bool stands_in(std::string_view op);

// Argument `index` of the call. Throws InternalError if it is absent or of another kind.
template <class T>
const T& own_argument(const Call& call, size_t index) {
  internal_check(index < call.args.size() && std::holds_alternative<T>(call.args[index]),
                 call.op + " has no argument " + std::to_string(index) + " of the kind it needs");
  return std::get<T>(call.args[index]);
}

}  // namespace spmdx::bridge
