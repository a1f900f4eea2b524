// SPDX-License-Identifier: Apache-2.0
// What a captured call read, wrote and made, and whether sending its step again does the same.
#include <algorithm>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "bridge/python/source.h"
#include "bridge/recorder/recorder.h"
#include "bridge/recorder/recorder_state.h"
#include "bridge/replay/captured.h"
#include "bridge/step/flush.h"
#include "bridge/tensor/abstract.h"

namespace spmdx::bridge {
namespace {

// A reason against a replay.
struct Refused {
  std::string why;
};

std::unique_ptr<CallBegun>& begun() {  // Holds the recorder's lock.
  static auto* call = new std::unique_ptr<CallBegun>;
  return *call;
}

std::string shape_of(const Root& root) { return "of shape [" + c10::str(c10::Join(", ", root.base->sizes)) + "]"; }

std::vector<at::Tensor> all_of(const CallTensors& tensors) {
  std::vector<at::Tensor> all = tensors.arguments;
  all.insert(all.end(), tensors.watched.begin(), tensors.watched.end());
  return all;
}

RootRef gradient_root(const at::Tensor& tensor) {
  const at::Tensor& gradient = tensor.grad();
  return as_lazy(gradient) ? root_ref(gradient) : RootRef();
}

bool goes_backward(const Graph& graph) {
  return std::ranges::any_of(graph.nodes, [](const Node& node) { return is_backward(node.recorded.phase.number); });
}

}  // namespace

class Analysis {
 public:
  Analysis(const CallBegun& call, const Sent& sent) : call_(call), sent_(sent) {}

  std::shared_ptr<Captured> captured(const std::vector<at::Tensor>& returned) {
    done_->setting_ = call_.setting;
    done_->plan_ = sent_.plan;
    done_->params_ = sent_.params;
    find_draws();
    find_memory();
    for (const SentInput& input : sent_.inputs) add_input(input);
    for (const RootRef& owner : sent_.owners) add_output(owner);
    for (size_t i = 0; i < done_->watched_.size(); ++i) add_gradient(i);
    for (const at::Tensor& tensor : returned) add_returned(tensor);
    for (size_t i = 0; i < sent_.owners.size(); ++i) require_known(i);
    return std::move(done_);
  }

 private:
  // Integers among parameters are a generator's seed and how often it has drawn.
  void find_draws() {
    const Draw now = current_draw();
    if (now.seed != call_.draw.seed || now.draw < call_.draw.draw) throw Refused{"the seed is set within it"};
    done_->draws_ = now.draw - call_.draw.draw;
    for (const Node& node : sent_.plan->traced.nodes) {
      bool is_seed = true;
      for (const Arg& arg : node.call->args) {
        if (const auto* real = std::get_if<RealParam>(&arg))
          done_->reals_.push_back({true, node.param + real->index, kNone, is_backward(node.recorded.phase.number), -1});
        const auto* number = std::get_if<IntParam>(&arg);
        if (!number) continue;
        add_drawn(node.param + number->index, is_seed);
        is_seed = !is_seed;
      }
    }
  }

  void add_drawn(uint32_t param, bool is_seed) {
    const auto value = static_cast<uint64_t>(done_->params_.at(param).integer);
    const uint64_t after = is_seed ? 0 : value - call_.draw.draw;
    if (is_seed ? value != call_.draw.seed : after >= done_->draws_)
      throw Refused{"it draws from a generator of its own"};
    done_->drawn_.push_back({param, is_seed, after});
  }

  void find_memory() {
    const CallTensors& tensors = call_.tensors;
    for (size_t i = 0; i < tensors.watched.size(); ++i) {
      const at::Tensor& tensor = tensors.watched[i];
      require_same(tensor, tensors.arguments.size() + i);
      watched_of_.emplace(&as_lazy(tensor)->root(), i);
      done_->watched_.push_back({.tensor = tensor, .root = WeakRootRef(root_ref(tensor)), .shown = shown_by(tensor)});
      if (const RootRef& gradient = call_.gradients[i]) {
        done_->watched_.back().gradient = state_of(root_of(gradient));
        if (!gradient_of_.emplace(&root_of(gradient), static_cast<uint32_t>(i)).second)
          throw Refused{"two gradients share memory"};
      }
      done_->watched_.back().versions = versions_of(tensor, tensors.arguments.size() + i);
    }
    for (size_t i = 0; i < tensors.arguments.size(); ++i) add_argument(i);
  }

  void add_argument(size_t i) {
    const at::Tensor& tensor = call_.tensors.arguments[i];
    require_same(tensor, i);
    if (tensor.is_leaf() && tensor.grad().defined() && !watched_of_.contains(&as_lazy(tensor)->root()))
      throw Refused{"an argument has a gradient"};
    const Root& root = as_lazy(tensor)->root();
    Captured::Argument argument{shown_by(tensor), state_of(root)};
    argument.alias = argument_of_.emplace(&root, static_cast<uint32_t>(i)).first->second;
    if (const auto found = watched_of_.find(&root); found != watched_of_.end())
      argument.watched = static_cast<int32_t>(found->second);
    argument.versions = versions_of(tensor, i);
    done_->arguments_.push_back(std::move(argument));
  }

  // The call leaves the tensor as it was, but for its values.
  void require_same(const at::Tensor& tensor, size_t i) const {
    if (call_.roots[i] != root_ref(tensor)) throw Refused{"a tensor comes to show other memory within it"};
    if (!shows(tensor, call_.shown[i])) throw Refused{"a tensor comes to show its memory otherwise within it"};
    if (!is_in(root_of(call_.roots[i]), call_.states[i]))
      throw Refused{"it annotates a tensor that it is given or uses, which it may be before"};
  }

  uint64_t versions_of(const at::Tensor& tensor, size_t i) const {
    return tensor.is_inference() ? 0 : tensor._version() - call_.versions[i];
  }

  // Where the call finds the root again; none: it made it.
  std::optional<Place> find(const RootRef& ref) {
    const Root& root = root_of(ref);
    if (root.serial >= call_.next_serial) return std::nullopt;
    const bool is_watched = watched_of_.contains(&root);
    if (const auto argument = argument_of_.find(&root); argument != argument_of_.end() && !is_watched)
      return Place{Place::Of::argument, argument->second};
    if (const auto gradient = gradient_of_.find(&root); gradient != gradient_of_.end() && !is_watched)
      return Place{Place::Of::gradient, gradient->second};
    auto [found, fresh] = kept_of_.emplace(&root, static_cast<uint32_t>(done_->kept_.size()));
    if (fresh) {
      done_->kept_.emplace_back(ref);
      done_->kept_states_.push_back(state_of(root));
    }
    return Place{Place::Of::kept, found->second};
  }

  void add_input(const SentInput& input) {
    Captured::Input found;
    found.sharding = input.sharding;
    if (input.roots.empty()) {
      found.number = input.number;
      if (input.number->type().wrapped_number && input.number->type().dtype == DType::f64)
        add_number(done_->inputs_.size());
      if (!input.number->type().shape.empty()) throw Refused{"it reads what no tensor holds"};
      done_->inputs_.push_back(std::move(found));
      return;
    }
    for (const ReadRoot& read : input.roots) {
      if (read.serial >= call_.next_serial) continue;  // it took over what a root held before, if any did
      const RootRef root = read.root.lock();
      if (!root) throw Refused{"it reads a tensor that is gone when it ends"};
      const std::optional<Place> place = find(root);
      if (found.place)
        found.same.push_back(*place);
      else
        found.place = place;
    }
    if (!found.place) throw Refused{"it copies a tensor from the host"};
    done_->inputs_.push_back(std::move(found));
  }

  // A number of the host that is an input.
  void add_number(size_t index) {
    const Graph& traced = sent_.plan->traced;
    const ValueId value = traced.inputs[index].value;
    const auto reads = [&](const Node& node) {
      return is_backward(node.recorded.phase.number) && std::ranges::find(node.inputs, value) != node.inputs.end();
    };
    done_->reals_.push_back({false, static_cast<uint32_t>(index), value, std::ranges::any_of(traced.nodes, reads), -1});
  }

  void add_output(const RootRef& owner) {
    const auto index = static_cast<uint32_t>(done_->outputs_.size());
    const std::optional<Place> place = find(owner);
    if (!place) made_.emplace(&root_of(owner), index);
    done_->outputs_.push_back({place.value_or(Place{Place::Of::made, index}), state_of(root_of(owner)), -1});
  }

  void add_gradient(size_t i) {
    Captured::Watched& watched = done_->watched_[i];
    if (!watched.shown.leaf) return;
    const RootRef& before = call_.gradients[i];
    const at::Tensor& now = watched.tensor.grad();
    if (now.defined() && !as_lazy(now)) throw Refused{"a gradient lies on another device"};
    if (!now.defined()) {
      if (before) watched.leaves = Captured::Watched::Leaves::none;
      return;
    }
    if (before == root_ref(now)) return;
    const auto made = made_.find(&as_lazy(now)->root());
    if (made == made_.end() || now.requires_grad()) throw Refused{"a gradient is no result of its step"};
    watched.leaves = Captured::Watched::Leaves::made;
    watched.made = made->second;
    watched.shown_gradient = shown_by(now);
    done_->outputs_[made->second].leaf = static_cast<int32_t>(i);
    known_.insert(made->second);
  }

  void add_returned(const at::Tensor& tensor) {
    if (tensor.requires_grad() && !goes_backward(sent_.plan->traced))
      throw Refused{"it returns a tensor that requires a gradient, whose backward pass does not run within it"};
    const RootRef root = root_ref(tensor);
    std::optional<Place> place = find(root);
    if (const auto made = made_.find(&root_of(root)); made != made_.end()) {
      place = Place{Place::Of::made, made->second};
      known_.insert(made->second);
    }
    if (!place) throw Refused{"it returns a tensor that is copied from the host"};
    done_->returned_.push_back({*place, shown_by(tensor)});
  }

  // Whatever the call makes is a gradient or is returned: nobody else may hold it.
  void require_known(size_t i) const {
    const auto index = static_cast<uint32_t>(i);
    if (done_->outputs_[i].place.of != Place::Of::made || known_.contains(index)) return;
    throw Refused{"a tensor " + shape_of(root_of(sent_.owners[i])) +
                  " that it makes is kept, and neither returned nor a gradient"};
  }

  const CallBegun& call_;
  const Sent& sent_;
  std::shared_ptr<Captured> done_ = std::make_shared<Captured>();
  std::unordered_map<const Root*, size_t> watched_of_;
  std::unordered_map<const Root*, uint32_t> argument_of_, gradient_of_, kept_of_, made_;
  std::unordered_set<uint32_t> known_;  // outputs that are gradients or are returned
};

std::pair<uint32_t, ValueId> recorded_so_far() {
  const Recorder::Lock lock;
  const RecorderState& state = Recorder::instance().state();
  return {static_cast<uint32_t>(state.params.size()), static_cast<ValueId>(state.graph.values.size())};
}

std::string have_gradients(const std::vector<at::Tensor>& tensors) {
  std::string digits;
  for (const at::Tensor& tensor : tensors) digits += tensor.is_leaf() && tensor.grad().defined() ? '1' : '0';
  return digits;
}

bool begin_capture(CallTensors tensors) {
  flush(GraphEnd::asked);
  const Recorder::Lock lock;
  RecorderState& state = Recorder::instance().state();
  if (state.capture || planning_only()) return false;
  auto call = std::make_unique<CallBegun>();
  call->tensors = std::move(tensors);
  call->next_serial = next_serial();
  call->draw = current_draw();
  call->setting = current_setting();
  for (const at::Tensor& tensor : all_of(call->tensors)) {
    call->roots.push_back(root_ref(tensor));
    call->shown.push_back(shown_by(tensor));
    call->states.push_back(state_of(as_lazy(tensor)->root()));
    call->versions.push_back(tensor.is_inference() ? 0 : tensor._version());
  }
  for (const at::Tensor& tensor : call->tensors.watched)
    call->gradients.push_back(tensor.is_leaf() ? gradient_root(tensor) : RootRef());
  begun() = std::move(call);
  state.capture = std::make_unique<Capture>();
  return true;
}

void abandon_capture() {
  const Recorder::Lock lock;
  Recorder::instance().state().capture = nullptr;
  begun() = nullptr;
}

std::variant<std::shared_ptr<Captured>, std::string> end_capture(const std::vector<at::Tensor>& returned) {
  const Recorder::Lock lock;
  RecorderState& state = Recorder::instance().state();
  internal_check(state.capture && begun(), "a capture ended that had not begun");
  const size_t within = state.capture->sent.size();
  try {
    flush(GraphEnd::asked);
  } catch (...) {
    abandon_capture();
    throw;
  }
  const std::unique_ptr<Capture> capture = std::exchange(state.capture, nullptr);
  const std::unique_ptr<CallBegun> call = std::exchange(begun(), nullptr);
  if (!capture->refused.empty()) return capture->refused;
  if (within > 0) {
    const std::string line = source_text(capture->sent[0].source);
    return "a step ends within it" + (line.empty() ? "" : ", at " + line);
  }
  if (capture->sent.empty()) return "it records nothing";
  if (capture->sent.size() > 1) return "its tensors lie on several meshes";
  if (!(call->setting == current_setting())) return "it changes a setting of PyTorch";
  try {
    return Analysis(*call, capture->sent[0]).captured(returned);
  } catch (const Refused& refused) {
    return refused.why;
  }
}

}  // namespace spmdx::bridge
