// SPDX-License-Identifier: Apache-2.0
// Random ops that are recorded as counter-based ops of our own, which draw the same numbers on every mesh.
#include <ATen/Functions.h>

#include <limits>

#include "bridge/backend/aten_names.h"
#include "bridge/record/call/handlers.h"
#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/record/operands.h"
#include "bridge/recorder/values.h"
#include "bridge/tensor/calls.h"
#include "bridge/tensor/generator.h"
#include "bridge/tensor/meta.h"

namespace spmdx::bridge {
namespace {

Draw draw_for(const OpInfo& info, IValues args) {
  const c10::IValue generator = named(info, args, "generator");
  return next_draw(generator.isGenerator() ? std::optional(generator.toGenerator()) : std::nullopt);
}

// Records spmdx.random.<kind>(sizes, starts, extents, dtype, numbers…, seed, draw).
ValueId random_value(const char* kind, const Shape& sizes, DType dtype, const std::vector<Arg>& numbers,
                     std::vector<Param> params, Draw draw) {
  std::vector<Arg> args{sizes, Shape(sizes.size(), 0), sizes, dtype};
  args.insert(args.end(), numbers.begin(), numbers.end());
  const auto first = static_cast<uint32_t>(params.size());
  args.emplace_back(IntParam{first});
  args.emplace_back(IntParam{first + 1});
  params.push_back({.integer = static_cast<int64_t>(draw.seed)});
  params.push_back({.integer = static_cast<int64_t>(draw.draw)});
  auto call = make_call(std::string("spmdx.random.") + kind, {}, std::move(args), {dtype, sizes, false}, first + 2);
  return record_call(std::move(call), {}, params);
}

ValueId of_reals(const char* kind, const Shape& sizes, DType dtype, const std::vector<double>& reals, Draw draw) {
  std::vector<Arg> numbers;
  std::vector<Param> params;
  for (double real : reals) {
    numbers.emplace_back(RealParam{static_cast<uint32_t>(params.size())});
    params.push_back({.real = real});
  }
  return random_value(kind, sizes, dtype, numbers, std::move(params), draw);
}

ValueId of_ints(const Shape& sizes, DType dtype, int64_t low, int64_t high, Draw draw) {
  TORCH_CHECK(low < high, "random_ expects 'from' to be less than 'to', but got from=", low, " >= to=", high);
  return random_value("randint", sizes, dtype, {low, high}, {}, draw);
}

// A complex number is drawn as two real ones.
ValueId uniform(const Shape& sizes, DType dtype, double low, double high, Draw draw) {
  if (!is_complex(dtype)) return of_reals("uniform", sizes, dtype, {low, high}, draw);
  Shape pairs = sizes;
  pairs.push_back(2);
  const DType part = to_dtype(c10::toRealValueType(to_scalar_type(dtype)));
  const ValueId parts = of_reals("uniform", pairs, part, {low, high}, draw);
  return record_call(make_call("aten.view_as_complex", {{part, pairs, false}}, {}, {dtype, sizes, false}), {parts});
}

double real_or(const c10::IValue& value, double otherwise) { return value.isNone() ? otherwise : real_value(value); }

// ---- in place: the operand gives sizes and dtype -----------------------------------------------------

bool put(const OpInfo& info, Stack* stack, const at::Tensor& self, ValueId value) {
  assign(self, value, false);
  finish(info, stack, self);
  return true;
}

// Fills the operand with numbers of the distribution `kind`, whose parameters are `reals`.
bool fill(const OpInfo& info, Stack* stack, const char* kind, const std::vector<double>& reals) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor();
  return put(info, stack, self,
             of_reals(kind, self.sizes().vec(), to_dtype(self.scalar_type()), reals, draw_for(info, args)));
}

double real_at(const OpInfo& info, Stack* stack, size_t index) { return real_value(arguments(info, *stack)[index]); }

bool uniform_(const OpInfo& info, Stack* stack) {
  const double low = real_at(info, stack, 1), high = real_at(info, stack, 2);
  TORCH_CHECK(low <= high, "uniform_ expects to return a [from, to) range, but found from=", low, " > to=", high);
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor();
  return put(info, stack, self,
             uniform(self.sizes().vec(), to_dtype(self.scalar_type()), low, high, draw_for(info, args)));
}

bool normal_(const OpInfo& info, Stack* stack) {
  const double mean = real_at(info, stack, 1), deviation = real_at(info, stack, 2);
  TORCH_CHECK(deviation >= 0, "normal expects std >= 0.0, but found std ", deviation);
  return fill(info, stack, "normal", {mean, deviation});
}

bool exponential_(const OpInfo& info, Stack* stack) {
  const double rate = real_at(info, stack, 1);
  TORCH_CHECK(rate > 0, "exponential_ expects lambda > 0.0, but found lambda=", rate);
  return fill(info, stack, "exponential", {rate});
}

bool log_normal_(const OpInfo& info, Stack* stack) {
  const double mean = real_at(info, stack, 1), deviation = real_at(info, stack, 2);
  TORCH_CHECK(deviation > 0, "log_normal_ expects std > 0.0, but found std=", deviation);
  return fill(info, stack, "log_normal", {mean, deviation});
}

bool cauchy_(const OpInfo& info, Stack* stack) {
  const at::Tensor self = arguments(info, *stack)[0].toTensor();
  const double median = real_at(info, stack, 1), width = real_at(info, stack, 2);
  TORCH_CHECK(width > 0, "cauchy_ expects sigma > 0.0, but found sigma=", width);
  TORCH_CHECK(at::isFloatingType(self.scalar_type()), "Cauchy distribution is a continuous probability distribution. ",
              "dtype must be a floating point but you specified ", self.dtype());
  return fill(info, stack, "cauchy", {median, width});
}

bool geometric_(const OpInfo& info, Stack* stack) {
  const double p = real_at(info, stack, 1);
  TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  return fill(info, stack, "geometric", {p});
}

ValueId bernoulli_like(const OpInfo& info, IValues args) {
  const at::Tensor self = args[0].toTensor();
  const double p = real_value(args[1]);
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  return of_reals("bernoulli", self.sizes().vec(), to_dtype(self.scalar_type()), {p}, draw_for(info, args));
}

bool bernoulli_(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor();
  return put(info, stack, self, bernoulli_like(info, args));
}

bool bernoulli_p(const OpInfo& info, Stack* stack) {
  finish(info, stack, wrap_value(bernoulli_like(info, arguments(info, *stack))));
  return true;
}

// The end of the range from which eager's random_() draws: integers that the dtype represents exactly.
int64_t exact_limit(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kBool:
      return 2;
    case c10::kByte:
      return 256;
    case c10::kChar:
      return 128;
    case c10::kShort:
      return 32768;
    case c10::kInt:
      return int64_t{1} << 31;
    case c10::kHalf:
      return (1 << 11) + 1;
    case c10::kBFloat16:
      return (1 << 8) + 1;
    case c10::kFloat:
      return (1 << 24) + 1;
    case c10::kDouble:
      return (int64_t{1} << 53) + 1;
    default:
      return std::numeric_limits<int64_t>::max();
  }
}

bool random_(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor();
  const c10::IValue from = named(info, args, "from"), to = named(info, args, "to");
  const int64_t low = from.isNone() ? 0 : int_value(from);
  const int64_t high = to.isNone() ? exact_limit(self.scalar_type()) : int_value(to);
  return put(info, stack, self,
             of_ints(self.sizes().vec(), to_dtype(self.scalar_type()), low, high, draw_for(info, args)));
}

// ---- factories ---------------------------------------------------------------------------------------

c10::ScalarType dtype_of(const OpInfo& info, IValues args, c10::ScalarType otherwise) {
  const c10::IValue dtype = named(info, args, "dtype");
  return dtype.isNone() ? otherwise : static_cast<c10::ScalarType>(int_value(dtype));
}

DType floating_dtype(const OpInfo& info, IValues args) {
  return to_dtype(dtype_of(info, args, c10::get_default_dtype_as_scalartype()));
}
bool rand(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const ValueId made = uniform(int_list(args[0]), floating_dtype(info, args), 0.0, 1.0, draw_for(info, args));
  finish(info, stack, wrap_value(made));
  return true;
}
bool randn(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const Draw draw = draw_for(info, args);
  finish(info, stack, wrap_value(of_reals("normal", int_list(args[0]), floating_dtype(info, args), {0.0, 1.0}, draw)));
  return true;
}

bool normal_sized(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const DType dtype = to_dtype(dtype_of(info, args, c10::get_default_dtype_as_scalartype()));
  finish(info, stack,
         wrap_value(of_reals("normal", int_list(args[2]), dtype, {real_or(args[0], 0), real_or(args[1], 1)},
                             draw_for(info, args))));
  return true;
}

bool randint(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const c10::IValue low = named(info, args, "low");
  const DType dtype = to_dtype(dtype_of(info, args, c10::kLong));
  finish(info, stack,
         wrap_value(of_ints(int_list(named(info, args, "size")), dtype, low.isNone() ? 0 : int_value(low),
                            int_value(named(info, args, "high")), draw_for(info, args))));
  return true;
}

bool randperm(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const int64_t n = int_value(args[0]);
  TORCH_CHECK(n >= 0, "n must be non-negative, got ", n);
  const DType dtype = to_dtype(dtype_of(info, args, c10::kLong));
  const Draw draw = draw_for(info, args);
  auto call = make_call("spmdx.random.randperm", {}, {n, dtype, IntParam{0}, IntParam{1}}, {dtype, {n}, false}, 2);
  finish(info, stack,
         wrap_value(record_call(
             std::move(call), {},
             {{.integer = static_cast<int64_t>(draw.seed)}, {.integer = static_cast<int64_t>(draw.draw)}})));
  return true;
}

// Refuses what eager refuses, before the op is recorded as any other.
bool check_multinomial(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor();
  const int64_t samples = int_value(args[1]);
  TORCH_CHECK(self.dim() == 1 || self.dim() == 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(args[2].toBool() || samples <= self.size(-1),
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  return false;
}

// Composed of an op that draws and a product, because the op itself has no generator argument.
bool native_dropout(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor();
  const double p = real_value(args[1]);
  const bool train = args[2].isNone() || args[2].toBool();
  const Shape sizes = self.sizes().vec();
  const ValueId x = operand(self);
  if (!train) {
    const at::Tensor mask = wrap_value(full_bool(sizes, true, DType::b8)), values = wrap_value(x, share(meta_of(self)));
    torch::jit::drop(*stack, info.kinds.size());
    torch::jit::push(*stack, values, mask);
    return true;
  }
  const at::Tensor mask = wrap_value(of_reals("bernoulli", sizes, DType::b8, {1 - p}, next_draw(std::nullopt)));
  const at::Tensor kept = self.mul(mask).mul(p == 1 ? 0.0 : 1 / (1 - p));
  torch::jit::drop(*stack, info.kinds.size());
  torch::jit::push(*stack, kept, mask);
  return true;
}

// The noise is a random slope where x is not positive, and 1 elsewhere.
bool rrelu(const OpInfo& info, Stack* stack) {
  const IValues args = arguments(info, *stack);
  const at::Tensor self = args[0].toTensor(), noise = args[1].toTensor();
  const double low = real_value(args[2]), high = real_value(args[3]);
  const bool in_place = info.written.size() == 2;
  TORCH_CHECK(low <= high, "Lower bound should be less than or equal to the upper bound");
  if (!args[4].toBool()) {
    const at::Tensor result = at::leaky_relu(self, (low + high) / 2);
    return in_place ? put(info, stack, self, operand(result)) : (finish(info, stack, result), true);
  }
  const DType dtype = to_dtype(self.scalar_type());
  const at::Tensor slopes =
      wrap_value(of_reals("uniform", self.sizes().vec(), dtype, {low, high}, draw_for(info, args)));
  const at::Tensor drawn = at::where(self.le(0), slopes, at::ones_like(self)), result = self.mul(drawn);
  assign(noise, operand(drawn), true);
  return in_place ? put(info, stack, self, operand(result)) : (finish(info, stack, result), true);
}

void add_random_handlers() {
  for (const char* name : {"aten.random_", "aten.random_.to", "aten.random_.from"}) add_handler(name, random_);
  for (const char* name : {"aten.rand", "aten.rand.generator"}) add_handler(name, rand);
  for (const char* name : {"aten.randn", "aten.randn.generator"}) add_handler(name, randn);
  for (const char* name : {"aten.randperm", "aten.randperm.generator"}) add_handler(name, randperm);
  for (const char* name :
       {"aten.randint", "aten.randint.generator", "aten.randint.low", "aten.randint.low_generator"}) {
    add_handler(name, randint);
  }
  add_handler("aten.uniform_", uniform_);
  add_handler("aten.normal_", normal_);
  add_handler("aten.normal.float_float", normal_sized);
  add_handler("aten.exponential_", exponential_);
  add_handler("aten.cauchy_", cauchy_);
  add_handler("aten.geometric_", geometric_);
  add_handler("aten.log_normal_", log_normal_);
  for (const char* name : {"aten.rrelu_with_noise", "aten.rrelu_with_noise_"}) add_handler(name, rrelu);
  add_handler("aten.bernoulli_.float", bernoulli_);
  add_handler("aten.bernoulli.p", bernoulli_p);
  add_handler("aten.multinomial", check_multinomial);
  add_handler("aten.native_dropout", native_dropout);
}

const HandlersAtLoad random_handlers(add_random_handlers);

}  // namespace
}  // namespace spmdx::bridge
