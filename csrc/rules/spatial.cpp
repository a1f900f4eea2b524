// SPDX-License-Identifier: Apache-2.0
// Rules of ops on planes (pooling, upsampling, padding): batch and channels pass, spatial dims stay whole.
#include "base/error.h"
#include "rules/families.h"

namespace spmdx {
namespace {

// Spatial dims have sizes of their own in each tensor.
OpRule planes(const Call& call, size_t spatial) {
  const size_t rank = call.inputs.at(0).shape.size();
  internal_check(rank >= spatial && spatial <= 3, "fewer dims than spatial dims in " + call.op);
  Letters letters;
  char first = 'A';
  for (size_t i = 0; i < call.inputs.size() + call.outputs.size(); ++i) {
    std::string text = dims(rank - spatial);
    for (size_t d = 0; d < spatial; ++d, ++first) text += {first, '!'};
    (i < call.inputs.size() ? letters.inputs : letters.outputs).push_back(text);
  }
  return from_letters(call, letters);
}

}  // namespace

OpRule planes_1(const Call& call) { return planes(call, 1); }
OpRule planes_2(const Call& call) { return planes(call, 2); }
OpRule planes_3(const Call& call) { return planes(call, 3); }

}  // namespace spmdx
