// SPDX-License-Identifier: Apache-2.0
// Setting: read from PyTorch's globals and the thread's own state.
#include "bridge/replay/setting.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include "bridge/record/layouts/shapes.h"
#include "bridge/tensor/root.h"

namespace spmdx::bridge {

Setting current_setting() {
  Setting now;
  now.gradients = at::GradMode::is_enabled();
  now.inference = c10::InferenceMode::is_enabled();
  now.autocast_caches = at::autocast::is_autocast_cache_enabled();
  now.anomalies = torch::autograd::AnomalyMode::is_enabled();
  constexpr std::array devices = {kDeviceType, c10::DeviceType::CPU};
  for (size_t i = 0; i < devices.size(); ++i) {
    now.autocast[i] = at::autocast::is_autocast_enabled(devices[i]);
    now.autocast_dtypes[i] = at::autocast::get_autocast_dtype(devices[i]);
  }
  now.inference_settings = settings_of_inference();
  const auto& context = at::globalContext();
  for (const bool is_on :
       {context.deterministicAlgorithms(), context.userEnabledCuDNN(), context.benchmarkCuDNN(),
        context.deterministicCuDNN(), context.userEnabledFlashSDP(), context.userEnabledMemEfficientSDP(),
        context.userEnabledMathSDP(), context.userEnabledCuDNNSDP()})
    now.backends = now.backends << 1 | static_cast<uint64_t>(is_on);
  now.backends = now.backends << 8 | static_cast<uint64_t>(context.float32MatmulPrecision());
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  now.included = keys.included_.raw_repr();
  now.excluded = keys.excluded_.raw_repr();
  now.modes = c10::impl::TorchDispatchModeTLS::any_modes_set() || at::impl::torch_function_mode_enabled();
  return now;
}

}  // namespace spmdx::bridge
