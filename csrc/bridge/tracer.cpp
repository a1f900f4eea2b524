// SPDX-License-Identifier: Apache-2.0
// The recorder: values of the graph being recorded, reads and writes through views.
#include "bridge/tracer.h"

#include <array>
#include <cstring>
#include <unordered_set>

#include "base/error.h"
#include "bridge/alias.h"
#include "bridge/aten_backend.h"
#include "bridge/kernel_layouts.h"
#include "bridge/place.h"
#include "bridge/plan_only.h"
#include "bridge/record.h"
#include "bridge/recorder.h"
#include "bridge/resize.h"
#include "bridge/shapes.h"

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
// REQUIRES: the recorder's lock.
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

void Recorder::Impl::reset() {
  Graph next;  // the next step is likely as long as this one
  next.values.reserve(graph.values.size());
  next.nodes.reserve(graph.nodes.size());
  next.inputs.reserve(graph.inputs.size());
  graph = std::move(next);
  inputs.clear();
  params.clear();
  input_of.clear();
  annotated = false;
  ++epoch;
}

// The root's annotation on the input that stands for its data; REQUIRES: there is one.
void Recorder::Impl::annotate_input(const Root& root) {
  Input& input = graph.inputs[input_of.at(root.current.data.get())];
  if (!root.annotation || input.annotation) return;
  input.annotation = root.annotation->sharding;
  input.source = root.annotation->source;
  input.state = root.annotation->state;
}

// The value of a root; existing data becomes an input that carries the root's annotation.
ValueId Recorder::Impl::read(const Root& root) {
  if (!root.current.data) {
    internal_check(pending(root.current), "a tensor holds a value of a graph that has ended");
    return root.current.id;
  }
  const ValueId value = input(root.current.data);
  annotate_input(root);
  return value;
}

// The data behind a value that is a graph input of the same type as its tensor; null for results of nodes.
DataRef Recorder::Impl::data_of(ValueId value) const {
  if (graph.values[value].producer != kNone || graph.values[value].type.wrapped_number) return nullptr;
  for (size_t i = graph.inputs.size(); i-- > 0;) {
    if (graph.inputs[i].value == value) return inputs[i];
  }
  return nullptr;
}

ValueId Recorder::Impl::input(const DataRef& data) {
  if (data->is_hollow() && !planning_only()) refuse_values();
  auto [found, fresh] = input_of.emplace(data.get(), inputs.size());
  if (fresh) {
    graph.add_input(data->type());
    inputs.push_back(data);
  }
  return graph.inputs[found->second].value;
}

// `value` is what the tensor shows; the annotation of a view is a constraint on it.
void Recorder::Impl::cache(LazyTensor& tensor, ValueId value) {
  tensor.cached = {epoch, value, nullptr};
  tensor.cached_generation = tensor.root().generation;
  if (tensor.of_view) constrain(value, *tensor.of_view);
}

Recorder::Recorder() : impl_(std::make_unique<Impl>()) {}

Recorder& Recorder::instance() {
  static auto* recorder = new Recorder;
  return *recorder;
}

Recorder::Lock::Lock() {
  if (lock_depth++ > 0 || recorder_mutex().try_lock()) return;
  // Nobody waits for this lock while holding the GIL, so its owner can always get the GIL.
  NoGil no_gil;
  recorder_mutex().lock();
}
Recorder::Lock::~Lock() {
  if (--lock_depth == 0) recorder_mutex().unlock();
}

const TensorType& Recorder::type(ValueId value) const { return impl_->graph.values[value].type; }

bool Recorder::is_uniform(ValueId value) const {
  static const std::unordered_set<std::string_view> same_elements = {"aten._to_copy", "aten.expand", "aten.permute",
                                                                     "aten.slice.Tensor", "aten.view"};
  const Graph& graph = impl_->graph;
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
  return {impl_->epoch, value, nullptr};
}

LazyValue Recorder::held(ValueId value) {
  Lock lock;
  if (DataRef data = impl_->data_of(value)) return {0, kNone, std::move(data)};
  return lazy(value);
}

ValueId Recorder::input(const DataRef& data) {
  Lock lock;
  return impl_->input(data);
}

ValueId Recorder::host_scalar(const at::Tensor& tensor) {
  const bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  const TensorType type{to_dtype(tensor.scalar_type()), {}, wrapped};
  Lock lock;
  const ValueId value = impl_->graph.add_input(type);
  impl_->inputs.push_back(wrapped ? number_data(tensor, type) : scalar_data(tensor, type));  // in no map
  return value;
}

ValueId Recorder::record(CallRef call, std::vector<ValueId> inputs, const std::vector<Param>& params) {
  Lock lock;
  const auto first = static_cast<uint32_t>(impl_->params.size());
  impl_->params.insert(impl_->params.end(), params.begin(), params.end());
  impl_->graph.num_params = static_cast<uint32_t>(impl_->params.size());
  ++impl_->ops;
  return impl_->graph.add_node(std::move(call), std::move(inputs), current_source(), first);
}

ValueId Recorder::read(LazyTensor& tensor) {
  Lock lock;
  Root& root = tensor.root();
  if (root.cut_short) require_storage(tensor);
  if (!tensor.chain()) return impl_->read(root);
  if (tensor.cached_generation == root.generation && impl_->pending(tensor.cached)) return tensor.cached.id;
  ValueId value = impl_->read(root);
  for (const auto& step : *tensor.chain()) value = record(step.call, {value}, step.params) + step.result;
  impl_->cache(tensor, value);
  return value;
}

void Recorder::write(LazyTensor& tensor, ValueId value) {
  Lock lock;
  Root& root = tensor.root();
  const ValueId seen = value;
  if (root.cut_short) require_storage(tensor);
  if (tensor.chain()) value = write_back(*tensor.chain(), impl_->read(root), value);
  if (root.current.data) root.previous = root.current.data;
  root.current = held(value);
  if (root.current.data) {  // no result of the step: nothing to tie
    impl_->note_rebound(root, std::move(root.previous));
    root.previous = nullptr;
  }
  ++root.generation;
  impl_->cache(tensor, seen);
}

// What a whole of one layout holds, where one of the next layout has it.
ValueId Recorder::Impl::grown(const Outgrown& from, const Meta& to, ValueId value) {
  const ValueId zeros = full_int(to.sizes, 0, to_dtype(to.dtype));
  return numel(from.base->sizes) == 0 ? zeros : write_back(*from.steps, zeros, value);
}

void Recorder::Impl::follow_growth(Root& root) {
  const DataRef data = root.current.data;
  size_t at = root.outgrown.size();
  while (at > 0 && root.layout(at).sizes != data->type().shape) --at;
  if (at == root.outgrown.size()) return;
  ValueId value = input(data);
  for (; at < root.outgrown.size(); ++at) value = grown(root.outgrown[at], root.layout(at + 1), value);
  root.current = {epoch, value, nullptr};
}

void Recorder::grow(Root& root, const Meta& whole) {
  Lock lock;
  Outgrown from{root.base, std::make_shared<const std::vector<ViewStep>>(strided_steps(whole, *root.base))};
  const ValueId value = Impl::grown(from, whole, impl_->read(root));
  if (root.current.data) root.previous = root.current.data;
  root.outgrown.push_back(std::move(from));
  root.base = share(whole);
  if (root.annotation)
    warn_of_lost_annotation("made at " + source_text(root.annotation->source) +
                            " is gone: the storage of the tensor grew, and the tensor shows a part of it now. Expected "
                            "a storage of the tensor's size. Call spmdx.mark_sharding again.");
  root.annotation.reset();
  root.current = lazy(value);
  ++root.generation;
}

at::Tensor Recorder::upload(const at::Tensor& host) {
  KernelGuard kernels_only;
  if (planning_only()) return make_hollow(meta_of(dense_like(meta_tensor(meta_of(host)))));
  BufferRef copy = uploaded(host);
  const MetaRef meta = share(meta_of(tensor_of(copy)));
  auto data = std::make_shared<Data>(type_of(*meta), nullptr, Shards{std::move(copy)});
  return make_tensor({0, kNone, std::move(data)}, meta);
}

Recording Recorder::recording() {
  Lock lock;
  return {impl_->graph, impl_->inputs, impl_->params};
}

int64_t Recorder::ops_recorded() const { return impl_->ops; }
int64_t Recorder::implicit_syncs() const { return impl_->implicit_syncs; }
void Recorder::reset_counters() {
  Lock lock;
  impl_->ops = impl_->implicit_syncs = 0;
}

}  // namespace spmdx::bridge
