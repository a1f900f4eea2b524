// SPDX-License-Identifier: Apache-2.0
// Ops on planes (pooling, upsampling, padding): batch and channels pass; spatial dims are cut in parts that exchange
// halos where the op is a stencil, and stay whole where not.
#pragma once
#include "rules/build/op_builder.h"

namespace spmdx::rules {

OpRule planes(const Call& call);
OpRule stencil(const Call& call);  // spmdx.stencil
OpRule halo(const Call& call);     // spmdx.halo

Values expand_stencil(Builder& builder, const Node& node);
void stencil_first(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void halo_parts(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

// The spatial dims of a stencil that some operand has cut.
struct CutDim {
  size_t spatial;
  int64_t parts;
};
std::vector<CutDim> cut_dims(OpBuilder& maths, const Call& call, const Values& inputs);
// The call as a spmdx.stencil, on operands of which those that the parts do not own have halos.
Values in_parts(OpBuilder& maths, const Call& call, Values inputs, const std::vector<CutDim>& cuts);

}  // namespace spmdx::rules
