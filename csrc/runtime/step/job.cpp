// SPDX-License-Identifier: Apache-2.0
// Job: what a step is fed, as a number to compare and as a text to quote.
#include "runtime/step/job.h"

#include <algorithm>

#include "runtime/step/differences.h"

namespace spmdx {
namespace {

// REQUIRES: it came from the program.
uint64_t digest_of(const Data& data, Backend& backend) {
  if (data.digest()) return *data.digest();
  return data.lost() ? 0 : backend.digest(data.wait().at(0));  // a step that reads lost data fails, and says so
}

// Whether an output is an input in another layout.
bool is_move(const Job& job, size_t output) {
  const Graph& graph = job.plan->traced;
  const ValueId value = graph.outputs[output].value;
  if (graph.value(value).producer != kNone) return false;
  const auto input =
      std::find_if(graph.inputs.begin(), graph.inputs.end(), [&](const Input& one) { return one.value == value; });
  return input != graph.inputs.end() && job.inputs[input - graph.inputs.begin()] == job.outputs[output]->fallback();
}

// The program with what this step gives for its starts.
Graph program_of(const Job& job) {
  const Plan& plan = *job.plan;
  std::vector<int64_t> starts;
  for (size_t i = 0; i < plan.starts.values.size(); ++i)
    starts.push_back(job.params[plan.traced.num_params + i].integer);
  return with_starts(plan.traced, starts);
}

}  // namespace

bool Uncompared::has(int64_t step) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](auto& r) { return r.first <= step && step < r.second; });
}

std::vector<bool> spare_inputs(const Job& job) {
  std::vector<bool> spare(job.inputs.size(), false);
  const Graph& graph = job.plan->executable->graph();
  for (size_t i = 0; i < job.outputs.size(); ++i) {
    const Output& output = graph.outputs[i];
    if (!output.donates || job.outputs[i]->fallback() != job.inputs[output.tied]) continue;
    spare[output.tied] = job.inputs[output.tied].use_count() == 2;
  }
  return spare;
}

int64_t bytes_of_inputs(const Job& job) {
  int64_t bytes = 0;
  for (const DataRef& input : job.inputs) bytes += input->held_bytes();
  return bytes;
}

SourceId first_source(const Graph& graph) {
  for (const Node& node : graph.nodes)
    if (node.source) return node.source;
  return 0;
}

bool changes_values(const Job& job) {
  for (size_t i = 0; i < job.outputs.size(); ++i)
    if (job.outputs[i]->fallback() && !is_move(job, i)) return true;
  return false;
}

uint64_t fingerprint_of(const Job& job, Backend& backend, const Uncompared& uncompared) {
  uint64_t h = job.plan->fingerprint;
  for (uint32_t i = 0; i < job.plan->executable->graph().num_params; ++i) h = hash_combine(h, job.params[i].integer);
  for (const DataRef& input : job.inputs) {
    const bool compared = input->compared_in() >= 0 && !uncompared.has(input->compared_in()) && !input->is_kept();
    if (!input->is_common() || compared) continue;
    h = hash_combine(h, digest_of(*input, backend));
    input->set_compared_in(job.number);
  }
  return h;
}

std::string account_of(const Job& job, Backend& backend, const SourcePrinter& source) {
  std::string text = print(program_of(job), source) + "\n" + kValuesHead + "\n";
  const Graph& graph = job.plan->traced;
  for (size_t i = 0; i < job.inputs.size(); ++i) {
    const Data& data = *job.inputs[i];
    const bool whole = !data.sharding() && data.ready() && !data.lost();
    if (!whole && !data.digest()) continue;
    const Input& input = graph.inputs[i];
    const std::string line = source && input.source ? "  // " + source(input.source) : "";
    text += "input %" + std::to_string(input.value) + " " + str(graph.values[input.value].type) + " with digest " +
            std::to_string(digest_of(data, backend)) + line + "\n";
  }
  for (uint32_t i = 0; i < graph.num_params; ++i)
    text += "number #" + std::to_string(i) + " is " + std::to_string(job.params[i].real) + " or " +
            std::to_string(job.params[i].integer) + "\n";
  return text;
}

void deliver(const Job& job, RunResult result) {
  for (size_t i = 0; i < job.outputs.size(); ++i) {
    const bool complete = !result.error || (i < result.outputs.size() && !result.outputs[i].empty());
    complete ? job.outputs[i]->fill(std::move(result.outputs[i])) : job.outputs[i]->fail(result.error);
  }
}

}  // namespace spmdx
