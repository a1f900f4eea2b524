// SPDX-License-Identifier: Apache-2.0
// The thread of autograd that works for the device, and the end of the program, which waits for it.
#include "bridge/device/autograd_threads.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <thread>

#include "bridge/tensor/abstract.h"
#include "bridge/tensor/meta.h"

namespace spmdx::bridge {
namespace {

using AutogradEngine = torch::autograd::Engine;

std::atomic<bool> used = false;
constexpr std::chrono::seconds kPassPatience{1};  // with a hook that does not return, in a thread that dies with Python

struct Queues : AutogradEngine {
  static auto member() { return &Queues::device_ready_queues_; }
};

// PyTorch counts the devices at its first backward pass, which may have come before this device was there.
void add_thread() {
  AutogradEngine& engine = AutogradEngine::get_default_engine();
  engine.initialize_device_threads_pool();
  auto& queues = engine.*Queues::member();
  if (!queues.empty()) return;
  queues.push_back(std::make_shared<torch::autograd::ReadyQueue>());
  std::thread(&AutogradEngine::thread_init, &engine, 0, queues.back(), true).detach();
}

// A pass through that thread. What it worked on before has been let go then.
void run_a_backward_pass() {
  const Meta nothing{.sizes = {0}, .strides = {1}};
  const at::Tensor leaf = make_abstract(nothing), gradient = make_abstract(nothing);
  leaf.set_requires_grad(true);
  AutogradEngine::get_default_engine().execute({torch::autograd::impl::gradient_edge(leaf)}, {gradient}, false, false,
                                               true);
}

}  // namespace

void give_autograd_a_thread() noexcept {
  if (used.load(std::memory_order_relaxed)) return;
  static std::once_flag once;
  std::call_once(once, [] {
    try {
      add_thread();
      used = true;
    } catch (const std::exception&) {
      // In a forked child: PyTorch says so itself in backward.
    }
  });
}

void wait_for_autograd() {
  if (!used) return;
  // In a thread of its own, for which Python has nothing in store that would have to be let go in turn. Nobody asks for
  // an error: a step had failed, then.
  std::packaged_task<void()> pass(run_a_backward_pass);
  const std::future<void> done = pass.get_future();
  std::thread(std::move(pass)).detach();
  done.wait_for(kPassPatience);
}

}  // namespace spmdx::bridge
