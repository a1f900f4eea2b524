// SPDX-License-Identifier: Apache-2.0
// Gives autograd a thread for the device, and waits for that thread at the end of the program.
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
constexpr std::chrono::seconds kPassPatience{1};  // how long to wait for a hook that may never return

// Gives access to a protected member of the engine.
struct Queues : AutogradEngine {
  static auto member() { return &Queues::device_ready_queues_; }
};

// PyTorch starts a thread for each device at its first backward pass. If that came before this device was registered,
// the device has no thread, and gets one here.
void add_thread() {
  AutogradEngine& engine = AutogradEngine::get_default_engine();
  engine.initialize_device_threads_pool();
  auto& queues = engine.*Queues::member();
  if (!queues.empty()) return;
  queues.push_back(std::make_shared<torch::autograd::ReadyQueue>());
  std::thread(&AutogradEngine::thread_init, &engine, 0, queues.back(), true).detach();
}

// Runs a backward pass through that thread. When it ends, the thread has released what it worked on before.
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
      // This is a forked child: PyTorch itself throws in backward then.
    }
  });
}

void wait_for_autograd() {
  if (!used) return;
  // The pass is started by a new thread, which itself holds no Python objects. An error of the pass is ignored: it
  // comes from a step that has failed.
  std::packaged_task<void()> pass(run_a_backward_pass);
  const std::future<void> done = pass.get_future();
  std::thread(std::move(pass)).detach();
  done.wait_for(kPassPatience);
}

}  // namespace spmdx::bridge
