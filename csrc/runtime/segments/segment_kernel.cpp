// SPDX-License-Identifier: Apache-2.0
// SegmentKernel: compares once, and then only calls.
#include "runtime/segments/segment_kernel.h"

#include <exception>
#include <optional>
#include <utility>

#include "base/error.h"
#include "graph/text.h"

namespace spmdx {
namespace {

// The ops of a segment, one by one.
class Ops {
 public:
  Ops(const Segment& segment, const Program& program) : graph_(segment.graph) {
    for (const uint32_t index : segment.instructions) {
      const Instruction& instruction = program.instructions[index];
      kernels_.push_back({program.kernels[instruction.index], instruction.first_param, instruction.num_params});
    }
    last_reader_.assign(graph_.values.size(), kNone);
    for (NodeId id = 0; id < graph_.nodes.size(); ++id)
      for (const ValueId input : graph_.nodes[id].inputs) last_reader_[input] = id;
    for (const Output& output : graph_.outputs) last_reader_[output.value] = kNone;
  }

  // Told of every op when its results are there; the vectors are theirs for the call.
  using Seen = std::function<void(const Node& node, std::span<const BufferRef> inputs, std::span<const BufferRef>)>;

  void run(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs,
           const Seen& seen = {}) {
    std::vector<BufferRef> values(graph_.values.size());
    for (size_t i = 0; i < inputs.size(); ++i) values[graph_.inputs[i].value] = inputs[i];
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) run_node(id, values, params, seen);
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i] = values[graph_.outputs[i].value];
  }

 private:
  void run_node(NodeId id, std::vector<BufferRef>& values, std::span<const Param> params, const Seen& seen) {
    const Node& node = graph_.nodes[id];
    std::vector<BufferRef> operands, results(node.call->outputs.size());
    for (const ValueId input : node.inputs) operands.push_back(values[input]);
    const Prepared& one = kernels_[id];
    one.kernel->run(operands, params.subspan(one.first_param, one.num_params), results, -1);
    if (seen) seen(node, operands, results);
    for (size_t r = 0; r < results.size(); ++r) values[node.output + r] = std::move(results[r]);
    for (const ValueId input : node.inputs)
      if (last_reader_[input] == id) values[input].reset();
  }

  struct Prepared {
    std::shared_ptr<Kernel> kernel;
    uint32_t first_param = 0, num_params = 0;  // of the plan
  };
  const Graph graph_;
  std::vector<Prepared> kernels_;    // by node
  std::vector<NodeId> last_reader_;  // by value; kNone: it is an output
};

class SegmentKernel final : public Kernel {
 public:
  SegmentKernel(const Segment& segment, const Program& program, std::shared_ptr<Kernel> compiled, Backend& backend,
                std::shared_ptr<Compiler> compiler)
      : segment_(segment),
        ops_(segment, program),
        compiled_(std::move(compiled)),
        backend_(backend),
        compiler_(std::move(compiler)),
        is_checked_(!compiler_->checks()) {}

  void run(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs,
           int /*donated*/) override {
    own_params_.clear();
    for (const uint32_t param : segment_.params) own_params_.push_back(params[param]);
    if (!compiled_ || !run_compiled(inputs, outputs)) return ops_.run(inputs, params, outputs);
    if (!is_checked_) check(inputs, params, outputs);
  }

 private:
  bool run_compiled(std::span<const BufferRef> inputs, std::span<BufferRef> outputs) {
    try {
      compiled_->run(inputs, own_params_, outputs, -1);
      return true;
    } catch (const std::exception& error) {
      refuse(std::string("it failed: ") + error.what());
      return false;
    }
  }

  void check(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs) {
    is_checked_ = true;
    std::vector<BufferRef> expected(outputs.size());
    std::optional<size_t> wrong;
    std::vector<std::vector<BufferRef>> made_of(segment_.graph.values.size());  // by value
    ops_.run(inputs, params, expected, [&](const Node& node, auto operands, auto results) {
      std::vector<BufferRef> before;
      for (const ValueId input : node.inputs) before.insert(before.end(), made_of[input].begin(), made_of[input].end());
      for (size_t r = 0; r < results.size(); ++r) made_of[node.output + r].assign(operands.begin(), operands.end());
      for (size_t i = 0; i < outputs.size() && !wrong; ++i) {
        const ValueId value = segment_.graph.outputs[i].value;
        if (value < node.output || value >= node.output + results.size()) continue;
        if (!backend_.is_close(outputs[i], results[value - node.output], operands, before)) wrong = i;
      }
    });
    if (!wrong) return;
    const Node& node = segment_.graph.nodes[segment_.graph.values[segment_.graph.outputs[*wrong].value].producer];
    std::move(expected.begin(), expected.end(), outputs.begin());
    refuse("its result of " + node.call->op + " is not that of PyTorch's kernels");
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
  bool is_checked_;
  std::vector<Param> own_params_;
};

}  // namespace

std::shared_ptr<Kernel> make_segment_kernel(const Segment& segment, const Program& program,
                                            std::shared_ptr<Kernel> compiled, Backend& backend,
                                            std::shared_ptr<Compiler> compiler) {
  return std::make_shared<SegmentKernel>(segment, program, std::move(compiled), backend, std::move(compiler));
}

}  // namespace spmdx
