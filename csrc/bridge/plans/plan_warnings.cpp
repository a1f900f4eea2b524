// SPDX-License-Identifier: Apache-2.0
// The texts of warnings and errors about plans.
#include "bridge/plans/plan_warnings.h"

#include <atomic>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bridge/python/source.h"
#include "bridge/python/warnings.h"

namespace spmdx::bridge {
namespace {

std::atomic<bool> are_errors{false};
std::atomic<bool> are_trials{false};

// Guarded by the recorder's lock.
bool warned = false;         // of an op without a rule
bool warned_of_one = false;  // microbatch
std::vector<std::string> to_say;

std::string head(SourceId source, const std::string& op) {
  const std::string line = source_text(source);
  return (line.empty() ? "" : line + ": ") + op;
}

std::string what_happens(const Fallback& fallback) {
  return head(fallback.source, fallback.op) + " has no sharding rule: " + std::to_string(fallback.bytes) +
         " bytes a device are gathered, and it runs whole on every device. Expected an op with a rule. "
         "Use one, or add a rule as docs/add_an_op.md shows";
}

std::string what_repeats(const Repeat& repeat) {
  std::string values;
  for (const std::string& value : repeat.values) values += (values.empty() ? "" : ", ") + value;
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.2f", static_cast<double>(repeat.planning_ns) * 1e-9);
  const std::string what = repeat.is_input ? " reads an input that has another shape from step to step (lately "
                                           : " has other arguments from step to step (lately ";
  const std::string mend =
      repeat.is_input
          ? " s. Expected few shapes, as each is planned anew. Pad to some of them, drop the last short batch "
            "(drop_last=True), or write into a tensor of full length instead of a growing one."
          : " s. Expected few of them, as each is planned anew. Make a tensor of a number that changes, also "
            "of an index (x.index_copy_(0, torch.tensor([i], device='spmdx'), row)), or use a few numbers.";
  return head(repeat.source, repeat.op) + what + values + "): " + std::to_string(repeat.plans) +
         " plans were made for the same program, in " + seconds + mend + " Said once for a program.";
}

std::string what_idles(int64_t ranks) {
  return head(current_source(), "the step that ends here has one microbatch, so while one of ") +
         std::to_string(ranks) + " stages works, the others wait: devices are idle for " + std::to_string(ranks - 1) +
         " times as long as they work, (p - 1) / m. Expected several backward passes in a step. Accumulate the "
         "gradients of more parts of the batch, as x.chunk(" +
         std::to_string(4 * ranks) + "), and read no value in between, which ends the step. Said once.";
}

}  // namespace

void set_fallbacks_are_errors(bool errors) { are_errors = errors; }

void set_plans_are_trials(bool trials) { are_trials = trials; }
bool plans_are_trials() { return are_trials; }

void note_plan(const Plan& plan) {
  if (are_trials) return;
  for (const Fallback& fallback : plan.fallbacks) {
    if (fallback.bytes == 0) continue;
    if (are_errors) throw ShardingError(what_happens(fallback) + ", or unset SPMDX_FALLBACK.");
    if (std::exchange(warned, true)) continue;
    to_say.push_back(what_happens(fallback) +
                     ". Said once: spmdx.explain().fallbacks lists all, SPMDX_FALLBACK=error makes it an error.");
  }
  const bool idles = plan.idle_stages > 0 && !plan.traced.schedule.empty();
  if (idles && !std::exchange(warned_of_one, true)) to_say.push_back(what_idles(plan.idle_stages + 1));
  if (plan.repeat && !std::exchange(plan.repeat->told, true)) to_say.push_back(what_repeats(*plan.repeat));
}

void warn_of_plans() {
  if (to_say.empty()) return;
  for (const std::string& message : std::exchange(to_say, {})) warn(message);
}

}  // namespace spmdx::bridge
