// SPDX-License-Identifier: Apache-2.0
// Flush: the recorded graph is submitted; failures of earlier steps are raised and undone first.
#include "bridge/step/flush.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/error.h"
#include "bridge/plans/plan_log.h"
#include "bridge/plans/plan_warnings.h"
#include "bridge/python/gil.h"
#include "bridge/python/warnings.h"
#include "bridge/recorder/engine.h"
#include "bridge/recorder/loaded.h"
#include "bridge/recorder/recorder.h"
#include "bridge/recorder/recorder_state.h"
#include "bridge/step/finish.h"
#include "bridge/step/recovery.h"
#include "bridge/step/submit.h"
#include "bridge/world/c10d_comm.h"

namespace spmdx::bridge {
namespace {

struct LostValue : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What is said of a tensor whose value went with a step that failed.
std::exception_ptr lost_by(const std::exception_ptr& error) {
  std::string why;
  try {
    std::rethrow_exception(error);
  } catch (const LostValue&) {
    return error;  // the step read what had been lost before
  } catch (const c10::Error& e) {
    why = e.what_without_backtrace();
  } catch (const std::exception& e) {
    why = e.what();
  }
  return std::make_exception_ptr(
      LostValue("the value of this tensor was lost in a step that failed (" + why +
                "). Expected one that was computed. Give it a new value, or make the tensor again."));
}

}  // namespace

void flush(GraphEnd why) {
  note_use();
  Recorder::Lock lock;
  check_failed();
  RecorderState& state = Recorder::instance().state();
  if (state.graph.nodes.empty() && state.inputs.empty() && !state.annotated) return;
  {
    NoGil no_gil;
    engine().wait_for_room();  // an interrupt in this wait changes nothing
  }
  if (why == GraphEnd::too_long || why == GraphEnd::read) ++state.implicit_syncs;
  bool more = false;
  try {
    try {
      more = submit(state, why == GraphEnd::read || why == GraphEnd::awaited);
    } catch (const ShardingError&) {
      compute_unsharded(state);
      throw;
    }
  } catch (...) {
    roll_back(state, lost_by(std::current_exception()));
    throw;
  }
  if (!state.graph.nodes.empty()) state.was_cut = why == GraphEnd::too_long;
  state.reset();
  if (more) {  // data of another mesh
    state.annotated = true;
    flush(why);
  } else {
    forget_changes();
  }
  hand_over_plan_notes();
  warn_of_plans();
  warn_of_events();
}

void check_failed() {
  if (!has_unseen_failure()) return;
  Recorder::Lock lock;
  if (!has_unseen_failure()) return;
  RecorderState& state = Recorder::instance().state();
  {
    NoGil no_gil;
    engine().wait();
  }
  forget_failure();
  try {
    engine().rethrow();
  } catch (...) {
    roll_back(state, lost_by(std::current_exception()));
    throw;
  }
  roll_back(state, nullptr);  // whoever read its results has seen the error
}

void wait_for_steps() {
  {
    NoGil no_gil;
    engine().wait();
  }
  check_failed();
  try {
    engine().rethrow();  // of a step that failed before its first op
  } catch (...) {
    Recorder::Lock lock;
    roll_back(Recorder::instance().state(), lost_by(std::current_exception()));
    throw;
  }
  warn_of_events();
}

std::exception_ptr undo_failed() {
  Recorder::Lock lock;
  forget_failure();
  std::exception_ptr unseen;
  try {
    engine().rethrow();
  } catch (...) {
    unseen = std::current_exception();
  }
  const auto lost = std::make_exception_ptr(std::runtime_error(
      "this tensor was not computed before spmdx.runtime.recover(), which undoes what has failed and drops what had "
      "not begun. Expected a tensor of a step that ran. Make it again."));
  roll_back(Recorder::instance().state(), lost);
  return unseen;
}

PendingPlan plan_pending(const at::Tensor& tensor) {
  Recorder::Lock lock;
  check_failed();
  RecorderState& state = Recorder::instance().state();
  const Root* wanted = &as_lazy(tensor)->root();
  const GradientInputs gradients = state.gradients();
  end_loaded_annotations(state);
  auto groups = pending_by_mesh(state, gradients);
  const auto is_wanted = [&](const RootRef& ref) { return &root_of(ref) == wanted; };
  auto group = std::find_if(groups.begin(), groups.end(),
                            [&](const auto& owners) { return std::any_of(owners.begin(), owners.end(), is_wanted); });
  std::vector<RootRef>& owners = group == groups.end() ? groups.front() : *group;
  const FinishedGraph done = finish_graph(state, std::move(owners), gradients);
  state.annotated = done.more;
  if (done.graph.outputs.empty()) return {};
  const auto output = std::find_if(done.owners.begin(), done.owners.end(), is_wanted) - done.owners.begin();
  return {plan_of(done.graph, PlanFor::question), static_cast<size_t>(output)};
}

}  // namespace spmdx::bridge
