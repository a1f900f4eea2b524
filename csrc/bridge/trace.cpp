// SPDX-License-Identifier: Apache-2.0
// The boxed kernel of every op: views extend a chain, writes become functional ops, all else is a node.
#include "bridge/trace.h"

#include <c10/core/WrapDimMinimal.h>

#include <cstring>
#include <unordered_map>

#include "base/error.h"
#include "bridge/alias.h"
#include "bridge/aten_backend.h"
#include "bridge/compat.h"
#include "bridge/errors.h"
#include "bridge/generator.h"
#include "bridge/record.h"
#include "bridge/shapes.h"

namespace spmdx::bridge {
namespace {

using Values = std::vector<ValueId>;

// What equal calls share.
struct Interned {
  std::vector<uint64_t> key;
  CallRef call;  // null for a view-like op
  std::vector<std::vector<Meta>> results;
  std::vector<ViewResult> views;
};

uint64_t hash_words(const Key& key) {
  uint64_t h = key.size();
  for (uint64_t word : key) h = (h ^ word) * 0x9fb21c651e98df25ULL, h ^= h >> 32;
  return h;
}

bool equal_words(const Key& a, const std::vector<uint64_t>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(uint64_t)) == 0;
}

// Entries keep their address: results are read through pointers into them.
Interned* lookup(const Key& key, uint64_t hash, bool insert) {
  static auto* table = new std::unordered_multimap<uint64_t, std::unique_ptr<Interned>>;
  if (!insert) {
    auto [first, last] = table->equal_range(hash);
    for (; first != last; ++first) {
      if (equal_words(key, first->second->key)) return first->second.get();
    }
    return nullptr;
  }
  auto entry = std::make_unique<Interned>();
  entry->key.assign(key.begin(), key.end());
  return table->emplace(hash, std::move(entry))->second.get();
}

bool is_foreign(const at::Tensor& tensor) { return tensor.defined() && has_our_device(tensor) && !as_lazy(tensor); }

// FakeTensors and the like: meta tensors that carry our device's bit.
bool any_foreign(const OpInfo& info, IValues args) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (info.slots[i] == Slot::tensor) {
      if (args[i].isTensor() && is_foreign(args[i].toTensor())) return true;
    } else if (info.slots[i] == Slot::tensor_list || info.slots[i] == Slot::optional_tensor_list) {
      if (!args[i].isList()) continue;
      for (const auto& item : args[i].toListRef()) {
        if (item.isTensor() && is_foreign(item.toTensor())) return true;
      }
    }
  }
  return false;
}

[[noreturn]] void device_mismatch(const at::Tensor& tensor) {
  throw std::runtime_error(
      "Expected all tensors to be on the same device, but found at least two devices, spmdx:0 and " +
      tensor.device().str() + "! Move the tensor with .to('spmdx').");
}

// Walks an op's arguments once: words of the key, operand values, parameters.
struct Gathered {
  Key key;
  Values values;
  std::vector<Param> params;
  bool index_op = false;

  void tensor(const at::Tensor& tensor) {
    LazyTensor* lazy = as_lazy(tensor);
    if (lazy) {
      values.push_back(Recorder::instance().read(*lazy));
    } else if (index_op && tensor.is_cpu() && tensor.dim() > 0) {
      // Eager accepts index tensors on the host.
      values.push_back(Recorder::instance().read(*as_lazy(Recorder::instance().upload(tensor))));
    } else {
      values.push_back(operand(tensor));
    }
    add_tensor(key, tensor, !lazy);
  }
  void absent() { key.push_back(0); }
  void list(const c10::IValue& value) {
    const auto items = value.toListRef();
    key.push_back(items.size() << 8 | 7);
    for (const auto& item : items) {
      if (item.isTensor() && item.toTensor().defined())
        tensor(item.toTensor());
      else
        absent();
    }
  }
  void all(const OpInfo& info, IValues args) {
    key.push_back(reinterpret_cast<uintptr_t>(&info));
    key.push_back(static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));
    for (size_t i = 0; i < args.size(); ++i) {
      const Slot slot = info.slots[i];
      if (args[i].isNone())
        absent();
      else if (slot == Slot::tensor)
        args[i].toTensor().defined() ? tensor(args[i].toTensor()) : absent();
      else if (slot == Slot::tensor_list || slot == Slot::optional_tensor_list)
        list(args[i]);
      else {
        add_words(key, slot, args[i], info.constant_reals);
        add_params(params, slot, args[i], info.constant_reals);
      }
    }
  }
};

// ---- the Call of an op, on a miss --------------------------------------------------------------------

struct CallBuilder {
  Call call;
  Arg operand(const at::Tensor& tensor) {
    TensorType type = type_of(meta_of(tensor));
    type.wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    call.inputs.push_back(std::move(type));
    return TensorArg{static_cast<uint32_t>(call.inputs.size() - 1)};
  }
  Arg list(const c10::IValue& value) {
    TensorListArg list;
    for (const auto& item : value.toListRef()) {
      const bool present = item.isTensor() && item.toTensor().defined();
      list.inputs.push_back(present ? std::get<TensorArg>(operand(item.toTensor())).input : kNone);
    }
    return list;
  }
  void add(const OpInfo& info, size_t i, const c10::IValue& value) {
    const Slot slot = info.slots[i];
    if (value.isNone() && slot != Slot::generator) {
      call.args.emplace_back(std::monostate{});
    } else if (slot == Slot::tensor) {
      const bool present = value.toTensor().defined();
      call.args.push_back(present ? operand(value.toTensor()) : Arg{std::monostate{}});
    } else if (slot == Slot::tensor_list || slot == Slot::optional_tensor_list) {
      call.args.push_back(list(value));
    } else if (slot == Slot::generator) {
      call.args.emplace_back(OpaqueArg{"generator"});
    } else {
      call.args.push_back(to_arg(slot, value, info.constant_reals, call.num_params));
    }
  }
};

bool draws(const OpInfo& info) {
  return std::find(info.slots.begin(), info.slots.end(), Slot::generator) != info.slots.end();
}

CallRef build_call(const OpInfo& info, IValues args, const std::vector<std::vector<Meta>>& results) {
  CallBuilder builder;
  builder.call.op = info.name;
  for (size_t i = 0; i < args.size(); ++i) builder.add(info, i, args[i]);
  for (const auto& group : results) {
    for (const auto& meta : group) builder.call.outputs.push_back(type_of(meta));
  }
  Call& call = builder.call;
  for (size_t i = 0; i < args.size(); ++i) {
    // A factory's dtype is the default of the moment: it is made explicit.
    if (info.slots[i] == Slot::dtype && args[i].isNone() && call.inputs.empty()) call.args[i] = call.outputs[0].dtype;
  }
  if (draws(info)) {
    call.args.emplace_back(IntParam{call.num_params++});
    call.args.emplace_back(IntParam{call.num_params++});
  }
  return seal(std::move(call));
}

void add_draw(const OpInfo& info, IValues args, std::vector<Param>& params) {
  if (!draws(info)) return;
  for (size_t i = 0; i < args.size(); ++i) {
    if (info.slots[i] != Slot::generator) continue;
    const Draw draw = next_draw(args[i].isGenerator() ? std::optional(args[i].toGenerator()) : std::nullopt);
    params.push_back({.integer = static_cast<int64_t>(draw.seed)});
    params.push_back({.integer = static_cast<int64_t>(draw.draw)});
  }
}

const Interned& intern_op(const OpInfo& info, IValues args, const Gathered& gathered) {
  const uint64_t hash = hash_words(gathered.key);
  if (Interned* known = lookup(gathered.key, hash, false)) return *known;
  auto results = infer(info, args);
  CallRef call = build_call(info, args, results);
  Interned* fresh = lookup(gathered.key, hash, true);
  fresh->call = std::move(call);
  fresh->results = std::move(results);
  return *fresh;
}

// ---- views -------------------------------------------------------------------------------------------

const Interned& intern_view(const OpInfo& info, IValues args) {
  Key key;
  key.push_back(reinterpret_cast<uintptr_t>(&info));
  add_tensor(key, args[0].toTensor(), false);
  for (size_t i = 1; i < args.size(); ++i) add_words(key, info.slots[i], args[i], true);
  const uint64_t hash = hash_words(key);
  if (Interned* known = lookup(key, hash, false)) return *known;
  auto results = infer(info, args);
  Meta in = meta_of(args[0].toTensor());
  in.offset = 0;
  auto views = view_results(info, args, in, results.at(0));
  Interned* fresh = lookup(key, hash, true);
  fresh->results = std::move(results);
  fresh->views = std::move(views);
  return *fresh;
}

at::Tensor view_of(const at::Tensor& source, const ViewResult& view, bool aliases) {
  LazyTensor& lazy = *as_lazy(source);
  if (!aliases) {
    ValueId value = Recorder::instance().read(lazy);
    for (const auto& step : view.steps) value = record_call(step.call, {value}, step.params) + step.result;
    return wrap_value(value, view.meta);
  }
  if (!lazy.chain && lazy.requires_grad() && lazy.root().current.data) watch_leaf(lazy);  // views too
  Meta meta = view.meta;
  meta.offset += source.storage_offset();
  const bool current = view.steps.empty() && lazy.cached_generation == lazy.root().generation;
  return make_view(lazy, view.steps, meta, current ? lazy.cached : LazyValue{});
}

void trace_view(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor source = args[0].toTensor();
  if (!as_lazy(source)) device_mismatch(source);
  const Interned& entry = intern_view(info, args);
  c10::IValue result;
  if (info.list_result.at(0)) {
    c10::List<at::Tensor> list;
    for (const auto& view : entry.views) list.push_back(view_of(source, view, info.viewed == 0));
    result = std::move(list);
  } else {
    result = view_of(source, entry.views.at(0), info.viewed == 0);
  }
  finish(info, stack, std::move(result));
}

// ---- results and writes ------------------------------------------------------------------------------

c10::IValue wrap_group(ValueId& next, const std::vector<Meta>& group, bool list) {
  auto wrap = [&](const Meta& meta) {
    const ValueId value = next++;
    return meta.defined ? wrap_value(value, meta) : at::Tensor();
  };
  if (!list) return wrap(group.at(0));
  c10::List<at::Tensor> tensors;
  for (const auto& meta : group) tensors.push_back(wrap(meta));
  return tensors;
}

void trace_plain(const OpInfo& info, Stack* stack) {
  const Traced traced = record_op(info, arguments(info, *stack));
  Stack results;
  ValueId next = traced.first;
  for (size_t r = 0; r < traced.results->size(); ++r) {
    results.push_back(wrap_group(next, (*traced.results)[r], info.list_result[r]));
  }
  torch::jit::drop(*stack, info.slots.size());
  for (auto& result : results) stack->push_back(std::move(result));
}

void check_cast(const at::Tensor& tensor, c10::ScalarType result) {
  TORCH_CHECK(c10::canCast(result, tensor.scalar_type()), "result type ", c10::toString(result),
              " can't be cast to the desired output type ", c10::toString(tensor.scalar_type()));
}

void assign_group(const c10::IValue& target, const std::vector<Meta>& group, ValueId& next, bool resize) {
  auto put = [&](const at::Tensor& tensor, const Meta& meta) {
    const ValueId value = next++;
    if (!tensor.defined() || !meta.defined) return;
    check_cast(tensor, meta.dtype);
    assign(tensor, value, resize);
  };
  if (target.isTensor()) return put(target.toTensor(), group.at(0));
  if (!target.isList()) {
    next += static_cast<ValueId>(group.size());
    return;
  }
  size_t i = 0;
  for (const auto& item : target.toListRef()) put(item.isTensor() ? item.toTensor() : at::Tensor(), group.at(i++));
}

// The functional variant gives first the results that are not written operands, then those operands in order.
void trace_writes(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  Stack functional_args;
  for (int position : info.functional_args) functional_args.push_back(args[position]);
  const Traced traced = record_op(*info.functional, functional_args);
  Stack results;
  ValueId next = traced.first;
  size_t group = 0;
  for (size_t r = 0; r < info.returned.size(); ++r) {
    if (info.returned[r] >= 0)
      results.push_back(args[info.returned[r]]);
    else
      results.push_back(wrap_group(next, traced.results->at(group++), info.list_result[r]));
  }
  for (int written : info.written) assign_group(args[written], traced.results->at(group++), next, info.is_out);
  torch::jit::drop(*stack, info.slots.size());
  for (auto& result : results) stack->push_back(std::move(result));
}

}  // namespace

Traced record_op(const OpInfo& info, IValues args) {
  Gathered gathered;
  gathered.index_op = info.base == "aten.index" || info.base == "aten.index_put" || info.base == "aten._unsafe_index" ||
                      info.base == "aten._index_put_impl";
  gathered.all(info, args);
  const Interned& entry = intern_op(info, args, gathered);
  add_draw(info, args, gathered.params);
  const ValueId first = Recorder::instance().record(entry.call, std::move(gathered.values), gathered.params);
  return {first, &entry.results};
}

void trace_op(const OpInfo& info, Stack* stack) {
  if (is_view_like(info)) return trace_view(info, stack);
  if (info.written.empty()) return trace_plain(info, stack);
  info.functional ? trace_writes(info, stack) : run_on_host(info, stack);
}

void trace(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  Recorder::Lock lock;
  with_python_errors([&] {
    Recorder::instance().check_failed();
    Recorder::instance().cut_if_long();
    const OpInfo& info = op_info(op);
    if (any_foreign(info, arguments(info, *stack))) {
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), stack);
    } else if (!info.handler || !info.handler(info, stack)) {
      trace_op(info, stack);
    }
  });
}

ValueId operand(const at::Tensor& tensor) {
  if (LazyTensor* lazy = as_lazy(tensor)) return Recorder::instance().read(*lazy);
  if (!tensor.is_cpu() || tensor.dim() != 0) device_mismatch(tensor);
  return Recorder::instance().host_scalar(tensor);
}

void assign(const at::Tensor& tensor, ValueId value, bool resize) {
  LazyTensor* lazy = as_lazy(tensor);
  if (!lazy) device_mismatch(tensor);
  auto& recorder = Recorder::instance();
  const TensorType type = recorder.type(value);
  value = cast(value, to_dtype(tensor.scalar_type()));
  if (tensor.sizes() != c10::IntArrayRef(type.shape)) {
    TORCH_CHECK(resize, "output with shape ", tensor.sizes(), " doesn't match the broadcast shape ",
                c10::IntArrayRef(type.shape));
    at::Tensor fresh = wrap_value(value);
    lazy->become(*as_lazy(fresh));
    return;
  }
  recorder.write(*lazy, value);
}

at::Tensor wrap_value(ValueId value, const Meta& meta) { return make_tensor(Recorder::instance().held(value), meta); }

at::Tensor wrap_value(ValueId value) {
  const TensorType& type = Recorder::instance().type(value);
  return wrap_value(value, Meta{to_scalar_type(type.dtype), type.shape, contiguous_strides(type.shape), 0, true});
}

c10::IValue named(const OpInfo& info, IValues args, const char* name) {
  auto position = info.op.schema().argumentIndexWithName(name);
  return position ? args[*position] : c10::IValue();
}

IValues arguments(const OpInfo& info, const Stack& stack) { return torch::jit::last(stack, info.slots.size()); }

void finish(const OpInfo& info, Stack* stack, c10::IValue result) {
  torch::jit::drop(*stack, info.slots.size());
  stack->push_back(std::move(result));
}

const OpInfo& find_op(const char* name, const char* overload) {
  return op_info(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

}  // namespace spmdx::bridge
