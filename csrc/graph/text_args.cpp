// SPDX-License-Identifier: Apache-2.0
// ArgReader: one function for each kind of argument in graph text.
#include "graph/text_args.h"

#include "base/error.h"

namespace spmdx {
namespace {

uint32_t local(uint32_t index, uint32_t base, uint32_t count) {
  if (index >= base && index - base < count) return index - base;
  throw ShardingError("parameter #" + std::to_string(index) + " is not one of the node's. Expected the parameters " +
                      std::to_string(base) + " to " + std::to_string(base + count - 1) +
                      ", in the order of the arguments; or say 'params <first> <count>' after the arguments.");
}

}  // namespace

uint32_t ArgReader::operand() {
  cursor_.expect("%");
  const auto id = cursor_.number<ValueId>("the number of a value");
  if (id >= defined_.size() || !defined_[id]) {
    throw ShardingError("%" + std::to_string(id) +
                        " is used before it is defined. Expected an input or the result "
                        "of an earlier line.");
  }
  operands.push_back(id);
  return static_cast<uint32_t>(operands.size() - 1);
}

uint32_t ArgReader::param() {
  params.push_back(cursor_.number<uint32_t>("the number of a parameter"));
  return params.back();
}

IntParam ArgReader::integer_param() {
  IntParam result{param()};
  if (cursor_.accept("+") || cursor_.peek("-")) result.plus = cursor_.number<int64_t>("what is added to it");
  return result;
}

template <class T>
T ArgReader::empty_list() {
  cursor_.expect("[");
  cursor_.expect("]");
  return T{};
}

template <class T>
std::vector<T> ArgReader::more(T first, const char* expected) {
  std::vector<T> result{first};
  while (!cursor_.accept("]")) {
    cursor_.expect(",");
    result.push_back(cursor_.number<T>(expected));
  }
  return result;
}

template <class T, class Read>
std::vector<T> ArgReader::items(Read read_item) {
  std::vector<T> result{read_item()};
  while (!cursor_.accept("]")) {
    cursor_.expect(",");
    result.push_back(read_item());
  }
  return result;
}

Arg ArgReader::dtype() {
  const std::string text = cursor_.word("a dtype");
  if (const auto found = parse_dtype(text)) return *found;
  throw ShardingError("unknown dtype '" + text + "'. Expected one like f32, bf16 or i64.");
}

Arg ArgReader::list() {
  cursor_.expect("[");
  if (cursor_.accept("]")) return std::vector<int64_t>{};
  if (cursor_.peek("%") || cursor_.peek("none")) {
    TensorListArg result;
    result.inputs = items<uint32_t>([&] { return cursor_.accept("none") ? kNone : operand(); });
    return result;
  }
  if (cursor_.peek("true") || cursor_.peek("false")) {
    return items<bool>([&] {
      if (cursor_.accept("true")) return true;
      cursor_.expect("false");
      return false;
    });
  }
  const auto first = cursor_.numeric();
  if (const auto* i = std::get_if<int64_t>(&first)) return more(*i, "an integer");
  return more(std::get<double>(first), "a number");
}

Arg ArgReader::argument() {
  if (cursor_.peek("%")) return TensorArg{operand()};
  if (cursor_.peek("[")) return list();
  if (cursor_.peek("\"")) return cursor_.quoted();
  if (cursor_.accept("none")) return std::monostate{};
  if (cursor_.accept("true")) return true;
  if (cursor_.accept("false")) return false;
  if (cursor_.accept("real#")) return RealParam{param()};
  if (cursor_.accept("int#")) return integer_param();
  if (cursor_.accept("dtype:")) return dtype();
  if (cursor_.accept("opaque")) return OpaqueArg{cursor_.quoted()};
  if (cursor_.accept("tensors")) return empty_list<TensorListArg>();
  if (cursor_.accept("doubles")) return empty_list<std::vector<double>>();
  if (cursor_.accept("bools")) return empty_list<std::vector<bool>>();
  return std::visit([](auto value) { return Arg(value); }, cursor_.numeric());
}

void ArgReader::read(Call& call) {
  cursor_.expect("(");
  while (!cursor_.accept(")")) {
    if (!call.args.empty()) cursor_.expect(",");
    call.args.push_back(argument());
  }
  for (ValueId value : operands) call.inputs.push_back(graph_.values[value].type);
}

void ArgReader::number_params(Call& call, uint32_t base, uint32_t count) {
  call.num_params = count;
  for (Arg& arg : call.args) {
    if (auto* real = std::get_if<RealParam>(&arg)) real->index = local(real->index, base, count);
    if (auto* integer = std::get_if<IntParam>(&arg)) integer->index = local(integer->index, base, count);
  }
}

}  // namespace spmdx
