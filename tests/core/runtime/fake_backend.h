// SPDX-License-Identifier: Apache-2.0
// A backend whose buffers are vectors of doubles, and values of known content, for tests of the runtime.
#pragma once
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "runtime/data/backend.h"
#include "sharding/sharding.h"
#include "sharding/shards.h"

namespace spmdx::test {

struct Doubles final : Buffer {
  Shape shape;
  std::vector<double> data;
};
using Array = std::shared_ptr<Doubles>;

inline Array array(Shape shape, double value = 0) {
  auto made = std::make_shared<Doubles>();
  made->data.assign(static_cast<size_t>(numel(shape)), value);
  made->shape = std::move(shape);
  return made;
}
inline const Doubles& at(const BufferRef& buffer) { return static_cast<const Doubles&>(*buffer); }

// Calls visit(offset in `outer`, offset in the box) for every element of a box, in row-major order.
template <class Visit>
void each(const Shape& outer, const Box& box, const Visit& visit) {
  int64_t count = 1;
  for (const Range& range : box) count *= range.extent;
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, offset = 0, stride = 1;
    for (size_t d = box.size(); d-- > 0;) {
      offset += (box[d].start + rest % box[d].extent) * stride;
      rest /= box[d].extent;
      stride *= outer[d];
    }
    visit(offset, i);
  }
}

inline std::atomic<int> kernel_runs = 0, kernel_donations = 0;

class FakeKernel final : public Kernel {
 public:
  explicit FakeKernel(const Call& call) : call_(call) {}
  void run(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs,
           int donated) override {
    ++kernel_runs;
    kernel_donations += donated >= 0;
    if (call_.op == "aten.relu") throw std::runtime_error("relu is out of order");
    if (call_.op == "aten.sigmoid") std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Array result = array(call_.outputs[0].shape);
    for (size_t i = 0; i < result->data.size(); ++i) {
      double value = params.empty() ? 0 : params[0].real;
      for (const BufferRef& input : inputs) value += at(input).data.at(i);
      result->data[i] = value;
    }
    outputs[0] = result;
  }

 private:
  Call call_;
};

class FakeBackend : public Backend {
 public:
  std::unique_ptr<Kernel> prepare(const Call& local) override { return std::make_unique<FakeKernel>(local); }
  BufferRef empty(DType, const Shape& shape) override { return array(shape, std::nan("")); }
  BufferRef identity(DType, const Shape& shape, Reduction reduction) override {
    return array(shape, reduction == Reduction::max ? -INFINITY : 0);
  }
  BufferRef narrow(const BufferRef& buffer, const Box& box) override {
    Shape shape;
    for (const Range& range : box) shape.push_back(range.extent);
    Array part = array(shape);
    each(at(buffer).shape, box, [&](int64_t from, int64_t to) { part->data[to] = at(buffer).data[from]; });
    return part;
  }
  BufferRef reshape(const BufferRef& buffer, const Shape& shape) override {
    Array made = array(shape);
    made->data = at(buffer).data;
    return made;
  }
  void copy_box(const BufferRef& dst, const std::vector<int64_t>& starts, const BufferRef& src,
                const Box& box) override {
    const Array part = std::static_pointer_cast<Doubles>(narrow(src, box));
    Box target = box;
    for (size_t d = 0; d < target.size(); ++d) target[d].start = starts[d];
    each(at(dst).shape, target,
         [&](int64_t to, int64_t from) { static_cast<Doubles&>(*dst).data[to] = part->data[from]; });
  }
  void concatenate(const BufferRef& dst, std::span<const BufferRef> parts, size_t dim) override {
    std::vector<int64_t> starts(at(dst).shape.size(), 0);
    for (const BufferRef& part : parts) {
      copy_box(dst, starts, part, whole_box(at(part).shape));
      starts[dim] += at(part).shape[dim];
    }
  }
  void reduce_into(const BufferRef& dst, const BufferRef& src, Reduction reduction) override {
    auto& target = static_cast<Doubles&>(*dst).data;
    for (size_t i = 0; i < target.size(); ++i)
      target[i] = reduction == Reduction::max ? std::max(target[i], at(src).data[i]) : target[i] + at(src).data[i];
  }
  BufferRef reduce(std::span<const BufferRef> buffers, Reduction reduction, int ours) override {
    Array total = std::make_shared<Doubles>(at(buffers[0]));
    for (const BufferRef& buffer : buffers.subspan(1)) reduce_into(total, buffer, reduction);
    if (ours < 0) return total;
    static_cast<Doubles&>(*buffers[ours]).data = total->data;
    return buffers[ours];
  }
  bool is_alone(const BufferRef& buffer) override { return buffer.use_count() == 1; }
  BufferRef compact(const BufferRef& buffer) override { return buffer; }
  int64_t bytes(const BufferRef& buffer) override { return static_cast<int64_t>(at(buffer).data.size() * 8); }
  uint64_t digest(const BufferRef& buffer) override {
    uint64_t sum = 0;
    for (const double value : at(buffer).data) sum = sum * 31 + std::hash<double>{}(value);
    return sum;
  }
};

inline ShardingRef sharding(const MeshRef& mesh, const Shape& shape, std::vector<SubAxisList> dims,
                            SubAxisSet partial = 0, Reduction reduction = Reduction::none) {
  Sharding made{mesh, {}, partial, reduction};
  for (auto& sub_axes : dims) made.dims.push_back({sub_axes, 1});
  return intern(made, shape);
}

// Element i of the whole value holds i; of a partial value, the digits 0 and 1 hold parts that add up to it.
inline Shards shards_of(const Shape& shape, ShardingRef layout) {
  const Mesh& mesh = *layout->mesh;
  Array whole = array(shape);
  for (size_t i = 0; i < whole->data.size(); ++i) whole->data[i] = static_cast<double>(i);
  Shards shards;
  FakeBackend backend;
  for (int64_t i = 0; i < num_distinct(mesh, layout->used()); ++i) {
    const int64_t position = representative(mesh, layout->used(), i);
    BufferRef shard = backend.narrow(whole, local_box(*layout, shape, position));
    const int64_t terms = num_distinct(mesh, layout->partial), term = distinct_index(mesh, layout->partial, position);
    for (double& value : static_cast<Doubles&>(*shard).data)
      if (terms > 1) value = term == 0 ? value - 10.0 * (terms - 1) : 10;
    shards.push_back(shard);
  }
  return shards;
}

// The elements of every shard.
inline std::vector<std::vector<double>> contents(const Shards& shards) {
  std::vector<std::vector<double>> all;
  for (const BufferRef& shard : shards) all.push_back(at(shard).data);
  return all;
}

}  // namespace spmdx::test
