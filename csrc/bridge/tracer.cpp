// SPDX-License-Identifier: Apache-2.0
// The recorder: values of the graph being recorded, reads and writes through views, the end of a graph.
#include "bridge/tracer.h"

#include <Python.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "base/error.h"
#include "bridge/alias.h"
#include "bridge/aten_backend.h"
#include "bridge/compat.h"
#include "bridge/record.h"
#include "bridge/shapes.h"
#include "runtime/comm.h"

namespace spmdx::bridge {
namespace {

constexpr size_t kMaxNodes = 50'000;       // a longer trace is cut: memory and compile time stay bounded

std::recursive_mutex& recorder_mutex() {
  static auto* mutex = new std::recursive_mutex;
  return *mutex;
}

std::atomic<bool> step_failed{false};

std::exception_ptr note_and_translate(std::exception_ptr error, const Node& node) {
  step_failed = true;
  return translate_error(error, node);
}

// Gives up the GIL, if this thread has it, for as long as it lives.
class NoGil {
 public:
  NoGil() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~NoGil() {
    if (state_) PyEval_RestoreThread(state_);
  }
  NoGil(const NoGil&) = delete;

 private:
  PyThreadState* state_;
};

bool has_failed(const Data& data) {
  if (!data.ready()) return false;
  try {
    data.wait();
    return false;
  } catch (...) {
    return true;
  }
}

void check_mesh(MeshRef& mesh, ShardingRef sharding) {
  if (!sharding || mesh == sharding->mesh) return;
  if (!mesh || *mesh == *sharding->mesh) {
    mesh = sharding->mesh;
    return;
  }
  throw ShardingError("one step uses tensors of two meshes, " + mesh->str() + " and " + sharding->mesh->str() +
                      ". Expected one mesh per step. Annotate all tensors on one of them, or end the step between "
                      "them with mark_step().");
}

// What the outputs are computed from, and whose layout they share.
std::vector<bool> needed_values(const Graph& graph, const std::vector<Output>& outputs) {
  std::vector<bool> needed(graph.values.size(), false);
  for (const Output& output : outputs) {
    needed[output.value] = true;
    if (output.tied != kNone) needed[graph.inputs[output.tied].value] = true;
  }
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    bool used = false;
    for (size_t r = 0; r < node.call->outputs.size(); ++r) used |= needed[node.output + r];
    for (ValueId value : node.inputs) needed[value] = needed[value] || used;
  }
  return needed;
}

// True where a write through this tensor would hit one element several times.
bool overlaps_itself(const LazyTensor& tensor) {
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.sizes()[d] > 1 && tensor.strides()[d] == 0) return true;
  }
  return false;
}

at::Tensor assembled(const Data& data, const Shards& shards) {
  const ShardingRef sharding = data.sharding();
  if (!sharding || sharding->used() == 0) return tensor_of(shards.at(0));
  const Mesh& mesh = *sharding->mesh;
  const AtomSet used = sharding->used();
  at::Tensor whole = at::empty(data.type().shape, at::TensorOptions().dtype(to_scalar_type(data.type().dtype)));
  for (int64_t i = 0; i < num_distinct(mesh, used); ++i) {
    if (!shards.at(i)) continue;
    at::Tensor part = whole;
    const Box box = local_box(*sharding, data.type().shape, representative(mesh, used, i));
    for (size_t d = 0; d < box.size(); ++d) part = part.narrow(static_cast<int64_t>(d), box[d].start, box[d].extent);
    part.copy_(tensor_of(shards[i]));
  }
  return whole;
}

}  // namespace

struct Recorder::Impl {
  Graph graph;
  uint64_t epoch = 1;
  std::vector<DataRef> inputs;
  std::vector<DataRef> submitted;                          // those of the finished graph
  std::vector<Param> params;
  std::unordered_map<const Data*, uint32_t> input_of;      // index into inputs
  int64_t ops = 0, implicit_syncs = 0;
  bool annotated = false;                  // since the last flush: existing data may have to move

  bool pending(const LazyValue& value) const { return !value.data && value.id != kNone && value.epoch == epoch; }
  void reset();
  uint32_t tie_of(const Root& root, const std::unordered_map<const Root*, uint32_t>& gradients) const;
  std::unordered_map<const Root*, uint32_t> gradients();
  DataRef data_of(ValueId value) const;
  void annotate_input(const Root& root);
  ValueId read(const Root& root);
  bool must_move(const Root& root) const;
  ValueId input(const DataRef& data);
  Output output_of(const Root& root, const std::unordered_map<const Root*, uint32_t>& gradients) const;
  MeshRef mesh_of(const std::vector<Output>& outputs, const std::vector<bool>& needed) const;
  void need_ties(MeshRef& mesh, const std::vector<Output>& outputs, std::vector<bool>& needed) const;
  void add_moves(MeshRef& mesh, std::vector<RootRef>& owners, std::vector<Output>& outputs);
  Graph finish(std::vector<RootRef>& owners);
  void keep_inputs(Graph& done, const std::vector<bool>& needed);
  void roll_back(std::exception_ptr error);
};

void Recorder::Impl::reset() {
  graph = Graph{};
  inputs.clear();
  params.clear();
  input_of.clear();
  forget_leaves();
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

// Existing data that does not lie as the user wrote since.
bool Recorder::Impl::must_move(const Root& root) const {
  return root.annotation && root.current.data && root.current.data->sharding() != root.annotation->sharding &&
         !has_failed(*root.current.data);
}

ValueId Recorder::Impl::input(const DataRef& data) {
  auto [found, fresh] = input_of.emplace(data.get(), inputs.size());
  if (fresh) {
    graph.add_input(data->type());
    inputs.push_back(data);
  }
  return graph.inputs[found->second].value;
}

// Gradients of the leaves that were read. One that is a view of what backward computed gets a root of its own, so that it
// can share the layout of its parameter.
std::unordered_map<const Root*, uint32_t> Recorder::Impl::gradients() {
  std::unordered_map<const Root*, uint32_t> tied;
  for (const auto& [gradient, leaf] : leaf_gradients()) {
    LazyTensor* lazy = as_lazy(gradient);
    const Root& root = root_of(leaf);
    const auto input = input_of.find(root.previous ? root.previous.get() : root.current.data.get());
    if (!lazy || input == input_of.end()) continue;
    if (lazy->chain && lazy->root_storage().use_count() == 1) {
      const ValueId value = Recorder::instance().read(*lazy);
      const at::Tensor own = make_tensor({epoch, value, nullptr}, meta_of(gradient));
      lazy->become(*as_lazy(own));
    }
    tied.emplace(&lazy->root(), input->second);
  }
  return tied;
}

uint32_t Recorder::Impl::tie_of(const Root& root, const std::unordered_map<const Root*, uint32_t>& gradients) const {
  if (root.previous) {
    if (auto found = input_of.find(root.previous.get()); found != input_of.end()) return found->second;
  }
  auto found = gradients.find(&root);
  return found == gradients.end() ? kNone : found->second;
}

Output Recorder::Impl::output_of(const Root& root, const std::unordered_map<const Root*, uint32_t>& gradients) const {
  Output output{root.current.id, nullptr, kNone, false, 0, false};
  if (graph.values[output.value].producer != kNone) output.tied = tie_of(root, gradients);
  if (!root.annotation) return output;
  output.annotation = root.annotation->sharding;
  output.source = root.annotation->source;
  output.state = root.annotation->state;
  return output;
}

// The one mesh of what the outputs need; what nobody needs any more may lie on any.
MeshRef Recorder::Impl::mesh_of(const std::vector<Output>& outputs, const std::vector<bool>& needed) const {
  MeshRef mesh;
  for (const Output& output : outputs) check_mesh(mesh, output.annotation);
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (!needed[graph.inputs[i].value]) continue;
    check_mesh(mesh, inputs[i]->sharding());
    check_mesh(mesh, graph.inputs[i].annotation);
  }
  for (const Constraint& constraint : graph.constraints) {
    if (needed[constraint.value]) check_mesh(mesh, constraint.sharding);
  }
  return mesh;
}

// Annotated data that lies otherwise leaves the step as it was annotated. Data of another mesh waits for a step of its own.
void Recorder::Impl::add_moves(MeshRef& mesh, std::vector<RootRef>& owners, std::vector<Output>& outputs) {
  annotated = false;
  for (auto& ref : live_roots()) {
    Root& root = root_of(ref);
    if (!must_move(root)) continue;
    const MeshRef& wanted = root.annotation->sharding->mesh;
    if (mesh && !(*mesh == *wanted)) {
      annotated = true;
      continue;
    }
    mesh = wanted;
    const ValueId value = read(root);
    root.previous = root.current.data;
    root.current = {epoch, value, nullptr};
    outputs.push_back(output_of(root, {}));
    owners.push_back(std::move(ref));
  }
}

// A gradient may need no value of its parameter and still lie as the parameter does.
void Recorder::Impl::need_ties(MeshRef& mesh, const std::vector<Output>& outputs, std::vector<bool>& needed) const {
  for (const Output& output : outputs) {
    if (output.tied == kNone) continue;
    const ShardingRef layout = inputs[output.tied]->sharding();
    if (layout && !mesh) mesh = layout->mesh;
    if (!layout || *mesh == *layout->mesh) needed[graph.inputs[output.tied].value] = true;
  }
}

// Adds outputs and the mesh. `owners` are the roots of the outputs, in the same order.
Graph Recorder::Impl::finish(std::vector<RootRef>& owners) {
  const auto tied = gradients();
  for (auto& ref : live_roots()) {
    if (pending(root_of(ref).current)) owners.push_back(std::move(ref));
  }
  std::stable_sort(owners.begin(), owners.end(),
                   [](auto& a, auto& b) { return root_of(a).current.id < root_of(b).current.id; });
  std::vector<Output> outputs;
  for (const auto& owner : owners) outputs.push_back(output_of(root_of(owner), tied));
  std::vector<bool> needed = needed_values(graph, outputs);
  MeshRef mesh = mesh_of(outputs, needed);
  need_ties(mesh, outputs, needed);
  add_moves(mesh, owners, outputs);
  needed.resize(graph.values.size(), true);
  for (const Output& output : outputs) needed[output.value] = true;
  Graph done = graph;
  done.mesh = std::move(mesh);
  done.outputs = std::move(outputs);
  std::erase_if(done.constraints, [&](const Constraint& c) { return !needed[c.value]; });
  keep_inputs(done, needed);
  return done;
}

// Inputs with the layout of their data. One that nobody needs and that lies on another mesh is left out.
void Recorder::Impl::keep_inputs(Graph& done, const std::vector<bool>& needed) {
  std::vector<uint32_t> place(done.inputs.size(), kNone);
  std::vector<Input> kept;
  submitted.clear();
  for (size_t i = 0; i < done.inputs.size(); ++i) {
    Input input = done.inputs[i];
    input.physical = inputs[i]->sharding();
    const bool is_needed = needed[input.value];
    if (!is_needed) {
      input.annotation = nullptr;
      if (input.physical && !(done.mesh && *input.physical->mesh == *done.mesh)) continue;
    }
    place[i] = static_cast<uint32_t>(kept.size());
    kept.push_back(std::move(input));
    submitted.push_back(inputs[i]);
  }
  done.inputs = std::move(kept);
  for (Output& output : done.outputs) {
    if (output.tied != kNone) output.tied = place[output.tied];
  }
}

// Drops the pending graph. Roots go back to what was last computed; those that never were hold the error.
void Recorder::Impl::roll_back(std::exception_ptr error) {
  for (const auto& ref : live_roots()) {
    Root& root = root_of(ref);
    const bool lost = pending(root.current) || (root.current.data && has_failed(*root.current.data));
    if (!lost) continue;
    DataRef good = root.good && !has_failed(*root.good) ? root.good : nullptr;
    if (!good && root.previous && !has_failed(*root.previous)) good = root.previous;
    if (!good) {
      good = std::make_shared<Data>(type_of(root.base));
      good->fail(error);
    }
    root.current = {0, kNone, good};
    root.previous = root.good = nullptr;
    ++root.generation;
  }
  reset();
}

Recorder::Recorder() : impl_(std::make_unique<Impl>()) {}

Recorder& Recorder::instance() {
  static auto* recorder = new Recorder;
  return *recorder;
}

Recorder::Lock::Lock() {
  if (recorder_mutex().try_lock()) return;
  // Nobody waits for this lock while holding the GIL, so its owner can always get the GIL.
  NoGil no_gil;
  recorder_mutex().lock();
}
Recorder::Lock::~Lock() { recorder_mutex().unlock(); }

const TensorType& Recorder::type(ValueId value) const { return impl_->graph.values[value].type; }

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
  KernelGuard kernels_only;
  TensorType type{to_dtype(tensor.scalar_type()), {}, wrapped};
  // A wrapped number is nobody else's; any other scalar may be written to before the step runs.
  Shards shards{buffer_of(wrapped ? tensor : tensor.detach().clone())};
  return input(std::make_shared<Data>(std::move(type), nullptr, std::move(shards)));
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
  if (!tensor.chain) {
    if (root.current.data && tensor.requires_grad()) watch_leaf(tensor);
    return impl_->read(root);
  }
  if (tensor.cached_generation == root.generation && impl_->pending(tensor.cached)) return tensor.cached.id;
  ValueId value = impl_->read(root);
  for (const auto& step : *tensor.chain) value = record(step.call, {value}, step.params) + step.result;
  tensor.cached = lazy(value);
  tensor.cached_generation = root.generation;
  return value;
}

void Recorder::write(LazyTensor& tensor, ValueId value) {
  Lock lock;
  if (overlaps_itself(tensor)) {
    throw std::runtime_error(
        "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
        "Please clone() the tensor before performing the operation.");
  }
  Root& root = tensor.root();
  const ValueId seen = value;
  if (tensor.chain) {
    value = write_back(*tensor.chain, impl_->read(root), value);
  }
  if (root.current.data) {
    root.previous = root.current.data;
    if (root.current.data->ready()) root.good = root.current.data;
  }
  root.current = held(value);
  ++root.generation;
  tensor.cached = lazy(seen);
  tensor.cached_generation = root.generation;
}

void Recorder::flush(bool implicit) {
  Lock lock;
  check_failed();
  std::vector<RootRef> owners;
  if (impl_->graph.nodes.empty() && impl_->inputs.empty() && !impl_->annotated) return;
  if (implicit) ++impl_->implicit_syncs;
  try {
    Graph graph = impl_->finish(owners);
    std::vector<DataRef> outputs;
    for (const auto& output : graph.outputs) outputs.push_back(std::make_shared<Data>(graph.value(output.value).type));
    if (!outputs.empty()) {
      NoGil no_gil;
      engine().submit(std::move(graph), std::move(impl_->submitted), impl_->params, outputs);
    }
    for (size_t i = 0; i < owners.size(); ++i) {
      Root& root = root_of(owners[i]);
      if (!root.good && root.previous) root.good = root.previous;
      root.previous = nullptr;
      root.current = {0, kNone, outputs[i]};
    }
  } catch (...) {
    impl_->roll_back(std::current_exception());
    throw;
  }
  impl_->reset();
  if (impl_->annotated) flush(implicit);     // data of another mesh
  for (const auto& ref : live_roots()) {     // what was computed needs no way back
    Root& root = root_of(ref);
    if (root.good && root.current.data && root.current.data->ready() && !step_failed) root.good = nullptr;
  }
}

void Recorder::cut_if_long() {
  if (impl_->graph.nodes.size() > kMaxNodes) flush(true);
}

void Recorder::check_failed() {
  if (!step_failed.load(std::memory_order_relaxed)) return;
  Lock lock;
  if (!step_failed.exchange(false)) return;
  {
    NoGil no_gil;
    engine().wait();
  }
  step_failed = false;
  auto error = std::make_exception_ptr(std::runtime_error("a step that this tensor depends on failed"));
  try {
    engine().rethrow();
  } catch (...) {
    error = std::current_exception();
  }
  impl_->roll_back(error);
  std::rethrow_exception(error);
}

at::Tensor Recorder::peek(const at::Tensor& tensor) {
  LazyTensor* lazy_tensor = as_lazy(tensor);
  internal_check(lazy_tensor, "materialise of a tensor that is not ours");
  DataRef data;
  at::Tensor held = tensor;
  {
    Lock lock;
    if (lazy_tensor->chain) held = make_tensor(lazy(read(*lazy_tensor)), meta_of(tensor));
    Root& root = as_lazy(held)->root();
    if (!root.current.data || !impl_->graph.nodes.empty()) flush(true);
    data = root.current.data;
    internal_check(data != nullptr, "a flush left a live tensor without data");
  }
  KernelGuard kernels_only;
  const Shards* shards = nullptr;
  try {
    NoGil no_gil;
    shards = &data->wait();
  } catch (...) {
    step_failed = true;                      // also where no kernel ran, as when an input had failed before
    check_failed();
    throw;
  }
  return assembled(*data, *shards);
}

at::Tensor Recorder::materialise(const at::Tensor& tensor) {
  at::Tensor whole = peek(tensor);
  KernelGuard kernels_only;
  // A copy of a tensor with holes or repeats is dense, in the order of its strides.
  const at::Tensor like = at::empty_like(meta_tensor(meta_of(tensor)));
  at::Tensor result = at::empty_strided(like.sizes(), like.strides(), whole.options());
  result.copy_(whole);
  return result;
}

at::Tensor Recorder::upload(const at::Tensor& host) {
  KernelGuard kernels_only;
  at::Tensor copy = host.detach().resolve_conj().resolve_neg().clone();
  auto data = std::make_shared<Data>(TensorType{to_dtype(copy.scalar_type()), copy.sizes().vec(), false}, nullptr,
                                     Shards{buffer_of(copy)});
  return make_tensor({0, kNone, std::move(data)}, meta_of(copy));
}

PlanRef Recorder::plan_pending() {
  Lock lock;
  check_failed();
  std::vector<RootRef> owners;
  Graph graph = impl_->finish(owners);
  if (graph.outputs.empty()) return nullptr;
  NoGil no_gil;
  return engine().plan(graph);
}

void Recorder::annotate(const at::Tensor& tensor, ShardingRef sharding, SourceId source, bool state) {
  Lock lock;
  LazyTensor* lazy_tensor = as_lazy(tensor);
  internal_check(lazy_tensor, "annotate of a tensor that is not ours");
  Root& root = lazy_tensor->root();
  if (!sharding) {
    root.annotation.reset();
    return;
  }
  if (lazy_tensor->chain) {                  // a view: what it shows now is constrained, not the whole root
    impl_->graph.constraints.push_back({read(*lazy_tensor), sharding, source});
    return;
  }
  root.annotation = std::make_unique<Annotation>(Annotation{sharding, source, state});
  impl_->annotated = true;
  if (!root.current.data) {
    impl_->graph.constraints.push_back({root.current.id, sharding, source, state});
  } else if (impl_->input_of.contains(root.current.data.get())) {
    impl_->annotate_input(root);           // it was read before it was annotated
  }
}

int64_t Recorder::ops_recorded() const { return impl_->ops; }
int64_t Recorder::implicit_syncs() const { return impl_->implicit_syncs; }
void Recorder::reset_counters() {
  Lock lock;
  impl_->ops = impl_->implicit_syncs = 0;
}

Engine& engine() {
  static auto* instance = [] {
    static auto* comm = make_local_comm(aten_backend()).release();
    auto* made = new Engine(aten_backend(), *comm);   // outlives every tensor; Python waits for it at exit
    made->set_translator(note_and_translate);
    return made;
  }();
  return *instance;
}

}  // namespace spmdx::bridge
