// SPDX-License-Identifier: Apache-2.0
// A call of an operator on the simulated CUDA device: shapes now, by meta; bytes later, on a stream, by the CPU kernel.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <c10/util/strides.h>

#include <set>

#include "simulated.h"
#include "simulated_operands.h"

namespace simulated {
namespace {

bool is_tensors(const c10::Argument& argument) {
  const auto type = argument.type();
  return type->isSubtypeOf(*c10::OptionalType::ofTensor()) || type->isSubtypeOf(*c10::ListType::ofTensors()) ||
         type->isSubtypeOf(*c10::ListType::ofOptionalTensors());
}

bool is_written(const c10::Argument& argument) { return argument.alias_info() && argument.alias_info()->isWrite(); }
bool is_view(const c10::Argument& argument) { return argument.alias_info() && !argument.alias_info()->isWrite(); }
bool is_out(const c10::Argument& argument) { return argument.kwarg_only() && is_written(argument); }

// Whether a kernel made its operand a tensor over other memory, or set its lazy bits instead of writing.
bool has_left(const at::Tensor& operand, const at::Tensor& memory) {
  return operand.const_data_ptr() != memory.const_data_ptr() || operand.is_conj() != memory.is_conj() ||
         operand.is_neg() != memory.is_neg();
}

// Names of operators that made the calling thread wait.
std::mutex blocking_mutex;
std::set<std::string> blocking;

// One call of an operator on the simulated device.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op),
        schema_(op.schema()),
        name_(toString(schema_.operator_name())),
        args_(torch::jit::pop(stack, schema_.arguments().size())),
        device_(common_device(schema_, args_)) {}

  torch::jit::Stack run() {
    const c10::DeviceGuard on(device_);
    if (!run_later()) run_now();
    return std::move(results_);
  }

 private:
  // Shapes from meta tensors now; the bytes when the stream gets there. False: meta does not know.
  bool run_later() {
    for (const c10::Argument& result : schema_.returns())
      if (!is_tensors(result)) return false;
    Shadows meta(c10::kMeta);
    torch::jit::Stack on_meta;
    for (const c10::IValue& arg : args_) on_meta.push_back(meta.of(arg));
    const torch::jit::Stack meta_args = on_meta;
    try {
      op_.callBoxed(on_meta);
    } catch (...) {
      return false;
    }
    for (size_t i = 0; i < args_.size(); ++i)
      if (is_out(schema_.arguments()[i])) resize_as(tensors_of(args_[i]), tensors_of(meta_args[i]));
    make_results(on_meta, meta);
    Shadows host(c10::kCPU);
    torch::jit::Stack on_host;
    Tensors written, memory;
    for (size_t i = 0; i < args_.size(); ++i) {
      on_host.push_back(host.of(args_[i]));
      if (!is_written(schema_.arguments()[i])) continue;
      for (const at::Tensor& tensor : tensors_of(on_host[i])) written.push_back(tensor);
      for (const at::Tensor& tensor : tensors_of(args_[i])) memory.push_back(host_alias(tensor));
    }
    if (written.empty() && fresh_.empty()) return true;
    current_queue(device_).enqueue(name_, [op = op_, on_host, written, memory, fresh = fresh_]() mutable {
      op.callBoxed(on_host);
      for (size_t i = 0; i < written.size(); ++i)
        if (has_left(written[i], memory[i])) memory[i].copy_(written[i]);
      for (const auto& [result, index, target] : fresh) {
        const at::Tensor made = tensors_of(on_host.at(result)).at(index);
        if (made.numel() == 0 || target.numel() == 0)
          continue;  // what only CUDA's or the CPU's kernel makes for backward
        TORCH_CHECK(made.sizes() == target.sizes() && made.scalar_type() == target.scalar_type(),
                    "the CPU kernel returns ", made.scalar_type(), made.sizes(), ", the meta kernel ",
                    target.scalar_type(), target.sizes());
        target.copy_(made);
      }
    });
    return true;
  }

  // The CPU kernel decides the shapes, so the calling thread waits for the stream.
  void run_now() {
    {
      std::lock_guard lock(blocking_mutex);
      blocking.insert(name_);
    }
    Shadows host(c10::kCPU);
    torch::jit::Stack on_host;
    for (size_t i = 0; i < args_.size(); ++i)
      on_host.push_back(is_out(schema_.arguments()[i]) ? empty_outs(args_[i]) : host.of(args_[i]));
    const torch::jit::Stack host_args = on_host;
    std::exception_ptr error;
    auto work = [&] {
      try {
        op_.callBoxed(on_host);
      } catch (...) {
        error = std::current_exception();
      }
    };
    const Ticket done = current_queue(device_).enqueue(name_, work);
    done.wait();
    done.rethrow();
    if (error) std::rethrow_exception(error);
    for (size_t i = 0; i < args_.size(); ++i) {
      if (!is_out(schema_.arguments()[i])) continue;
      const Tensors outs = tensors_of(args_[i]), made = tensors_of(host_args[i]);
      resize_as(outs, made);
      for (size_t k = 0; k < outs.size(); ++k) outs[k].copy_(made[k]);
    }
    make_results(on_host, host);
    for (const auto& [result, index, target] : fresh_) {
      auto fill = [target, made = tensors_of(on_host.at(result)).at(index)] { target.copy_(made); };
      current_queue(device_).enqueue(name_, fill, Queue::Kind::kOwn);
    }
  }

  c10::IValue empty_outs(const c10::IValue& outs) {
    return map_tensors(outs, [](const at::Tensor& out) { return at::empty({0}, out.options().device(c10::kCPU)); });
  }

  static void resize_as(const Tensors& outs, const Tensors& made) {
    for (size_t k = 0; k < outs.size(); ++k)
      if (outs[k].sizes() != made[k].sizes()) resize(outs[k], made[k].sizes(), made[k].strides());
  }

  // Tensors of the device for what the operator returned on shadows; `fresh_` names those that have no bytes yet.
  void make_results(const torch::jit::Stack& made, const Shadows& shadows) {
    for (size_t i = 0; i < made.size(); ++i) {
      const c10::Argument& result = schema_.returns()[i];
      if (is_written(result)) {
        results_.push_back(args_.at(index_of_alias(result)));
        continue;
      }
      size_t index = 0;
      results_.push_back(map_tensors(made[i], [&](const at::Tensor& tensor) {
        const size_t at = index++;
        const c10::Storage* viewed = is_view(result) ? shadows.real_storage(tensor) : nullptr;
        if (viewed) return tensor_over(*viewed, c10::DispatchKey::CUDA, tensor);
        at::Tensor target =
            tensor.is_non_overlapping_and_dense()
                ? empty_strided(tensor.sizes(), tensor.strides(), tensor.scalar_type(), device_)
                : empty_strided(tensor.sizes(), c10::contiguous_strides(tensor.sizes()), tensor.scalar_type(), device_);
        fresh_.push_back({i, at, host_alias(target)});
        return target;
      }));
    }
  }

  size_t index_of_alias(const c10::Argument& result) const {
    const auto& arguments = schema_.arguments();
    for (size_t i = 0; i < arguments.size(); ++i)
      if (arguments[i].alias_info() && *arguments[i].alias_info() == *result.alias_info()) return i;
    TORCH_CHECK(false, name_, " returns an alias of no argument");
  }

  struct Fresh {
    size_t result, index;  // of the operator; of the tensor in its list
    at::Tensor target;     // over the memory of the device
  };

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  const std::string name_;
  const torch::jit::Stack args_;
  const c10::Device device_;
  torch::jit::Stack results_;
  std::vector<Fresh> fresh_;
};

}  // namespace

torch::jit::Stack call(const c10::OperatorHandle& op, torch::jit::Stack& stack) { return Call(op, stack).run(); }

std::vector<std::string> blocking_operators() {
  std::lock_guard lock(blocking_mutex);
  return {blocking.begin(), blocking.end()};
}

}  // namespace simulated
