// SPDX-License-Identifier: Apache-2.0
// What the parts of the simulated CUDA device share: queues (its streams), its memory, tensors over that memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace c10 {
class OperatorHandle;
}

namespace simulated {

inline constexpr c10::DeviceType kDevice = c10::DeviceType::CUDA;
inline constexpr c10::DeviceIndex kMostDevices = 4;
inline constexpr c10::StreamId kPool = 32;  // streams of a device besides its default stream, which is 0

class Queue;

// A position in a queue. What was enqueued before it has run when it is done.
struct Ticket {
  Queue* queue = nullptr;
  uint64_t position = 0;
  bool done() const;
  void wait() const;     // the calling thread waits
  void rethrow() const;  // the error of a kernel of that queue, once
};

// One stream: a thread that runs closures in order.
class Queue {
 public:
  // A kernel sleeps for the stream's delay before it runs; the simulator's own work does not.
  enum class Kind { kKernel, kOwn };

  Ticket enqueue(std::string name, std::function<void()> work, Kind kind = Kind::kKernel);
  void wait_for(Ticket other);  // the queue waits, not the calling thread
  Ticket tail();
  void synchronize();  // waits for all that is enqueued, then throws what a kernel threw
  void set_delay(int64_t microseconds) { delay_us_ = microseconds; }

 private:
  friend struct Ticket;
  struct Entry {
    std::string name;
    std::function<void()> work;
    Kind kind;
  };
  void run();
  void run(Entry& entry);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;
  uint64_t enqueued_ = 0, completed_ = 0;
  std::exception_ptr error_;
  std::atomic<int64_t> delay_us_{0};
  std::thread thread_;
};

c10::DeviceIndex device_count();
Queue& queue_of(const c10::Stream& stream);
Queue& current_queue(c10::Device device);
void synchronize(c10::DeviceIndex device);  // all streams

// The address at which kernels reach device memory. Tensors hold another, which nobody can read or write.
void* host_address(const void* device_address);
c10::DeviceIndex device_of_address(const void* device_address);  // -1: not an address of a device
void record_use(const c10::DataPtr& memory, Queue& user);
c10::Allocator* device_allocator();
int64_t allocated_bytes(c10::DeviceIndex device);

c10::Allocator* pinned_allocator();
// Keeps the pinned memory in which the address lies; null if it is not pinned.
std::shared_ptr<void> keep_pinned(const void* address);

// Takes the operator's arguments from the stack and returns its results, whose bytes may come later.
torch::jit::Stack call(const c10::OperatorHandle& op, torch::jit::Stack& stack);
// Operators that made the calling thread wait, since only their kernels know the shapes of their results.
std::vector<std::string> blocking_operators();

// A tensor with the sizes, strides, offset and lazy bits of `like` over a storage of the same bytes.
at::Tensor tensor_over(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like);
// A CPU tensor over the bytes of a device or CPU tensor. It owns nothing.
at::Tensor host_alias(const at::Tensor& tensor);
at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype, c10::Device device);
// Gives the tensor new sizes and strides, and more memory if it needs more.
void resize(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides);

}  // namespace simulated
