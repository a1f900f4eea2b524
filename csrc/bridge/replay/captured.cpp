// SPDX-License-Identifier: Apache-2.0
// Captured: its step is sent again, where nothing that it depends on has changed.
#include "bridge/replay/captured.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "bridge/backend/buffer.h"
#include "bridge/plans/memory.h"
#include "bridge/python/gil.h"
#include "bridge/python/warnings.h"
#include "bridge/recorder/engine.h"
#include "bridge/recorder/recorder.h"
#include "bridge/recorder/recorder_state.h"
#include "bridge/step/flush.h"
#include "bridge/tensor/abstract.h"

namespace spmdx::bridge {
namespace {

std::atomic<int64_t> replayed{0};

bool same_root(const WeakRootRef& weak, const at::Tensor& tensor) {
  return weak._unsafe_get_target() == &as_lazy(tensor)->root();
}

bool same_elements(const DataRef& a, const DataRef& b) {
  if (a == b) return true;
  if (!a || !b || !(a->type() == b->type())) return false;
  const at::Tensor x = tensor_of(a->wait().at(0)), y = tensor_of(b->wait().at(0));
  return std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

bool is_real(const Data& number) { return number.type().wrapped_number && number.type().dtype == DType::f64; }

bool same_start(const Param& a, const Param& b) { return a.integer == b.integer; }

void bump(const at::Tensor& tensor, uint64_t times) {
  for (; times > 0; --times) tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace

std::string Captured::differs(const Captured& other) const {
  if (!(setting_ == other.setting_)) return "settings of PyTorch change between calls";
  if (plan_ != other.plan_) return "it records other ops from call to call";
  if (params_.size() != other.params_.size() || draws_ != other.draws_)
    return "it draws other numbers from call to call";
  if (!host_->alike(*other.host_)) return "it does other arithmetic on the host from call to call";
  if (!std::ranges::equal(starts(), other.starts(), same_start))
    return "it reads other parts of tensors from call to call";
  const auto same_place = [&](const Place& a, const Place& b) {
    if (a.of != Place::Of::kept || b.of != Place::Of::kept) return a == b;
    return kept_[a.index]._unsafe_get_target() == other.kept_[b.index]._unsafe_get_target();
  };
  const auto same_input = [&](const Input& a, const Input& b) {
    if (a.place.has_value() != b.place.has_value()) return false;
    if (!a.place) return is_real(*a.number) || same_elements(a.number, b.number);
    return same_place(*a.place, *b.place) && std::ranges::equal(a.same, b.same, same_place);
  };
  if (!std::ranges::equal(inputs_, other.inputs_, same_input)) return "it reads other tensors from call to call";
  const auto same_output = [&](const Output& a, const Output& b) {
    return same_place(a.place, b.place) && a.leaf == b.leaf;
  };
  if (!std::ranges::equal(outputs_, other.outputs_, same_output)) return "it writes other tensors from call to call";
  const auto same_returned = [&](const Returned& a, const Returned& b) { return same_place(a.place, b.place); };
  if (!std::ranges::equal(returned_, other.returned_, same_returned))
    return "it returns other tensors from call to call";
  const auto same_gradient = [](const Watched& a, const Watched& b) {
    return a.gradient.has_value() == b.gradient.has_value() && a.leaves == b.leaves;
  };
  if (!std::ranges::equal(watched_, other.watched_, same_gradient)) return "gradients are there in some calls only";
  return "";
}

std::span<const Param> Captured::starts() const { return std::span(params_).subspan(plan_->traced.num_params); }

Root& Captured::root_at(const Place& place, const std::vector<at::Tensor>& arguments,
                        const std::vector<RootRef>& kept) const {
  if (place.of == Place::Of::argument) return as_lazy(arguments[place.index])->root();
  if (place.of == Place::Of::gradient) return as_lazy(watched_[place.index].tensor.grad())->root();
  return root_of(kept[place.index]);
}

std::vector<RootRef> Captured::kept_roots() const {
  std::vector<RootRef> kept;
  kept.reserve(kept_.size());
  for (const WeakRootRef& weak : kept_) kept.push_back(weak.lock());
  return kept;
}

std::string Captured::misfit_of_watched(std::vector<const Root*>& gradients) const {
  for (const Watched& watched : watched_) {
    if (!same_root(watched.root, watched.tensor)) return "a tensor that it uses shows other memory";
    if (!shows(watched.tensor, watched.shown)) return "a tensor that it uses shows its memory otherwise";
    if (!watched.shown.leaf) continue;
    const at::Tensor& gradient = watched.tensor.grad();
    if (gradient.defined() != watched.gradient.has_value()) return "gradients were dropped, or are there";
    if (!gradient.defined()) continue;
    const LazyTensor* lazy = as_lazy(gradient);
    if (!lazy || !is_in(lazy->root(), *watched.gradient)) return "a gradient lies otherwise";
    gradients.push_back(&lazy->root());
  }
  return "";
}

std::string Captured::misfit_of_arguments(const std::vector<at::Tensor>& arguments, const std::vector<RootRef>& kept,
                                          const std::vector<const Root*>& gradients) const {
  if (arguments.size() != arguments_.size()) return "it is given other arguments";
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument& was = arguments_[i];
    const Root& root = as_lazy(arguments[i])->root();
    if (!is_in(root, was.state)) return "an argument lies in other memory, or is annotated otherwise";
    if (!shows(arguments[i], was.shown)) return "an argument has another shape, dtype or layout, or is another view";
    for (size_t j = 0; j < i; ++j)
      if ((&as_lazy(arguments[j])->root() == &root) != (arguments_[j].alias == was.alias))
        return "other arguments share memory";
    if (was.watched >= 0) {
      if (!same_root(watched_[static_cast<size_t>(was.watched)].root, arguments[i]))
        return "an argument is another tensor";
      continue;
    }
    if (arguments[i].is_leaf() && arguments[i].grad().defined()) return "an argument has a gradient";
    const auto is_root = [&](const Watched& watched) { return same_root(watched.root, arguments[i]); };
    const auto is_kept = [&](const RootRef& ref) { return &root_of(ref) == &root; };
    if (std::ranges::any_of(watched_, is_root) || std::ranges::any_of(kept, is_kept) ||
        std::ranges::find(gradients, &root) != gradients.end())
      return "an argument is a tensor that it uses otherwise";
  }
  return "";
}

std::string Captured::misfit_of_inputs(const std::vector<at::Tensor>& arguments,
                                       const std::vector<RootRef>& kept) const {
  for (const Input& input : inputs_) {
    if (!input.place) continue;
    const DataRef& data = root_at(*input.place, arguments, kept).current.data;
    if (!data || data->is_abstract() || has_failed(*data)) return "a tensor that it uses has no value";
    if (data->sharding() != input.sharding) return "a tensor that it uses lies otherwise";
    for (const Place& place : input.same)
      if (root_at(place, arguments, kept).current.data != data) return "tensors do not hold the same value any more";
  }
  return "";
}

std::string Captured::misfit(const std::vector<at::Tensor>& arguments) {
  flush(GraphEnd::asked);
  const Recorder::Lock lock;
  if (Recorder::instance().state().capture || planning_only()) return "it is called within another call";
  if (!(setting_ == current_setting())) return "a setting of PyTorch changed";
  const std::vector<RootRef> kept = kept_roots();
  for (size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i]) return "a tensor that it uses is gone";
    if (!is_in(root_of(kept[i]), kept_states_[i])) return "the layout or the sharding of a tensor that it uses changed";
  }
  std::vector<const Root*> gradients;
  std::string why = misfit_of_watched(gradients);
  if (why.empty()) why = misfit_of_arguments(arguments, kept, gradients);
  if (why.empty()) why = misfit_of_inputs(arguments, kept);
  if (!why.empty()) return why;
  require_fits(*plan_);
  NoGil no_gil;
  engine().wait_for_room();
  return engine().reuse(plan_) ? "" : "its plan was dropped, or may be improved";
}

std::vector<Param> Captured::params_for(const Draw& draw) const {
  std::vector<Param> params = params_;
  for (const Drawn& drawn : drawn_)
    params[drawn.param].integer = static_cast<int64_t>(drawn.is_seed ? draw.seed : draw.draw + drawn.after);
  for (const Real& real : reals_)
    if (real.is_param && real.result >= 0)
      params[real.index].real = host_->repeated().at(static_cast<size_t>(real.result));
  return params;
}

std::vector<DataRef> Captured::inputs_for(const std::vector<at::Tensor>& arguments,
                                          const std::vector<RootRef>& kept) const {
  std::vector<DataRef> inputs;
  inputs.reserve(inputs_.size());
  for (const Input& input : inputs_) {
    inputs.push_back(input.place ? root_at(*input.place, arguments, kept).current.data : input.number);
    inputs.back()->is_first_read();
  }
  for (const Real& real : reals_)
    if (!real.is_param && real.result >= 0)
      inputs[real.index] = Recorder::number(host_->repeated().at(static_cast<size_t>(real.result)));
  return inputs;
}

// A step that fails gives roots back what they held. Roots that the call made before are new ones now.
std::vector<RootRef> Captured::put_outputs(const std::vector<at::Tensor>& arguments, const std::vector<RootRef>& kept,
                                           std::vector<DataRef>& outputs) const {
  std::vector<RootRef> made(outputs_.size());
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Output& output = outputs_[i];
    auto data = std::make_shared<Data>(plan_->traced.value(plan_->traced.outputs[i].value).type);
    outputs.push_back(data);
    if (output.place.of == Place::Of::made) {
      made[i] = new_root(output.made.base, {0, kNone, std::move(data)});
      Root& root = root_of(made[i]);
      if (output.made.annotation) root.annotation = std::make_unique<Annotation>(*output.made.annotation);
      if (output.leaf >= 0)
        root.gradient_of = as_lazy(watched_[static_cast<size_t>(output.leaf)].tensor)->root().serial;
      continue;
    }
    Root& root = root_at(output.place, arguments, kept);
    if (root.current.data && !root.current.data->is_abstract()) data->set_fallback(root.current.data);
    root.current = {0, kNone, std::move(data)};
    ++root.writes;
  }
  return made;
}

void Captured::finish(const std::vector<at::Tensor>& arguments, const std::vector<RootRef>& made) const {
  for (const Watched& watched : watched_) {
    bump(watched.tensor, watched.versions);
    if (watched.leaves == Watched::Leaves::as_is) continue;
    at::Tensor gradient;
    if (watched.leaves == Watched::Leaves::made) gradient = show(made[watched.made], watched.shown_gradient);
    watched.tensor.mutable_grad() = std::move(gradient);
  }
  for (size_t i = 0; i < arguments.size(); ++i)
    if (arguments_[i].watched < 0) bump(arguments[i], arguments_[i].versions);
}

std::vector<at::Tensor> Captured::send(const std::vector<at::Tensor>& arguments) {
  const Recorder::Lock lock;
  const std::vector<RootRef> kept = kept_roots();
  const Draw draw = current_draw();
  std::vector<Param> params = params_for(draw);
  std::vector<DataRef> inputs = inputs_for(arguments, kept), outputs;
  const std::vector<RootRef> made = put_outputs(arguments, kept, outputs);
  if (draws_ > 0) set_current_draw({draw.seed, draw.draw + draws_});
  Recorder::instance().state().send_rebound(outputs.empty() ? nullptr : outputs[0]);
  {
    NoGil no_gil;
    engine().submit(plan_, std::move(inputs), std::move(params), std::move(outputs));
  }
  host_->note_sent();
  ++replayed;
  finish(arguments, made);
  std::vector<at::Tensor> results;
  results.reserve(returned_.size());
  for (const Returned& returned : returned_) {
    const bool is_made = returned.place.of == Place::Of::made;
    const RootRef root = is_made ? made[returned.place.index]
                                 : RootRef::unsafe_reclaim_from_nonowning(&root_at(returned.place, arguments, kept));
    results.push_back(show(root, returned.shown));
  }
  warn_of_events();
  return results;
}

int64_t replayed_steps() { return replayed; }
void reset_replayed_steps() { replayed = 0; }

}  // namespace spmdx::bridge
