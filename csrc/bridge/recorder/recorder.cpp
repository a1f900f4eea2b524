// SPDX-License-Identifier: Apache-2.0
// The recorder: its lock, and values of the graph being recorded.
#include "bridge/recorder/recorder.h"

#include <ATen/ops/scalar_tensor.h>

#include <array>
#include <cstring>
#include <mutex>
#include <unordered_set>

#include "base/error.h"
#include "base/waiting.h"
#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/shard_device.h"
#include "bridge/python/gil.h"
#include "bridge/python/source.h"
#include "bridge/recorder/recorder_state.h"
#include "bridge/tensor/abstract.h"
#include "bridge/tensor/known.h"

namespace spmdx::bridge {
namespace {

std::mutex& recorder_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}
thread_local int lock_depth = 0;  // taken by this thread; cheaper than a recursive mutex, and every op takes it often

// A scalar that may be written to before the step runs.
DataRef scalar_data(const at::Tensor& tensor, const TensorType& type) {
  return std::make_shared<Data>(type, nullptr, Shards{uploaded(tensor)});
}

// A number from the program's text: nobody writes to it, and it comes again with the next step. The latest are kept.
// Holds the recorder's lock.
DataRef number_data(const at::Tensor& tensor, const TensorType& type) {
  struct Known {
    uint64_t bits = 0;
    DataRef data;
  };
  static auto* latest = new std::array<Known, 256>;
  uint64_t bits = 0;
  if (static_cast<size_t>(tensor.element_size()) > sizeof bits)
    return std::make_shared<Data>(type, nullptr, Shards{lent(tensor)});
  std::memcpy(&bits, tensor.const_data_ptr(), tensor.element_size());
  Known& known = (*latest)[hash_combine(bits, static_cast<uint64_t>(type.dtype)) % latest->size()];
  if (!known.data || known.bits != bits || known.data->type().dtype != type.dtype) {
    known = {bits, std::make_shared<Data>(type, nullptr, Shards{lent(tensor)})};
    known.data->set_digest(bits);
    known.data->set_kept();
  }
  return known.data;
}

}  // namespace

Recorder::Recorder() : state_(std::make_unique<RecorderState>()) {
  set_keep_annotation([](LazyTensor& tensor, const Annotation& had) { instance().keep_annotation(tensor, had); });
}

Recorder& Recorder::instance() {
  static auto* recorder = new Recorder;
  return *recorder;
}

Recorder::Lock::Lock() {
  require_may_wait();  // whoever has the lock may wait for the step that this thread runs
  if (lock_depth++ > 0 || recorder_mutex().try_lock()) return;
  // Nobody waits for this lock while holding the GIL, so its owner can always get the GIL.
  NoGil no_gil;
  recorder_mutex().lock();
}
Recorder::Lock::~Lock() {
  if (--lock_depth == 0) recorder_mutex().unlock();
}

const TensorType& Recorder::type(ValueId value) const { return state_->graph.values[value].type; }

bool Recorder::is_uniform(ValueId value) const {
  static const std::unordered_set<std::string_view> same_elements = {"aten._to_copy", "aten.expand", "aten.permute",
                                                                     "aten.slice.Tensor", "aten.view"};
  const Graph& graph = state_->graph;
  for (;;) {
    if (numel(graph.values[value].type.shape) <= 1) return true;
    const NodeId producer = graph.values[value].producer;
    if (producer == kNone) return false;
    const Node& node = graph.nodes[producer];
    if (node.call->op == "aten.full") return true;
    if (!same_elements.contains(node.call->op)) return false;
    value = node.inputs.at(0);
  }
}

LazyValue Recorder::lazy(ValueId value) {
  Lock lock;
  return {state_->epoch, value, nullptr};
}

LazyValue Recorder::held(ValueId value) {
  Lock lock;
  if (DataRef data = state_->data_of(value)) return {0, kNone, std::move(data)};
  return lazy(value);
}

ValueId Recorder::input(const DataRef& data) {
  Lock lock;
  return state_->input(data);
}

ValueId Recorder::host_scalar(const at::Tensor& tensor) {
  const bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  const TensorType type{to_dtype(tensor.scalar_type()), {}, wrapped};
  Lock lock;
  const ValueId value = state_->graph.add_input(type);
  state_->inputs.push_back(wrapped ? number_data(tensor, type)
                                   : scalar_data(tensor, type));  // each call is an input of its own
  return value;
}

DataRef Recorder::number(double value) {
  const Lock lock;
  return number_data(at::scalar_tensor(value, at::kDouble), {DType::f64, {}, true});
}

ValueId Recorder::record(CallRef call, std::vector<ValueId> inputs, const std::vector<Param>& params) {
  Lock lock;
  const auto first = static_cast<uint32_t>(state_->params.size());
  state_->params.insert(state_->params.end(), params.begin(), params.end());
  state_->graph.num_params = static_cast<uint32_t>(state_->params.size());
  ++state_->ops;
  const ValueId result = state_->graph.add_node(std::move(call), std::move(inputs), current_source(), first);
  state_->graph.nodes.back().recorded = state_->recorded_now();
  return result;
}

at::Tensor Recorder::upload(const at::Tensor& host) {
  KernelGuard kernels_only;
  if (planning_only()) {
    const at::Tensor made = make_abstract(meta_of(dense_like(meta_tensor(meta_of(host)))));
    const Lock lock;
    note_uploaded(as_lazy(made)->root().current.data, host);
    return made;
  }
  BufferRef copy = uploaded(host);
  const MetaRef meta = share(meta_of(tensor_of(copy)));
  auto data = std::make_shared<Data>(type_of(*meta), nullptr, Shards{std::move(copy)});
  return make_tensor({0, kNone, std::move(data)}, meta);
}

void Recorder::note_value_read() {
  Lock lock;
  if (state_->capture) state_->capture->refuse("a value of the device is read");
}

Recording Recorder::recording() {
  Lock lock;
  return {state_->graph, state_->inputs, state_->params};
}

int64_t Recorder::ops_recorded() const { return state_->ops; }
int64_t Recorder::implicit_syncs() const { return state_->implicit_syncs; }
int64_t Recorder::bytes_held() const { return state_->bytes_held(); }
void Recorder::reset_counters() {
  Lock lock;
  state_->ops = state_->implicit_syncs = 0;
}

}  // namespace spmdx::bridge
