// SPDX-License-Identifier: Apache-2.0
// SegmentKernel: compares once, and then only calls. What rounding may change is found as stochastic arithmetic does:
// the ops run a second time, with numbers that were rounded otherwise. Source: J. Vignes, A stochastic arithmetic for
// reliable scientific computation, 1993.
#include "runtime/segments/segment_kernel.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "base/error.h"
#include "graph/text.h"
#include "runtime/data/observer.h"

namespace spmdx {
namespace {

// The ops of a segment, one by one.
class Ops {
 public:
  Ops(const Segment& segment, const Program& program) : graph_(segment.graph) {
    for (const uint32_t index : segment.instructions) {
      const Instruction& instruction = program.instructions[index];
      kernels_.push_back(
          {program.kernels[instruction.index], instruction.node, instruction.first_param, instruction.num_params});
    }
    last_reader_.assign(graph_.values.size(), kNone);
    for (NodeId id = 0; id < graph_.nodes.size(); ++id)
      for (const ValueId input : graph_.nodes[id].inputs) last_reader_[input] = id;
    for (const Output& output : graph_.outputs) last_reader_[output.value] = kNone;
  }

  // What becomes of every input and result before an op reads it.
  using Change = std::function<BufferRef(BufferRef)>;

  // Throws FailedWithin.
  void run(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs,
           const Change& change = {}) {
    std::vector<BufferRef> values(graph_.values.size());
    for (size_t i = 0; i < inputs.size(); ++i) values[graph_.inputs[i].value] = change ? change(inputs[i]) : inputs[i];
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      try {
        run_node(id, values, params, change);
      } catch (...) {
        throw FailedWithin{kernels_[id].node, std::current_exception()};
      }
    }
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i] = values[graph_.outputs[i].value];
  }

 private:
  void run_node(NodeId id, std::vector<BufferRef>& values, std::span<const Param> params, const Change& change) {
    const Node& node = graph_.nodes[id];
    std::vector<BufferRef> operands, results(node.call->outputs.size());
    for (const ValueId input : node.inputs) operands.push_back(values[input]);
    const Prepared& one = kernels_[id];
    one.kernel->run(operands, params.subspan(one.first_param, one.num_params), results, -1);
    for (size_t r = 0; r < results.size(); ++r)
      values[node.output + r] = change && results[r] ? change(std::move(results[r])) : std::move(results[r]);
    for (const ValueId input : node.inputs)
      if (last_reader_[input] == id) values[input].reset();
  }

  struct Prepared {
    std::shared_ptr<Kernel> kernel;
    NodeId node = kNone;                       // of the plan
    uint32_t first_param = 0, num_params = 0;  // of the plan
  };
  const Graph graph_;
  std::vector<Prepared> kernels_;    // by node
  std::vector<NodeId> last_reader_;  // by value; kNone: it is an output
};

class SegmentKernel final : public Kernel {
 public:
  SegmentKernel(const Segment& segment, const Program& program, std::shared_ptr<Kernel> compiled, Backend& backend,
                std::shared_ptr<Compiler> compiler, std::shared_ptr<SegmentTimes> times)
      : segment_(segment),
        ops_(segment, program),
        compiled_(std::move(compiled)),
        backend_(backend),
        compiler_(std::move(compiler)),
        times_(std::move(times)),
        is_checked_(!compiler_->checks()),
        in_place_(std::ranges::any_of(segment.graph.outputs, &Output::donates)) {}

  void run(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs,
           int /*donated*/) override {
    own_params_.clear();
    for (const uint32_t param : segment_.params) own_params_.push_back(params[param]);
    if (!compiled_) return ops_.run(inputs, params, outputs);
    if (const std::optional<std::string> why = why_not(inputs, outputs)) {
      if (in_place_ && has_run_) lose(*why);
      ops_.run(inputs, params, outputs);  // which raises as well if the error is the program's
      refuse("it failed: " + *why);
    } else if (!is_checked_) {
      check(inputs, params, outputs);
    }
  }

 private:
  // Runs what was compiled; says why it failed, if it did.
  std::optional<std::string> why_not(std::span<const BufferRef> inputs, std::span<BufferRef> outputs) {
    try {
      const int64_t begun = now_ns();
      compiled_->run(inputs, own_params_, outputs, has_run_ ? 0 : -1);
      if (has_run_) {
        times_->ns += now_ns() - begun;
        times_->runs += 1;
      }
      has_run_ = true;
      return std::nullopt;
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  void check(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs) {
    std::vector<BufferRef> expected(outputs.size());
    const int64_t begun = now_ns();
    ops_.run(inputs, params, expected);
    times_->of_ops_ns = now_ns() - begun;
    const std::vector<BufferRef> perturbed = run_perturbed(inputs, params);
    is_checked_ = true;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (backend_.is_close(outputs[i], expected[i], perturbed[i])) continue;
      const Node& node = segment_.graph.nodes[segment_.graph.values[segment_.graph.outputs[i].value].producer];
      std::move(expected.begin(), expected.end(), outputs.begin());
      return refuse("its result of " + node.call->op + " is not that of PyTorch's kernels");
    }
  }

  // What the ops give if all that they read was rounded otherwise; null where rounding decides whether they raise.
  std::vector<BufferRef> run_perturbed(std::span<const BufferRef> inputs, std::span<const Param> params) {
    std::vector<BufferRef> results(segment_.graph.outputs.size());
    uint64_t seed = 0;
    try {
      ops_.run(inputs, params, results, [&](BufferRef buffer) { return backend_.perturbed(buffer, ++seed); });
    } catch (const FailedWithin&) {
      results.assign(results.size(), nullptr);
    }
    return results;
  }

  // Its inputs may be written over.
  [[noreturn]] void lose(const std::string& why) const {
    const ShardingError error(
        "a compiled kernel that had run before failed while it wrote results over what it reads: " + why +
        ". Expected it to run as before. Begin from a checkpoint, without the compiler.");
    throw FailedWithin{segment_.first, std::make_exception_ptr(error)};
  }

  void refuse(const std::string& why) {
    compiled_.reset();
    compiler_->refuse(segment_, why);
  }

  const Segment segment_;
  Ops ops_;
  std::shared_ptr<Kernel> compiled_;
  Backend& backend_;
  const std::shared_ptr<Compiler> compiler_;
  const std::shared_ptr<SegmentTimes> times_;
  bool is_checked_, has_run_ = false;
  const bool in_place_;
  std::vector<Param> own_params_;
};

}  // namespace

std::shared_ptr<Kernel> make_segment_kernel(const Segment& segment, const Program& program,
                                            std::shared_ptr<Kernel> compiled, Backend& backend,
                                            std::shared_ptr<Compiler> compiler, std::shared_ptr<SegmentTimes> times) {
  return std::make_shared<SegmentKernel>(segment, program, std::move(compiled), backend, std::move(compiler),
                                         std::move(times));
}

}  // namespace spmdx
