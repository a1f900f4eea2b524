// SPDX-License-Identifier: Apache-2.0
// Backend: what the runtime needs of the owner of buffers and kernels. The bridge implements it.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace spmdx {

// Opaque, shared, and never written after it was produced (but for donation).
class Buffer {
 public:
  virtual ~Buffer() = default;
};
using BufferRef = std::shared_ptr<Buffer>;
// The shards of one value that this process holds, in order of their distinct index.
using Shards = std::vector<BufferRef>;

union Param {
  double real;
  int64_t integer;
};

// One op with its arguments fixed, for one set of equal local shapes. Called by one thread at a time.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // `params` are the node's own. `outputs` has one slot per result of the call. `donated` is the index of an
  // operand that nobody reads afterwards and whose buffer the result may overwrite, or -1.
  virtual void run(std::span<const BufferRef> inputs, std::span<const Param> params, std::span<BufferRef> outputs,
                   int donated) = 0;
};

// Where elements lie: equal ids are the same memory.
struct Memory {
  const void* id = nullptr;
  int64_t bytes = 0;
};

// Kernels of one stream run one after the other, those of two streams at the same time, unless one waits for an event
// of the other. A backend whose kernels return when they have ended needs none of this.
enum class Stream : uint8_t { compute, messages };
using Event = std::shared_ptr<const void>;

struct Compilers;

class Backend {
 public:
  virtual ~Backend() = default;
  // The calling thread is on this stream from now on; at first it is on `compute`.
  virtual void use_stream(Stream) {}
  // An event after everything that the thread's stream was given so far.
  virtual Event record_event() { return nullptr; }
  // What the thread's stream is given from now on runs after the event.
  virtual void wait_event(const Event&) {}

  // What the program set for the calling thread and kernels heed, as the number of threads they use; and the same as
  // another thread has it, from now on. So a kernel computes the same bits whichever thread runs it.
  virtual int64_t settings_of_thread() { return 0; }
  virtual void use_settings(int64_t) {}

  // `local` has localised arguments and local types. Thread-safe.
  virtual std::unique_ptr<Kernel> prepare(const Call& local) = 0;

  // Make kernels of many ops (runtime/segments/compiler.h); null: each op has its own. Thread-safe.
  virtual std::shared_ptr<const Compilers> compilers() { return nullptr; }
  // The same numbers as if they had been rounded otherwise: floats are smaller by up to an ulp of themselves, as `seed`
  // draws it; what is exact is the same buffer.
  virtual BufferRef perturbed(const BufferRef& buffer, uint64_t /*seed*/) { return buffer; }
  // Whether `found` is `expected` but for rounding: so many ulps of what is largest there, and so many times what it
  // changes when all that it was made of is perturbed. `perturbed` is that other result; null if there is none.
  virtual bool is_close(const BufferRef& found, const BufferRef& expected, const BufferRef& /*perturbed*/) {
    return digest(found) == digest(expected);
  }

  virtual BufferRef empty(DType dtype, const Shape& shape) = 0;
  // Filled with the identity of the reduction: 0, 1, lowest, highest.
  virtual BufferRef identity(DType dtype, const Shape& shape, Reduction reduction) = 0;
  // A view of a part of `buffer`; ranges are relative to it.
  virtual BufferRef narrow(const BufferRef& buffer, const Box& box) = 0;
  // The same elements in row-major order; a view where they lie in that order.
  virtual BufferRef reshape(const BufferRef& buffer, const Shape& shape) = 0;
  // dst[dst_starts …] = src[src_box]; extents are src_box's.
  virtual void copy_box(const BufferRef& dst, const std::vector<int64_t>& dst_starts, const BufferRef& src,
                        const Box& src_box) = 0;
  // dst = the parts, one after the other along `dim`. REQUIRES: they fill it.
  virtual void concatenate(const BufferRef& dst, std::span<const BufferRef> parts, size_t dim) = 0;
  // dst = dst ∘ src, element by element; 16-bit floats accumulate as the buffer's own dtype does in eager.
  virtual void reduce_into(const BufferRef& dst, const BufferRef& src, Reduction reduction) = 0;
  // Sum (or other reduction) of equal buffers in order, accumulated in f32 for 16-bit floats; a new buffer. `ours`: one
  // of the first two that nobody else sees, and which may become the result; -1: none is.
  virtual BufferRef reduce(std::span<const BufferRef> buffers, Reduction reduction, int ours = -1) = 0;
  // Whether nobody else holds the buffer or sees its memory.
  virtual bool is_alone(const BufferRef&) { return false; }
  // The same data in storage of its own, no larger than needed; `buffer` itself if it already is.
  virtual BufferRef compact(const BufferRef& buffer) = 0;
  // Whether shards that live and die together fill one memory that is small, so that none of them needs its own.
  virtual bool fill_small_memory(std::span<const BufferRef>) { return false; }
  virtual int64_t bytes(const BufferRef& buffer) = 0;
  // Equal for equal elements, here and in other processes.
  virtual uint64_t digest(const BufferRef& buffer) = 0;

  // ---- for the debug modes of check.h ----
  // The memory behind a buffer, shared by its views.
  virtual Memory memory(const BufferRef& buffer) { return {buffer.get(), bytes(buffer)}; }
  // Overwrites with garbage the memory that only `buffer` refers to; returns whether there was any.
  virtual bool poison(const BufferRef&) { return false; }
  // The same data between two bands of garbage; `buffer` itself where others see its memory.
  virtual BufferRef fence(const BufferRef& buffer) { return buffer; }
};

}  // namespace spmdx
