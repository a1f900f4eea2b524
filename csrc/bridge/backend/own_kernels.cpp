// SPDX-License-Identifier: Apache-2.0
// The table of own kernels, and OwnKernel, which runs a Compute.
#include "bridge/backend/own_kernels.h"

#include <map>

#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/overwriting.h"
#include "bridge/backend/shard_device.h"
#include "passes/memory/memory_use.h"

namespace spmdx::bridge {
namespace {

struct OwnRow {
  PrepareCompute compute = nullptr;  // one of three
  PrepareWrite write = nullptr;
  PrepareKernel kernel = nullptr;
  Runs runs = Runs::everywhere;
};

// Made at the first call: the files that add to it are loaded in no certain order.
std::map<std::string_view, OwnRow>& own_rows() {
  static auto* rows = new std::map<std::string_view, OwnRow>;
  return *rows;
}

void add_row(std::string_view op, const OwnRow& row) {
  internal_check(own_rows().emplace(op, row).second, "two kernels of our own for " + std::string(op));
}

const OwnRow* own_row(std::string_view op) {
  const auto found = own_rows().find(op);
  return found == own_rows().end() ? nullptr : &found->second;
}

class OwnKernel final : public Kernel {
 public:
  OwnKernel(const Call& call, Compute compute)
      : name_(call.op), expected_(call.outputs), compute_(std::move(compute)) {}

  void run(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs,
           int) override {
    KernelGuard guard;
    std::vector<at::Tensor> results = compute_(inputs, params);
    internal_check(results.size() == expected_.size(), name_ + " made another number of results than it has");
    for (size_t i = 0; i < results.size(); ++i) {
      if (expected_[i].dtype == DType::unknown) continue;
      check(results[i], expected_[i]);
      outputs[i] = buffer_of(std::move(results[i]));
    }
  }

 private:
  void check(const at::Tensor& result, const TensorType& expected) const {
    if (result.sizes() == c10::IntArrayRef(expected.shape) && result.scalar_type() == to_scalar_type(expected.dtype))
      return;
    throw InternalError(name_ + " made " + std::string(c10::toString(result.scalar_type())) +
                        str(result.sizes().vec()) + " where its plan expects " + str(expected));
  }

  std::string name_;
  std::vector<TensorType> expected_;
  Compute compute_;
};

class WriteKernel final : public Kernel {
 public:
  explicit WriteKernel(Write write) : write_(std::move(write)) {}

  void run(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs,
           int donated) override {
    KernelGuard guard;
    const Overwriting over(inputs, donated);
    const at::Tensor& first = tensor_of(inputs[0]);
    at::Tensor target = over ? first : first.clone();
    write_(target, over.inputs(), params);
    outputs[0] = buffer_of(std::move(target));
  }

 private:
  Write write_;
};

}  // namespace

OwnKernels::OwnKernels(std::initializer_list<std::pair<std::string_view, PrepareCompute>> rows, Runs runs) {
  for (const auto& [op, compute] : rows) add_row(op, {.compute = compute, .runs = runs});
}

OwnKernels::OwnKernels(std::initializer_list<std::pair<std::string_view, PrepareKernel>> rows) {
  for (const auto& [op, kernel] : rows) add(op, kernel);
}

OwnKernels::OwnKernels(std::initializer_list<std::pair<std::string_view, PrepareWrite>> rows) {
  for (const auto& [op, write] : rows) add_row(op, {.write = write});
}

void OwnKernels::add(std::string_view op, PrepareKernel prepare) { add_row(op, {.kernel = prepare}); }

std::unique_ptr<Kernel> kernel_of(const Call& local, Compute compute) {
  return std::make_unique<OwnKernel>(local, std::move(compute));
}

std::unique_ptr<Kernel> kernel_of(const Call& local, Write write) {
  internal_check(memory_use(local) == MemoryUse::in_place, local.op + " does not write to its first operand");
  return std::make_unique<WriteKernel>(std::move(write));
}

std::unique_ptr<Kernel> prepare_own(const Call& call) {
  const OwnRow* row = own_row(call.op);
  if (!row || (row->runs == Runs::off_the_cpu && shard_device().is_cpu())) return nullptr;
  if (row->kernel) return row->kernel(call);
  return row->write ? kernel_of(call, row->write(call)) : kernel_of(call, row->compute(call));
}

bool stands_in(std::string_view op) {
  const OwnRow* row = own_row(op);
  return row && row->runs == Runs::off_the_cpu;
}

}  // namespace spmdx::bridge
