// SPDX-License-Identifier: Apache-2.0
// Constants: read, assumed, and carried from one planned step to the next.
#include "bridge/step/constants.h"

#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/shard_device.h"
#include "bridge/python/source.h"
#include "bridge/recorder/recorder.h"
#include "bridge/step/constant_values.h"
#include "bridge/tensor/abstract.h"

namespace spmdx::bridge {
namespace {

// Planned steps that results may be computed of, one after the other, before they are computed unasked.
constexpr uint32_t kMostDepth = 64;

// Guarded by the recorder's lock.
std::unordered_map<const Data*, std::weak_ptr<Data>>& values_before() {
  static auto* instance = new std::unordered_map<const Data*, std::weak_ptr<Data>>;
  return *instance;
}
std::vector<Assumed>& assumed_values() {
  static auto* instance = new std::vector<Assumed>;
  return *instance;
}

// Data with elements that were made inside, as numbers of the program's text are.
bool is_given(const Data& data) {
  const auto found = values_before().find(&data);
  return found == values_before().end() || found->second.expired();
}

ConstantValues constants_of(const RecorderState& state) {
  return {state, assumed_values(), kMostConstantBytes, is_given};
}

[[noreturn]] void refuse_large(int64_t bytes) {
  const std::string where = source_text(current_source());
  throw ShardingError((where.empty() ? "" : where + ": ") +
                      "the values of a tensor are wanted that is computed from a constant of " + std::to_string(bytes) +
                      " bytes. Expected " + std::to_string(kMostConstantBytes) +
                      " bytes at most within spmdx.plan_only(). Say what the tensor holds with spmdx.assume(), or make "
                      "the constant smaller.");
}

// Elements of what is known; refuses what is not.
DataRef elements(const DataRef& data) {
  const Known* known = find_known(*data);
  if (known && known->too_large) refuse_large(known->too_large);
  if (known) return elements_of(data);
  if (data->is_abstract()) refuse_values();
  return data;
}

// An op that fails says so to who reads.
void compute_if_possible(const DataRef& data) {
  try {
    elements_of(data);
  } catch (const std::exception&) {
    return;
  }
}

// A whole tensor, of which a root holds the pending value that the tensor shows.
DataRef elements_of_pending(ValueId value) {
  const ConstantValues constants = constants_of(Recorder::instance().state());
  if (!constants.constant(value)) refuse_values();
  if (constants.too_large(value)) refuse_large(constants.too_large(value));
  return constants.known(value).compute();
}

}  // namespace

void begin_constants() {
  for (const auto& ref : live_roots())
    if (const DataRef& data = root_of(ref).current.data) values_before().emplace(data.get(), data);
}

void end_constants() {
  forget_all_known();
  assumed_values().clear();
  values_before().clear();
}

DataRef elements_shown(LazyTensor& tensor) {
  const DataRef data = tensor.root().current.data;
  return data && !tensor.chain() ? elements(data) : elements_of_pending(Recorder::instance().read(tensor));
}

DataRef known_elements(const DataRef& data) {
  const Known* known = find_known(*data);
  return known && !known->too_large ? elements_of(data) : nullptr;
}

void assume(LazyTensor& tensor, const at::Tensor& elements) {
  KernelGuard kernels_only;
  const LazyValue of = tensor.root().current;
  const TensorType type{to_dtype(tensor.dtype().toScalarType()), tensor.sizes().vec(), false};
  auto data = std::make_shared<Data>(type, nullptr, Shards{lent(elements.clone())});
  std::vector<Assumed>& all = assumed_values();
  const ViewChain steps = tensor.chain();
  if (of.data && !steps) return note_known(of.data, {.elements = std::move(data)});
  std::erase_if(all, [&](const Assumed& one) {
    return one.of.data == of.data && one.of.id == of.id && one.of.epoch == of.epoch && one.steps == steps;
  });
  all.push_back({of, steps, std::move(data)});
}

void note_constants(const RecorderState& state, const std::vector<RootRef>& roots,
                    const std::vector<DataRef>& results) {
  const ConstantValues constants = constants_of(state);
  std::vector<Assumed> kept;
  for (size_t i = 0; i < roots.size(); ++i) {
    const ValueId value = root_of(roots[i]).current.id;
    for (const Assumed& one : assumed_values())
      if (one.steps && state.pending(one.of) && one.of.id == value)
        kept.push_back({{0, kNone, results[i]}, one.steps, one.elements});
    if (!constants.constant(value)) continue;
    Known known = constants.known(value);
    const bool deep = known.depth > kMostDepth;
    note_known(results[i], std::move(known));
    if (deep) compute_if_possible(results[i]);
  }
  for (Assumed& one : assumed_values())
    if (one.of.data && one.of.data.use_count() > 1) kept.push_back(std::move(one));
  assumed_values() = std::move(kept);
}

}  // namespace spmdx::bridge
