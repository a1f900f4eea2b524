// SPDX-License-Identifier: Apache-2.0
// Fused layers: the batch passes; all other dims, and all weights, have no factor.
#include "graph/args.h"
#include "rules/build/letters.h"
#include "rules/rule/rule.h"

namespace spmdx::rules {
namespace {

// A mask of type 0 is one matrix for all sequences. A mask of type 1 has a row per sequence, and one of type 2 a matrix
// per sequence and head, so their first dim is the batch.
bool is_mask_by_sequence(const Call& call, size_t mask_type) { return integer(call, mask_type, 0) > 0; }

// The first `sequences` operands begin with the batch; `mask` and `mask_type` are arguments.
OpRule by_sequence(const Call& call, size_t sequences, size_t mask, size_t mask_type) {
  const auto whole_but_first = [](const TensorType& type) { return "b" + std::string(type.shape.size() - 1, '_'); };
  Letters letters;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const bool first =
        i < sequences || (static_cast<int>(i) == operand(call, mask) && is_mask_by_sequence(call, mask_type));
    letters.inputs.push_back(first ? whole_but_first(call.inputs[i]) : std::string(call.inputs[i].shape.size(), '_'));
  }
  for (const TensorType& type : call.outputs) letters.outputs.push_back(produced(type) ? whole_but_first(type) : "");
  return from_letters(call, letters);
}

}  // namespace

// (src, …, mask, mask_type, …): the mask is argument 18.
OpRule encoder_layer(const Call& call) { return by_sequence(call, 1, 18, 19); }

// (query, key, value, …, mask, need_weights, average, mask_type): the mask is argument 9.
OpRule multi_head_attention(const Call& call) { return by_sequence(call, 3, 9, 12); }

}  // namespace spmdx::rules
