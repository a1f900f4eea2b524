// SPDX-License-Identifier: Apache-2.0
// The debug modes: poison shows what reads memory that no shard owns; the meter counts what devices hold.
#include <cmath>

#include "check.h"
#include "runtime/data/check.h"
#include "runtime/step/executor.h"

namespace spmdx {
namespace {

// A part of some memory; views share it.
struct Part final : Buffer {
  std::shared_ptr<std::vector<double>> memory;
  int64_t start = 0, size = 0;
};

std::shared_ptr<Part> part(std::shared_ptr<std::vector<double>> memory, int64_t start, int64_t size) {
  auto made = std::make_shared<Part>();
  made->memory = std::move(memory);
  made->start = start;
  made->size = size;
  return made;
}
std::shared_ptr<Part> fresh(int64_t size, double value) {
  return part(std::make_shared<std::vector<double>>(size, value), 0, size);
}
const Part& at(const BufferRef& buffer) { return static_cast<const Part&>(*buffer); }
double& element(const BufferRef& buffer, int64_t i) { return at(buffer).memory->at(at(buffer).start + i); }

// neg; sin, which looks one element too far; cos, which still looks at what the last neg was given; view.
class FaultyKernel final : public Kernel {
 public:
  FaultyKernel(const Call& call, const std::vector<double>*& seen) : op_(call.op), seen_(seen) {}

  void run(std::span<const BufferRef> inputs, std::span<const Param>, std::span<BufferRef> outputs, int) override {
    const Part& in = at(inputs[0]);
    if (op_ == "aten.view") {
      outputs[0] = part(in.memory, in.start, in.size);
      return;
    }
    auto out = fresh(in.size, 0);
    for (int64_t i = 0; i < in.size; ++i) element(out, i) = -element(inputs[0], i);
    if (op_ == "aten.sin" && in.start + in.size < static_cast<int64_t>(in.memory->size()))
      element(out, 0) += (*in.memory)[in.start + in.size];
    if (op_ == "aten.cos") element(out, 0) += seen_->at(0);
    if (op_ == "aten.neg") seen_ = in.memory.get();
    outputs[0] = out;
  }

 private:
  std::string op_;
  const std::vector<double>*& seen_;
};

class PartBackend final : public Backend {
 public:
  std::unique_ptr<Kernel> prepare(const Call& local) override { return std::make_unique<FaultyKernel>(local, seen_); }
  BufferRef empty(DType, const Shape& shape) override {
    return fresh(numel(shape), check_modes().poison ? std::nan("") : 0);
  }
  BufferRef identity(DType, const Shape& shape, Reduction) override { return fresh(numel(shape), 0); }
  BufferRef narrow(const BufferRef& buffer, const Box& box) override {
    return part(at(buffer).memory, at(buffer).start + box[0].start, box[0].extent);
  }
  BufferRef reshape(const BufferRef& buffer, const Shape&) override { return buffer; }
  void copy_box(const BufferRef& dst, const std::vector<int64_t>& starts, const BufferRef& src,
                const Box& box) override {
    for (int64_t i = 0; i < box[0].extent; ++i) element(dst, starts[0] + i) = element(src, box[0].start + i);
  }
  void concatenate(const BufferRef& dst, std::span<const BufferRef> parts, size_t) override {
    int64_t start = 0;
    for (const BufferRef& part : parts) {
      copy_box(dst, {start}, part, {{0, at(part).size}});
      start += at(part).size;
    }
  }
  void reduce_into(const BufferRef&, const BufferRef&, Reduction) override {}
  BufferRef reduce(std::span<const BufferRef> buffers, Reduction, int) override { return buffers[0]; }
  BufferRef compact(const BufferRef& buffer) override { return buffer; }
  int64_t bytes(const BufferRef& buffer) override { return at(buffer).size * 8; }
  uint64_t digest(const BufferRef&) override { return 0; }
  Memory memory(const BufferRef& buffer) override {
    return {at(buffer).memory.get(), static_cast<int64_t>(at(buffer).memory->size()) * 8};
  }
  bool poison(const BufferRef& buffer) override {
    if (at(buffer).memory.use_count() > 1) return false;
    kept_ = at(buffer).memory;  // memory that was freed is not to be looked at, not even by a test
    kept_->assign(kept_->size(), std::nan(""));
    return true;
  }
  BufferRef fence(const BufferRef& buffer) override {
    const Part& old = at(buffer);
    if (old.memory.use_count() > 1) return buffer;
    auto memory = std::make_shared<std::vector<double>>(old.size + 2, std::nan(""));
    auto made = part(memory, 1, old.size);
    for (int64_t i = 0; i < old.size; ++i) element(made, i) = element(buffer, i);
    return made;
  }

 private:
  const std::vector<double>* seen_ = nullptr;
  std::shared_ptr<std::vector<double>> kept_;
};

struct Modes {
  explicit Modes(CheckModes modes) { set_check_modes(modes); }
  ~Modes() { set_check_modes({}); }
};

CallRef unary(const std::string& op) {
  Call made;
  made.op = op;
  made.args = {TensorArg{0}};
  made.inputs = made.outputs = {{DType::f64, {4}}};
  return seal(std::move(made));
}

Graph chain(const std::vector<std::string>& ops) {
  Graph graph;
  ValueId value = graph.add_input({DType::f64, {4}}, "x");
  for (const std::string& op : ops) value = graph.add_node(unary(op), {value});
  graph.outputs.push_back({value, nullptr, kNone, false, 0, false});
  return graph;
}

std::vector<double> run(const Graph& graph, bool poison) {
  const Modes modes({poison, false});
  PartBackend backend;
  Comm comm;
  CollectiveQueue collective_queue(comm);
  Executable executable(graph, backend, collective_queue);
  const auto x = std::make_shared<Data>(TensorType{DType::f64, {4}}, nullptr, Shards{fresh(4, 1)});
  const BufferRef out = executable.run({x}, {}, {}).outputs[0][0];
  std::vector<double> elements;
  for (int64_t i = 0; i < at(out).size; ++i) elements.push_back(element(out, i));
  return elements;
}

bool has_nan(const std::vector<double>& elements) {
  return std::any_of(elements.begin(), elements.end(), [](double x) { return std::isnan(x); });
}

}  // namespace

TEST(every_mode_that_is_set_is_on_until_it_is_set_again) {
  for (const CheckModes one : {CheckModes{true, false, false}, {false, true, false}, {false, false, true}}) {
    {
      const Modes modes(one);
      CHECK(check_modes() == one);
    }
    CHECK(check_modes() == CheckModes{});
  }
}

TEST(poison_leaves_right_programs_alone) {
  CHECK_EQ(run(chain({"aten.neg", "aten.view", "aten.neg"}), true), (std::vector<double>{1, 1, 1, 1}));
}

TEST(poison_shows_a_read_beyond_the_end_of_a_shard) {
  CHECK(!has_nan(run(chain({"aten.neg", "aten.sin"}), false)));
  CHECK(has_nan(run(chain({"aten.neg", "aten.sin"}), true)));
}

TEST(poison_shows_a_read_after_the_last_use) { CHECK(has_nan(run(chain({"aten.neg", "aten.neg", "aten.cos"}), true))); }

TEST(poison_shows_what_a_collective_left_out) {
  PartBackend backend;
  Route forgetful;  // its one target lacks its last element
  forgetful.sources = {0, 1};
  const auto half = [](int64_t source, int64_t extent) {
    return Contribution{0, {{BoxCopy{source, source, {{0, extent}}, {0}, extent == 2}}}, {extent}, {2 * source}};
  };
  forgetful.targets.push_back({{4}, false, false, false, {{half(0, 2), half(1, 1)}}, {}});
  for (const bool poison : {false, true}) {
    const Modes modes({poison, false});
    const Shards halves = {fresh(2, 1), fresh(2, 1)};
    const BufferRef out = Transfer(backend, forgetful, DType::f64, Reduction::none, halves).finish()[0];
    CHECK_EQ(std::isnan(element(out, 3)), poison);
  }
}

TEST(meter_counts_memory_once_however_many_views_there_are) {
  const Modes modes({false, true});
  PartBackend backend;
  Comm comm;
  CollectiveQueue collective_queue(comm);
  const auto x = std::make_shared<Data>(TensorType{DType::f64, {4}}, nullptr, Shards{fresh(4, 1)});
  auto peak = [&](const std::vector<std::string>& ops) {
    Executable executable(chain(ops), backend, collective_queue);
    CHECK(executable.measured_peaks().empty());
    executable.run({x}, {}, {});
    return executable.measured_peaks().at(0).bytes;
  };
  CHECK_EQ(peak({"aten.view", "aten.view"}), 32);
  CHECK_EQ(peak({"aten.neg"}), 64);
  CHECK_EQ(peak({"aten.neg", "aten.neg", "aten.neg"}), 96);
  CHECK_EQ(peak({"aten.neg", "aten.view", "aten.neg"}), 96);
}

TEST(meter_counts_every_device_for_itself) {
  const Modes modes({false, true});
  PartBackend backend;
  Comm comm;
  CollectiveQueue collective_queue(comm);
  Graph graph;
  graph.mesh = Mesh::make({0, 1}, {2}, {"x"});
  const ShardingRef cut = intern({graph.mesh, {{{0}, 1}}, 0, Reduction::none}, {4});
  const ShardingRef whole = replicated(graph.mesh, 1);
  const ValueId x = graph.add_input({DType::f64, {4}}, "x");
  const ValueId gathered = graph.add_node(
      [] {
        Call made;
        made.op = collective_op(Collective::all_gather);
        made.args = {TensorArg{0}};
        made.inputs = made.outputs = {{DType::f64, {4}}};
        return seal(std::move(made));
      }(),
      {x});
  graph.inputs[0].physical = graph.values[x].sharding = cut;
  graph.values[gathered].sharding = whole;
  graph.outputs.push_back({gathered, nullptr, kNone, false, 0, false});
  Executable executable(graph, backend, collective_queue);
  const auto data = std::make_shared<Data>(TensorType{DType::f64, {4}}, cut, Shards{fresh(2, 1), fresh(2, 1)});
  executable.run({data}, {}, {});
  const auto peaks = executable.measured_peaks();  // its half, and the whole
  CHECK_EQ(peaks.size(), 2u);
  for (const MeasuredPeak& peak : peaks) CHECK(peak.bytes == 16 + 32 && peak.largest == std::vector<int64_t>({32, 16}));
}

}  // namespace spmdx
