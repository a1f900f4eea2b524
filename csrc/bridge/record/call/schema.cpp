// SPDX-License-Identifier: Apache-2.0
// Reads from the schema of an op: kinds of arguments, what it writes, its functional variant.
#include "bridge/record/call/schema.h"

#include <algorithm>
#include <array>
#include <deque>
#include <string_view>
#include <unordered_map>

#include "bridge/backend/aten_facts.h"
#include "bridge/backend/aten_names.h"
#include "bridge/record/call/handlers.h"
#include "bridge/record/call/taken_back.h"
#include "bridge/record/call/views.h"
#include "rules/rule/row.h"

namespace spmdx::bridge {
namespace {

using c10::TypeKind;

bool contains(const auto& list, const auto& item) {
  return std::find(std::begin(list), std::end(list), item) != std::end(list);
}

// Names of arguments about device and memory, which a graph does not record.
constexpr std::array<std::string_view, 4> kHostNames = {"device", "layout", "pin_memory", "non_blocking"};
bool has_constant_reals(const OpInfo& info) {
  const rules::Row* row = rules::find_row(info.name);
  return row ? row->constant_reals : info.facts->constant_reals;
}

ArgumentKind kind_of(const c10::Argument& argument) {
  auto type = argument.real_type();
  if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  if (contains(kHostNames, std::string_view(argument.name()))) return ArgumentKind::host_only;
  switch (type->kind()) {
    case TypeKind::TensorType:
      return ArgumentKind::tensor;
    case TypeKind::FloatType:
      return ArgumentKind::real;
    case TypeKind::NumberType:
      return ArgumentKind::number;
    case TypeKind::ScalarTypeType:
      return ArgumentKind::dtype;
    case TypeKind::MemoryFormatType:
      return ArgumentKind::memory_format;
    case TypeKind::GeneratorType:
      return ArgumentKind::generator;
    case TypeKind::DeviceObjType:
    case TypeKind::LayoutType:
      return ArgumentKind::host_only;
    case TypeKind::ListType: {
      auto element = type->castRaw<c10::ListType>()->getElementType();
      if (element->kind() == TypeKind::TensorType) return ArgumentKind::tensor_list;
      if (auto inner = element->cast<c10::OptionalType>()) {
        if (inner->getElementType()->kind() == TypeKind::TensorType) return ArgumentKind::optional_tensor_list;
      }
      return ArgumentKind::constant;
    }
    default:
      return ArgumentKind::constant;
  }
}

// The written argument that a result is, or -1: they carry the same alias set, as in `Tensor(a!)`.
int written_result(const c10::FunctionSchema& schema, const c10::Argument& result, const std::vector<int>& written) {
  if (!result.alias_info() || !result.alias_info()->isWrite()) return -1;
  for (int arg : written) {
    if (schema.arguments()[arg].alias_info()->beforeSets() == result.alias_info()->beforeSets()) return arg;
  }
  return -1;
}

const std::unordered_multimap<std::string, c10::OperatorName>& overloads() {
  static const auto* table = [] {
    auto* names = new std::unordered_multimap<std::string, c10::OperatorName>;
    for (auto& name : c10::Dispatcher::singleton().getAllOpNames()) names->emplace(name.name, name);
    return names;
  }();
  return *table;
}

// For each argument of `to` the position of the argument of `from` with its name and type. Empty if one has none, if
// some argument of `from` but `out` is left over, or if `to` writes.
std::vector<int> matching_args(const c10::FunctionSchema& from, const c10::FunctionSchema& to) {
  std::vector<int> positions;
  for (const auto& argument : to.arguments()) {
    if (argument.alias_info()) return {};
    auto position = from.argumentIndexWithName(argument.name());
    if (!position || *from.arguments()[*position].real_type() != *argument.real_type()) return {};
    positions.push_back(*position);
  }
  const auto kept = std::count_if(from.arguments().begin(), from.arguments().end(),
                                  [](const auto& argument) { return !argument.is_out(); });
  return static_cast<int64_t>(positions.size()) == kept ? positions : std::vector<int>{};
}

void find_functional(OpInfo& info) {
  const auto& schema = info.op.schema();
  std::string base = schema.name();
  if (base.ends_with('_')) base.pop_back();
  std::vector<c10::OperatorName> candidates = {{base, schema.overload_name()}};
  for (const std::string& name : {base, base + "_functional"}) {
    auto [first, last] = overloads().equal_range(name);
    for (; first != last; ++first) candidates.push_back(first->second);
  }
  for (const auto& name : candidates) {
    auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op) continue;
    auto args = matching_args(schema, op->schema());
    if (args.empty()) continue;
    info.functional = &op_info(*op);
    info.functional_args = std::move(args);
    return;
  }
}

// Calls that were recorded, and kernels of plans, hold a handle of the op. PyTorch frees what it points to when
// torch.library takes the op back, but not while somebody has the name.
void keep_handle_valid(const c10::OperatorHandle& op) {
  new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().registerName(op.operator_name()));
}

OpInfo describe(const c10::OperatorHandle& op) {
  OpInfo info(op);
  const auto& schema = op.schema();
  info.name = op_name(op.operator_name());
  info.base = std::string(base_name(info.name));
  info.facts = &facts_of(info.name);
  info.device = schema.argumentIndexWithName("device").value_or(-1);
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto& argument = schema.arguments()[i];
    info.kinds.push_back(kind_of(argument));
    info.draws |= info.kinds.back() == ArgumentKind::generator;
    info.is_out |= argument.is_out();
    if (!argument.alias_info()) continue;
    if (argument.alias_info()->isWrite()) info.written.push_back(static_cast<int>(i));
  }
  for (const auto& result : schema.returns()) {
    info.returned.push_back(written_result(schema, result, info.written));
    info.returns_values |= !mentions_tensor(result);
    info.list_result.push_back(result.type()->kind() == TypeKind::ListType);
    if (result.alias_info() && !result.alias_info()->isWrite() && info.written.empty()) info.viewed = 0;
  }
  info.constant_reals = has_constant_reals(info);
  info.view_like = is_view_like(info);
  info.handler = find_handler(info.name);
  // An op with `out=` is recorded by the handler of its functional variant: see write_handled.
  if (!info.handler && !info.is_out) info.handler = find_handler(info.base);
  return info;
}

using OpInfos = std::unordered_map<const void*, OpInfo*>;  // by the address of the schema

// What was said of an op that is gone, and of ops whose functional variant it was. The facts themselves stay: interned
// calls are told apart by their address.
void forget(OpInfos& infos, const void* schema) {
  auto gone = infos.find(schema);
  if (gone == infos.end()) return;
  const OpInfo* info = gone->second;
  std::erase_if(infos, [&](const auto& entry) { return entry.second == info || entry.second->functional == info; });
}

}  // namespace

bool mentions_tensor(const c10::Argument& argument) {
  return argument.type()->str().find("Tensor") != std::string::npos;
}

const OpInfo& op_info(const c10::OperatorHandle& op) {
  static auto* table = new OpInfos;
  for (const void* schema : schemas_taken_back()) forget(*table, schema);
  const void* key = &op.schema();
  if (auto found = table->find(key); found != table->end()) return *found->second;
  keep_handle_valid(op);
  auto* info = new OpInfo(describe(op));
  table->emplace(key, info);
  if (!info->written.empty()) find_functional(*info);
  return *info;
}

}  // namespace spmdx::bridge
