// SPDX-License-Identifier: Apache-2.0
// Queues: the streams of the simulated CUDA device. Each is a thread that runs closures in order.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "simulated.h"

namespace simulated {
namespace {

using Streams = std::array<Queue, kPool + 1>;

// SIMULATED_CUDA_DELAY_US: microseconds for each stream by its id; the last is for all further ones.
void read_delays(Streams& streams) {
  const char* text = std::getenv("SIMULATED_CUDA_DELAY_US");
  std::istringstream values(text ? text : "0");
  std::string value = "0";
  for (Queue& queue : streams) {
    std::getline(values, value, ',');
    queue.set_delay(std::atoll(value.c_str()));
  }
}

std::array<Streams, kMostDevices>& all_streams() {
  static auto* streams = [] {
    auto* made = new std::array<Streams, kMostDevices>;  // never freed: their threads run to the end
    for (Streams& of_device : *made) read_delays(of_device);
    return made;
  }();
  return *streams;
}

}  // namespace

bool Ticket::done() const {
  if (!queue) return true;
  std::lock_guard lock(queue->mutex_);
  return queue->completed_ >= position;
}

void Ticket::wait() const {
  if (!queue) return;
  std::unique_lock lock(queue->mutex_);
  queue->changed_.wait(lock, [this] { return queue->completed_ >= position; });
}

void Ticket::rethrow() const {
  if (!queue) return;
  std::unique_lock lock(queue->mutex_);
  const std::exception_ptr error = std::exchange(queue->error_, nullptr);
  lock.unlock();
  if (error) std::rethrow_exception(error);
}

Ticket Queue::enqueue(std::string name, std::function<void()> work, Kind kind) {
  std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  entries_.push_back({std::move(name), std::move(work), kind});
  changed_.notify_all();
  return {this, ++enqueued_};
}

void Queue::wait_for(Ticket other) {
  if (other.queue && other.queue != this) enqueue("wait", [other] { other.wait(); }, Kind::kOwn);
}

Ticket Queue::tail() {
  std::lock_guard lock(mutex_);
  return {this, enqueued_};
}

void Queue::synchronize() {
  const Ticket last = tail();
  last.wait();
  last.rethrow();
}

void Queue::run() {
  at::NoGradGuard no_grad;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !entries_.empty(); });
    Entry entry = std::move(entries_.front());
    entries_.pop_front();
    lock.unlock();
    run(entry);
    entry = {};
    lock.lock();
    ++completed_;
    changed_.notify_all();
  }
}

void Queue::run(Entry& entry) try {
  if (entry.kind == Kind::kKernel && delay_us_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_us_));
  entry.work();
} catch (const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  std::cerr << "simulated_cuda: " << entry.name
            << " failed: " << (of_torch ? of_torch->what_without_backtrace() : error.what()) << std::endl;
  std::lock_guard lock(mutex_);
  if (!error_) error_ = std::current_exception();
}

c10::DeviceIndex device_count() {
  static const int count = [] {
    const char* text = std::getenv("SIMULATED_CUDA_DEVICES");
    return std::clamp(text ? std::atoi(text) : 1, 1, static_cast<int>(kMostDevices));
  }();
  return static_cast<c10::DeviceIndex>(count);
}

Queue& queue_of(const c10::Stream& on) { return all_streams().at(on.device_index()).at(on.id()); }

Queue& current_queue(c10::Device device) { return queue_of(c10::impl::getDeviceGuardImpl(kDevice)->getStream(device)); }

void synchronize(c10::DeviceIndex device) {
  for (Queue& queue : all_streams().at(device)) queue.synchronize();
}

}  // namespace simulated
