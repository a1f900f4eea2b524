// SPDX-License-Identifier: Apache-2.0
// AtenKernel: an operator handle and prepared arguments, among which a run puts its tensors and parameters.
#include "bridge/backend/aten_kernel.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "base/error.h"
#include "base/philox.h"
#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/overwriting.h"
#include "bridge/backend/shard_device.h"
#include "bridge/backend/strides.h"
#include "passes/memory/memory_use.h"

namespace spmdx::bridge {
namespace {

bool asks_contiguous(rules::Needs needs) { return needs == rules::Needs::contiguous || needs == rules::Needs::aligned; }

struct TensorPlace {
  uint32_t argument = 0, input = 0;
  bool is_number = false;  // it promotes as a number of Python does
};
struct ListPlace {
  uint32_t argument = 0;
  std::vector<uint32_t> inputs;
  bool optional = false;
};
struct ParamPlace {
  uint32_t argument = 0, param = 0;
  bool integer = false;
  int64_t plus = 0;  // of an integer
};

// The type without the `?` of optional types.
c10::TypePtr strip_optional(c10::TypePtr type) {
  while (type->kind() == c10::TypeKind::OptionalType) type = type->expectRef<c10::OptionalType>().getElementType();
  return type;
}

c10::IValue number_as(c10::TypeKind kind, int64_t value) {
  if (kind == c10::TypeKind::FloatType) return static_cast<double>(value);
  if (kind == c10::TypeKind::BoolType) return value != 0;
  return value;
}

c10::IValue opaque_value(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  internal_check(colon != text.npos, "an opaque argument of no known kind: " + text);
  if (kind == "memory_format") return static_cast<int64_t>(std::stoll(text.substr(colon + 1)));
  if (kind == "complex") {
    const size_t comma = text.find(',');
    const auto part = [](const std::string& bits) { return std::bit_cast<double>(std::stoull(bits)); };
    return c10::complex<double>(part(text.substr(colon + 1, comma - colon - 1)), part(text.substr(comma + 1)));
  }
  throw InternalError("an opaque argument of no known kind: " + text);
}

bool is_device(const c10::Argument& argument) {
  return strip_optional(argument.type())->kind() == c10::TypeKind::DeviceObjType;
}

// Converts a constant argument to an IValue of its schema type.
struct ToIValue {
  c10::TypePtr type;  // not optional

  c10::TypeKind element() const {
    if (type->kind() != c10::TypeKind::ListType) return type->kind();
    return type->expectRef<c10::ListType>().getElementType()->kind();
  }
  bool is_list() const { return type->kind() == c10::TypeKind::ListType; }

  c10::IValue operator()(std::monostate) const { return {}; }
  c10::IValue operator()(bool value) const {
    if (element() == c10::TypeKind::BoolType || element() == c10::TypeKind::NumberType) return value;
    return (*this)(static_cast<int64_t>(value));
  }
  c10::IValue operator()(int64_t value) const {
    if (is_list()) return (*this)(std::vector<int64_t>{value});
    return number_as(element(), value);
  }
  c10::IValue operator()(double value) const {
    if (is_list()) return (*this)(std::vector<double>{value});
    if (element() == c10::TypeKind::IntType) return static_cast<int64_t>(value);
    return value;
  }
  c10::IValue operator()(const std::vector<int64_t>& values) const {
    if (element() == c10::TypeKind::FloatType) return std::vector<double>(values.begin(), values.end());
    if (element() == c10::TypeKind::NumberType) return scalars(values);
    if (element() == c10::TypeKind::BoolType) return (*this)(std::vector<bool>(values.begin(), values.end()));
    return values;
  }
  c10::IValue operator()(const std::vector<double>& values) const {
    if (element() == c10::TypeKind::NumberType) return scalars(values);
    return values;
  }
  c10::IValue operator()(const std::vector<bool>& values) const {
    c10::List<bool> list;
    for (const bool value : values) list.push_back(value);
    return list;
  }
  c10::IValue operator()(const std::string& text) const { return text; }
  c10::IValue operator()(DType dtype) const { return static_cast<int64_t>(to_scalar_type(dtype)); }
  c10::IValue operator()(const OpaqueArg& opaque) const { return opaque_value(opaque.text); }
  template <class Placeholder>
  c10::IValue operator()(const Placeholder&) const {
    return {};
  }

  template <class T>
  static c10::IValue scalars(const std::vector<T>& values) {
    c10::List<at::Scalar> list;
    for (const T value : values) list.push_back(at::Scalar(value));
    return list;
  }
};

[[noreturn]] void throw_taken_back(const std::string& op) {
  throw ShardingError("torch.library has taken back the op " + op +
                      ". Expected it to be there until the step that calls it has run. Call spmdx.mark_step before its "
                      "torch.library.Library goes.");
}

class AtenKernel final : public Kernel {
 public:
  AtenKernel(const Call& call, c10::OperatorHandle op) : op_(op), name_(call.op), outputs_(call.outputs) {
    const auto& schema = op.schema().arguments();
    for (size_t i = 0; i < schema.size(); ++i)
      i < call.args.size() ? add_argument(i, schema[i], call.args[i], call.inputs) : add_default(schema[i]);
    if (generator_ >= 0) add_generator_params(call, schema.size());
    if (const rules::Row* row = rules::find_row(call.op)) needs_ = row->needs;
    find_in_place(call);
    find_real_dtype(call);
  }

  void run(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs,
           int donated) override {
    KernelGuard guard;
    const Overwriting over(inputs, in_place_ ? donated : -1);
    stack_.assign(template_.begin(), template_.end());
    try {
      drop_in(over.inputs(), params);
      (over ? *in_place_ : op_).callBoxed(stack_);
      take_out(outputs);
    } catch (...) {
      stack_.clear();
      if (!op_.hasSchema()) throw_taken_back(name_);
      throw;
    }
    stack_.clear();
  }

 private:
  void add_default(const c10::Argument& argument) {
    internal_check(argument.default_value().has_value(),
                   name_ + " was recorded without its argument " + argument.name());
    template_.push_back(is_device(argument) ? c10::IValue(bridge::shard_device()) : *argument.default_value());
  }

  void add_argument(size_t index, const c10::Argument& argument, const Arg& arg,
                    const std::vector<TensorType>& inputs) {
    const c10::TypePtr type = strip_optional(argument.type());
    const auto place = static_cast<uint32_t>(index);
    if (const auto* tensor = std::get_if<TensorArg>(&arg)) {
      tensors_.push_back({place, tensor->input, inputs[tensor->input].wrapped_number});
    } else if (const auto* list = std::get_if<TensorListArg>(&arg)) {
      const bool optional = type->expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::OptionalType;
      lists_.push_back({place, list->inputs, optional});
    } else if (const auto* real = std::get_if<RealParam>(&arg)) {
      params_.push_back({place, real->index, false});
    } else if (const auto* integer = std::get_if<IntParam>(&arg)) {
      params_.push_back({place, integer->index, true, integer->plus});
    } else if (const auto* opaque = std::get_if<OpaqueArg>(&arg); opaque && opaque->text == "generator") {
      generator_ = static_cast<int>(index);
    }
    const bool absent_tensor =
        std::holds_alternative<std::monostate>(arg) && argument.type()->kind() == c10::TypeKind::TensorType;
    if (absent_tensor)
      template_.push_back(at::Tensor());
    else if (generator_ == static_cast<int>(index))
      template_.push_back({});
    else if (is_device(argument))
      template_.push_back(bridge::shard_device());
    else
      template_.push_back(std::visit(ToIValue{type}, arg));
  }

  // The call of a random op has two arguments behind those of the schema: seed and draw number.
  void add_generator_params(const Call& call, size_t at) {
    internal_check(call.args.size() >= at + 2 && std::holds_alternative<IntParam>(call.args[at]) &&
                       std::holds_alternative<IntParam>(call.args[at + 1]),
                   name_ + " has a generator but no seed and draw");
    seed_ = std::get<IntParam>(call.args[at]).index;
    draw_ = std::get<IntParam>(call.args[at + 1]).index;
  }

  // pow.Tensor_Scalar writes in place as pow_.Scalar.
  void find_in_place(const Call& call) {
    const std::string base(base_name(call.op)), overload = call.op.substr(base.size());
    if (memory_use(call) != MemoryUse::in_place) return;
    const bool told = overload.starts_with(".Tensor_");
    const std::string in_place = base + "_" + (told ? "." + overload.substr(8) : overload);
    const auto found = c10::Dispatcher::singleton().findSchema(operator_name(in_place));
    if (found && found->schema().arguments().size() == op_.schema().arguments().size()) in_place_ = *found;
  }

  // A pointwise op that makes reals of integers chooses the default dtype, and the program may have set another one
  // since it recorded the op. Integers that are cast to the recorded dtype first give the same results.
  void find_real_dtype(const Call& call) {
    if (call.outputs.size() != 1 || call.outputs[0].dtype == DType::unknown) return;
    const c10::ScalarType result = to_scalar_type(call.outputs[0].dtype);
    const bool only_integers = std::all_of(call.inputs.begin(), call.inputs.end(), [](const TensorType& type) {
      return type.wrapped_number || c10::isIntegralType(to_scalar_type(type.dtype), true);
    });
    if (c10::isFloatingType(result) && only_integers && op_.hasTag(at::Tag::pointwise)) real_dtype_ = result;
  }

  at::Tensor as_recorded(const at::Tensor& tensor) const {
    const bool changed = real_dtype_ && *real_dtype_ != c10::get_default_dtype_as_scalartype();
    return changed && c10::isIntegralType(tensor.scalar_type(), true) ? tensor.to(*real_dtype_) : tensor;
  }

  // Collectives make numbers that do not know that they are such.
  static at::Tensor as_number(const at::Tensor& tensor) {
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
    at::Tensor number = tensor.detach();
    number.unsafeGetTensorImpl()->set_wrapped_number(true);
    return number;
  }

  // An operand as the kernel needs it. PyTorch calls a tensor contiguous whatever the strides of its dims of size 0 or
  // 1 are, but kernels read those strides, so that they are set as well.
  at::Tensor operand(const BufferRef& buffer) const {
    if (!asks_contiguous(needs_)) return as_recorded(tensor_of(buffer));
    at::Tensor plain = as_recorded(tensor_of(buffer)).contiguous();
    if (needs_ == rules::Needs::aligned && plain.storage_offset() != 0) plain = plain.clone();
    const Shape strides = contiguous_strides(plain.sizes().vec());
    return plain.strides() == c10::IntArrayRef(strides) ? plain : plain.as_strided(plain.sizes(), strides);
  }

  void drop_in(std::span<const BufferRef> inputs, std::span<const Param> params) {
    for (const TensorPlace& place : tensors_) {
      const at::Tensor tensor = operand(inputs[place.input]);
      stack_[place.argument] = place.is_number ? as_number(tensor) : tensor;
    }
    for (const ListPlace& place : lists_) stack_[place.argument] = list_of(place, inputs);
    for (const ParamPlace& place : params_) {
      const Param& param = params[place.param];
      stack_[place.argument] = place.integer ? c10::IValue(param.integer + place.plus) : c10::IValue(param.real);
    }
    if (generator_ < 0) return;
    const auto seed = static_cast<uint64_t>(params[seed_].integer), draw = static_cast<uint64_t>(params[draw_].integer);
    stack_[generator_] = at::make_generator<at::CPUGeneratorImpl>(philox_words(seed, draw, 0).first);
  }

  c10::IValue list_of(const ListPlace& place, std::span<const BufferRef> inputs) const {
    if (place.optional) {
      c10::List<std::optional<at::Tensor>> list;
      for (const uint32_t i : place.inputs)
        list.push_back(i == kNone ? std::nullopt : std::optional<at::Tensor>(operand(inputs[i])));
      return list;
    }
    c10::List<at::Tensor> list;
    for (const uint32_t i : place.inputs) list.push_back(i == kNone ? at::Tensor() : operand(inputs[i]));
    return list;
  }

  // Moves the results that are tensors from the stack to `outputs`. A graph has no other results.
  void take_out(std::span<BufferRef> outputs) {
    size_t next = 0;
    for (c10::IValue& value : stack_) {
      if (value.isTensor()) {
        store(std::move(value).toTensor(), outputs, next);
      } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) store(tensor, outputs, next);
      }
    }
    if (next != outputs.size())  // the text is built on failure only: this runs for every op
      throw InternalError(name_ + " returned " + std::to_string(next) + " tensors, its trace says " +
                          std::to_string(outputs.size()));
  }

  void store(at::Tensor tensor, std::span<BufferRef> outputs, size_t& next) const {
    if (next >= outputs.size()) throw InternalError(name_ + " returned more tensors than its trace says");
    const size_t index = next++;
    if (outputs_[index].dtype == DType::unknown) return;
    check_result(tensor, outputs_[index]);
    outputs[index] = buffer_of(std::move(tensor));
  }

  void check_result(const at::Tensor& tensor, const TensorType& expected) const {
    if (tensor.defined() && tensor.sizes() == c10::IntArrayRef(expected.shape) &&
        tensor.scalar_type() == to_scalar_type(expected.dtype))
      return;
    const std::string actual =
        !tensor.defined() ? "nothing" : std::string(c10::toString(tensor.scalar_type())) + str(tensor.sizes().vec());
    throw InternalError(name_ + " returned " + actual + " where its plan expects " + str(expected));
  }

  c10::OperatorHandle op_;
  std::optional<c10::OperatorHandle> in_place_;
  std::string name_;
  std::vector<TensorType> outputs_;
  std::vector<c10::IValue> template_;
  torch::jit::Stack stack_;
  std::vector<TensorPlace> tensors_;
  std::vector<ListPlace> lists_;
  std::vector<ParamPlace> params_;
  int generator_ = -1;
  uint32_t seed_ = 0, draw_ = 0;
  rules::Needs needs_ = rules::Needs::any;
  std::optional<c10::ScalarType> real_dtype_;
};

}  // namespace

bool needs_contiguous(std::string_view op) {
  const rules::Row* row = rules::find_row(op);
  return row && asks_contiguous(row->needs);
}

std::unique_ptr<Kernel> prepare_aten(const Call& call) {
  // Shards may lie differently from the declared layout, so that aten.view would fail where aten.reshape copies.
  const std::string_view name = memory_use(call) == MemoryUse::reshape ? "aten.reshape" : std::string_view(call.op);
  const auto op = c10::Dispatcher::singleton().findSchema(operator_name(name));
  if (!op) throw_taken_back(call.op);
  return std::make_unique<AtenKernel>(call, *op);
}

}  // namespace spmdx::bridge
