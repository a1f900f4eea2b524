// SPDX-License-Identifier: Apache-2.0
// Records ops of manual regions (spmdx.shard_map) that ATen does not have.
#include "bridge/ops/manual.h"

#include "bridge/record/operands.h"
#include "bridge/recorder/recorder.h"
#include "bridge/step/flush.h"
#include "bridge/step/long_traces.h"
#include "bridge/tensor/calls.h"

namespace spmdx::bridge {

at::Tensor permute_rows(const at::Tensor& tensor, int64_t dim, const std::vector<int64_t>& sources) {
  Recorder::Lock lock;
  Recorder& recorder = Recorder::instance();
  check_failed();
  static const char op = 0;
  end_if_long(&op);
  const ValueId value = operand(tensor);
  const TensorType type = recorder.type(value);
  return wrap_value(recorder.record(make_call("spmdx.permute_rows", {type}, {dim, sources}, type), {value}, {}));
}

}  // namespace spmdx::bridge
