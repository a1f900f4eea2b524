// SPDX-License-Identifier: Apache-2.0
// The boxed kernel of every op: views extend a chain, writes become functional ops, all else is a node.
#include "bridge/record/boxed_kernel.h"

#include <ATen/native/Resize.h>

#include "base/error.h"
#include "bridge/backend/aten_facts.h"
#include "bridge/python/errors.h"
#include "bridge/record/call/overlap.h"
#include "bridge/record/call/schema.h"
#include "bridge/record/call/views.h"
#include "bridge/record/host_run.h"
#include "bridge/record/intern.h"
#include "bridge/record/layouts/shapes.h"
#include "bridge/record/operands.h"
#include "bridge/recorder/gradients.h"
#include "bridge/recorder/recorder.h"
#include "bridge/recorder/resize.h"
#include "bridge/recorder/values.h"
#include "bridge/step/flush.h"
#include "bridge/step/long_traces.h"
#include "bridge/tensor/generator.h"
#include "bridge/tensor/tensor.h"
#include "runtime/step/engine.h"

namespace spmdx::bridge {
namespace {

using Values = std::vector<ValueId>;

bool is_foreign(const at::Tensor& tensor) { return tensor.defined() && has_our_device(tensor) && !as_lazy(tensor); }

// Whether an operand is a FakeTensor or the like: a meta tensor that carries our device's bit.
bool any_foreign(const OpInfo& info, IValues args) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (info.kinds[i] == ArgumentKind::tensor) {
      if (args[i].isTensor() && is_foreign(args[i].toTensor())) return true;
    } else if (info.kinds[i] == ArgumentKind::tensor_list || info.kinds[i] == ArgumentKind::optional_tensor_list) {
      if (!args[i].isList()) continue;
      for (const auto& item : args[i].toListRef()) {
        if (item.isTensor() && is_foreign(item.toTensor())) return true;
      }
    }
  }
  return false;
}

// What one walk over an op's arguments gathers: words of the key, operand values, parameters.
struct Collected {
  Key key;
  Values values;
  std::vector<Param> params;

  void tensor(const at::Tensor& tensor, bool index) {
    LazyTensor* lazy = as_lazy(tensor);
    if (lazy) {
      values.push_back(Recorder::instance().read(*lazy));
    } else if (index && tensor.is_cpu() && tensor.dim() > 0) {
      // Eager accepts index tensors on the CPU.
      values.push_back(Recorder::instance().read(*as_lazy(Recorder::instance().upload(tensor))));
    } else {
      values.push_back(operand(tensor));
    }
    add_tensor(key, tensor, !lazy);
  }
  void absent() { key.push_back(0); }
  void list(const c10::IValue& value, bool index) {
    const auto items = value.toListRef();
    key.push_back(items.size() << 8 | 7);
    for (const auto& item : items) {
      if (item.isTensor() && item.toTensor().defined())
        tensor(item.toTensor(), index);
      else
        absent();
    }
  }
  void all(const OpInfo& info, IValues args) {
    key.push_back(reinterpret_cast<uintptr_t>(&info));
    key.push_back(settings_of_inference());
    for (size_t i = 0; i < args.size(); ++i) {
      const ArgumentKind kind = info.kinds[i];
      if (args[i].isNone())
        absent();
      else if (kind == ArgumentKind::tensor)
        args[i].toTensor().defined() ? tensor(args[i].toTensor(), info.facts->indexes) : absent();
      else if (kind == ArgumentKind::tensor_list || kind == ArgumentKind::optional_tensor_list)
        list(args[i], info.facts->indexes);
      else {
        add_words(key, kind, args[i], info.constant_reals);
        add_params(params, kind, args[i], info.constant_reals);
      }
    }
  }
};

void add_draw(const OpInfo& info, IValues args, std::vector<Param>& params) {
  if (!info.draws) return;
  for (size_t i = 0; i < args.size(); ++i) {
    if (info.kinds[i] != ArgumentKind::generator) continue;
    const Draw draw = next_draw(args[i].isGenerator() ? std::optional(args[i].toGenerator()) : std::nullopt);
    params.push_back({.integer = static_cast<int64_t>(draw.seed)});
    params.push_back({.integer = static_cast<int64_t>(draw.draw)});
  }
}

// ---- views -------------------------------------------------------------------------------------------

at::Tensor view_of(const at::Tensor& source, const ViewResult& view, bool aliases) {
  LazyTensor& lazy = *as_lazy(source);
  if (!aliases) {
    ValueId value = Recorder::instance().read(lazy);
    if (view.steps) {
      for (const auto& step : *view.steps) value = record_call(step.call, {value}, step.params) + step.result;
    }
    return wrap_value(value, share(view.meta));
  }
  const bool current = !view.steps && lazy.cached_writes == lazy.root().writes;
  return make_view(lazy, view.steps, view.meta, current ? lazy.cached : LazyValue{});
}

void record_view(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor source = args[0].toTensor();
  if (!as_lazy(source)) refuse_device(source);
  const InternedRef entry = intern_view(info, args);
  c10::IValue result;
  if (info.list_result.at(0)) {
    c10::List<at::Tensor> list;
    for (const auto& view : entry->views) list.push_back(view_of(source, view, info.viewed == 0));
    result = std::move(list);
  } else {
    result = view_of(source, entry->views.at(0), info.viewed == 0);
  }
  finish(info, stack, std::move(result));
}

// ---- results and writes ------------------------------------------------------------------------------

c10::IValue wrap_group(ValueId& next, const std::vector<MetaRef>& group, bool list) {
  auto wrap = [&](const MetaRef& meta) {
    const ValueId value = next++;
    return meta ? wrap_value(value, meta) : at::Tensor();
  };
  if (!list) return wrap(group.at(0));
  c10::List<at::Tensor> tensors;
  for (const auto& meta : group) tensors.push_back(wrap(meta));
  return tensors;
}

void record_plain(const OpInfo& info, Stack* stack) {
  const Recorded recorded = record_op(info, arguments(info, *stack));
  torch::jit::drop(*stack, info.kinds.size());
  ValueId next = recorded.first;
  for (size_t r = 0; r < recorded.results->size(); ++r)
    stack->push_back(wrap_group(next, (*recorded.results)[r], info.list_result[r]));
}

void check_cast(const at::Tensor& tensor, c10::ScalarType result) {
  TORCH_CHECK(c10::canCast(result, tensor.scalar_type()), "result type ", c10::toString(result),
              " can't be cast to the desired output type ", c10::toString(tensor.scalar_type()));
}

// Writes a result to `tensor`. If the tensor is resized for it, it gets the layout of the result.
void write_result(const at::Tensor& tensor, ValueId value, const Meta& result, bool resize) {
  check_cast(tensor, result.dtype);
  if (resize && as_lazy(tensor) && at::native::resize_output_check(tensor, result.sizes))  // warns if it is not empty
    bridge::resize(tensor, result.sizes, result.strides);
  assign(tensor, value, resize);
}

void assign_group(const c10::IValue& target, const std::vector<MetaRef>& group, ValueId& next, bool resize) {
  auto put = [&](const at::Tensor& tensor, const MetaRef& meta) {
    const ValueId value = next++;
    if (tensor.defined() && meta) write_result(tensor, value, *meta, resize);
  };
  if (target.isTensor()) return put(target.toTensor(), group.at(0));
  if (!target.isList()) {
    next += static_cast<ValueId>(group.size());
    return;
  }
  size_t i = 0;
  for (const auto& item : target.toListRef()) put(item.isTensor() ? item.toTensor() : at::Tensor(), group.at(i++));
}

// An in-place op computes in the dtype of its tensor, where the functional variant would choose one (cumsum_).
void compute_in_own_dtype(const OpInfo& functional, Stack& args) {
  const auto dtype = functional.op.schema().argumentIndexWithName("dtype");
  if (dtype && args[*dtype].isNone() && args[0].isTensor())
    args[*dtype] = static_cast<int64_t>(args[0].toTensor().scalar_type());
}

// For an op with `out=`: lets the handler of the functional variant record it, and writes the results to the tensors of
// `out=`. False: there is no handler, or it does not take these arguments.
bool write_handled(const OpInfo& info, IValues args, const Stack& functional_args) {
  if (!info.is_out || !info.functional->handler) return false;
  Stack results = functional_args;
  const auto dtype = info.functional->op.schema().argumentIndexWithName("dtype");
  if (dtype && results[*dtype].isNone())  // a factory makes the dtype of `out=`
    results[*dtype] = static_cast<int64_t>(args[info.written[0]].toTensor().scalar_type());
  if (!info.functional->handler(*info.functional, &results)) return false;
  for (size_t k = 0; k < info.written.size(); ++k) {
    const at::Tensor result = results.at(k).toTensor();
    write_result(args[info.written[k]].toTensor(), operand(result), meta_of(result), true);
  }
  return true;
}

void finish_writes(const OpInfo& info, Stack* stack) {
  Stack results;
  for (const int written : info.returned) results.push_back(arguments(info, *stack)[written]);
  finish_all(info, stack, std::move(results));
}

// The functional variant returns the results that are no written operands first, then new values of those operands.
void record_writes(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  Stack functional_args;
  for (int position : info.functional_args) functional_args.push_back(args[position]);
  if (write_handled(info, args, functional_args)) return finish_writes(info, stack);
  if (!info.is_out) compute_in_own_dtype(*info.functional, functional_args);
  const Recorded recorded = record_op(*info.functional, functional_args);
  Stack results;
  ValueId next = recorded.first;
  size_t group = 0;
  for (size_t r = 0; r < info.returned.size(); ++r) {
    if (info.returned[r] >= 0)
      results.push_back(args[info.returned[r]]);
    else
      results.push_back(wrap_group(next, recorded.results->at(group++), info.list_result[r]));
  }
  for (int written : info.written) assign_group(args[written], recorded.results->at(group++), next, info.is_out);
  torch::jit::drop(*stack, info.kinds.size());
  for (auto& result : results) stack->push_back(std::move(result));
}

// Throws for spmdx:1 and higher, also where PyTorch does not check it. REQUIRES: one of the arguments is a device.
void require_our_device(const OpInfo& info, IValues args) {
  if (!args[info.device].isDevice()) return;
  const c10::Device device = args[info.device].toDevice();
  TORCH_CHECK(device.type() != kDeviceType || device.index() <= 0, "there is one logical spmdx device, spmdx:0, not ",
              device, ". Expected it. The devices of a mesh lie below it: call spmdx.mark_sharding.");
}

}  // namespace

Recorded record_op(const OpInfo& info, IValues args) {
  Collected collected;
  collected.all(info, args);
  const InternedRef entry = intern_op(info, args, collected.key);
  add_draw(info, args, collected.params);
  const ValueId first = Recorder::instance().record(entry->call, std::move(collected.values), collected.params);
  return {first, {entry, &entry->results}};
}

void record_any_op(const OpInfo& info, Stack* stack) {
  // What gives numbers to Python, or writes without a functional variant, cannot be a node.
  if (info.returns_values || (!info.written.empty() && !info.functional)) return run_on_host(info, stack);
  led(info, [&] {
    if (info.view_like)
      record_view(info, stack);
    else if (info.written.empty())
      record_plain(info, stack);
    else
      record_writes(info, stack);
  });
}

void record_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  Recorder::Lock lock;
  with_python_errors([&] {
    check_process();
    check_failed();
    const OpInfo& info = op_info(op);
    end_if_long(&info);
    if (info.device >= 0) led(info, [&] { require_our_device(info, arguments(info, *stack)); });
    if (any_foreign(info, arguments(info, *stack))) {
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), stack);
    } else {
      led(info, [&] { check_overlaps(info, arguments(info, *stack)); });
      if (!info.handler || !info.handler(info, stack)) record_any_op(info, stack);
      if (!stack->empty()) note_gradient(stack->back());
    }
  });
}

}  // namespace spmdx::bridge
