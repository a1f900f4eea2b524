// SPDX-License-Identifier: Apache-2.0
// The table of interned calls: an entry is found by the words of the arguments, and made if there is none.
#include "bridge/record/intern.h"

#include <cstring>

#include "base/latest.h"
#include "bridge/record/layouts/shapes.h"

namespace spmdx::bridge {
namespace {

constexpr size_t kInterned = 1 << 13;  // half of the entries that are kept, of about a kilobyte each

uint64_t hash_words(const Key& key) {
  uint64_t h = key.size();
  for (uint64_t word : key) h = (h ^ word) * 0x9fb21c651e98df25ULL, h ^= h >> 32;
  return h;
}

bool equal_words(const Key& a, const std::vector<uint64_t>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(uint64_t)) == 0;
}

using KeptCalls = Latest<uint64_t, InternedRef>;
KeptCalls& kept_calls() {
  static auto* instance = new KeptCalls(kInterned);  // outlives every tensor
  return *instance;
}

InternedRef known(uint64_t hash, const Key& key) {
  const InternedRef* found = kept_calls().find(hash);
  return found && equal_words(key, (*found)->key) ? *found : nullptr;
}

std::shared_ptr<Interned> keyed(const Key& key) {
  auto entry = std::make_shared<Interned>();
  entry->key.assign(key.begin(), key.end());
  return entry;
}

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
    const ArgumentKind kind = info.kinds[i];
    if (value.isNone() && kind != ArgumentKind::generator) {
      call.args.emplace_back(std::monostate{});
    } else if (kind == ArgumentKind::tensor) {
      const bool present = value.toTensor().defined();
      call.args.push_back(present ? operand(value.toTensor()) : Arg{std::monostate{}});
    } else if (kind == ArgumentKind::tensor_list || kind == ArgumentKind::optional_tensor_list) {
      call.args.push_back(list(value));
    } else if (kind == ArgumentKind::generator) {
      call.args.emplace_back(OpaqueArg{"generator"});
    } else {
      call.args.push_back(to_arg(kind, value, info.constant_reals, call.num_params));
    }
  }
};

CallRef build_call(const OpInfo& info, IValues args, const std::vector<std::vector<Meta>>& results) {
  CallBuilder builder;
  builder.call.op = info.name;
  for (size_t i = 0; i < args.size(); ++i) builder.add(info, i, args[i]);
  for (const auto& group : results) {
    for (const auto& meta : group) builder.call.outputs.push_back(type_of(meta));
  }
  Call& call = builder.call;
  for (size_t i = 0; i < args.size(); ++i) {
    // A factory without a dtype takes PyTorch's default, which may change: the call names the dtype.
    if (info.kinds[i] == ArgumentKind::dtype && args[i].isNone() && call.inputs.empty())
      call.args[i] = call.outputs[0].dtype;
  }
  if (info.draws) {
    call.args.emplace_back(IntParam{call.num_params++});
    call.args.emplace_back(IntParam{call.num_params++});
  }
  return seal(std::move(call));
}

std::vector<std::vector<MetaRef>> shared(const std::vector<std::vector<Meta>>& results) {
  std::vector<std::vector<MetaRef>> layouts;
  for (const auto& group : results) {
    auto& refs = layouts.emplace_back();
    for (const Meta& meta : group) refs.push_back(meta.defined ? share(meta) : nullptr);
  }
  return layouts;
}

}  // namespace

InternedRef intern_op(const OpInfo& info, IValues args, const Key& key) {
  const uint64_t hash = hash_words(key);
  if (InternedRef found = known(hash, key)) return found;
  auto results = infer(info, args);
  CallRef call = build_call(info, args, results);
  const std::shared_ptr<Interned> fresh = keyed(key);
  fresh->call = std::move(call);
  fresh->results = shared(results);
  kept_calls().insert(hash, fresh);
  return fresh;
}

InternedRef intern_view(const OpInfo& info, IValues args) {
  Key key;
  key.push_back(reinterpret_cast<uintptr_t>(&info));
  add_tensor(key, args[0].toTensor(), false);
  for (size_t i = 1; i < args.size(); ++i) add_words(key, info.kinds[i], args[i], true);
  const uint64_t hash = hash_words(key);
  if (InternedRef found = known(hash, key)) return found;
  auto results = infer(info, args);
  Meta in = meta_of(args[0].toTensor());
  in.offset = 0;
  auto views = view_results(info, args, in, results.at(0));
  const std::shared_ptr<Interned> fresh = keyed(key);
  fresh->views = std::move(views);
  kept_calls().insert(hash, fresh);
  return fresh;
}

size_t interned_count() { return kept_calls().size(); }

}  // namespace spmdx::bridge
