// SPDX-License-Identifier: Apache-2.0
// The device's GeneratorImpl: state is (seed, draws so far).
#include "bridge/tensor/generator.h"

#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/ops/empty.h>

#include "base/error.h"
#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {
namespace {

class DrawGenerator final : public c10::GeneratorImpl {
 public:
  DrawGenerator() : GeneratorImpl(c10::Device(kDeviceType, 0), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

  // As of every generator of PyTorch: the caller of these holds `mutex_`.
  void set_current_seed(uint64_t seed) override { state_ = {seed, 0}; }
  uint64_t current_seed() const override { return state_.seed; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return state_.seed;
  }
  void set_offset(uint64_t offset) override { state_.draw = offset; }
  uint64_t get_offset() const override { return state_.draw; }
  static c10::DeviceType device_type() { return kDeviceType; }

  void set_state(const c10::TensorImpl& state) override {
    if (state.numel() != sizeof(Draw) || state.itemsize() != 1 || !state.is_contiguous()) {
      throw ShardingError(
          "set_state: the tensor is no state of an spmdx generator. Expected 16 bytes on the CPU. Pass "
          "what get_state() returned.");
    }
    std::memcpy(&state_, state.data(), sizeof(Draw));
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor bytes = at::empty({sizeof(Draw)}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
    std::memcpy(bytes.mutable_data_ptr(), &state_, sizeof(Draw));
    return bytes.getIntrusivePtr();
  }
  // Takes `mutex_` itself.
  Draw next() {
    std::lock_guard lock(mutex_);
    Draw draw = state_;
    ++state_.draw;
    return draw;
  }

 private:
  DrawGenerator* clone_impl() const override {
    auto* copy = new DrawGenerator;
    copy->state_ = state_;
    return copy;
  }
  Draw state_{c10::default_rng_seed_val, 0};
};

}  // namespace

Draw next_draw(const std::optional<at::Generator>& generator) {
  const at::Generator& used = generator && generator->defined() ? *generator : default_generator();
  if (used.device().type() != kDeviceType) {
    throw std::runtime_error("Expected a 'spmdx' device type for generator but found '" +
                             c10::DeviceTypeName(used.device().type(), true) + "'");
  }
  return static_cast<DrawGenerator*>(used.unsafeGetGeneratorImpl())->next();
}

const at::Generator& default_generator() {
  static const auto* generator = new at::Generator(at::make_generator<DrawGenerator>());
  return *generator;
}

at::Generator new_generator() { return at::make_generator<DrawGenerator>(); }

Draw current_draw() {
  at::Generator generator = default_generator();
  const std::lock_guard lock(generator.mutex());
  return {generator.current_seed(), generator.get_offset()};
}

void set_current_draw(const Draw& draw) {
  at::Generator generator = default_generator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(draw.seed);
  generator.set_offset(draw.draw);
}

void manual_seed(uint64_t seed) { set_current_draw({seed, 0}); }

}  // namespace spmdx::bridge
