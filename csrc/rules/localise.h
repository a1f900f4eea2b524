// SPDX-License-Identifier: Apache-2.0
// Localise functions: the few attributes that speak of sizes or positions.
#pragma once
#include "rules/rule.h"

namespace spmdx {

void sizes(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void random_box(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void random_place(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void diagonal_offset(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void arange_range(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void table_start(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void nll_start(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void place_box(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void embedding_box(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void attention_starts(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void attention_backward_starts(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void group_starts(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void ctc_start(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void window_start(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void group_norm_sizes(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void group_norm_backward_sizes(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void stencil_first(const Call&, const Boxes&, const Boxes&, std::vector<Arg>&);  // spatial.cpp
void rows_here(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);
void halo_parts(const Call&, const Boxes&, const Boxes&, std::vector<Arg>&);
void bias_size(const Call& call, const Boxes& inputs, const Boxes& outputs, std::vector<Arg>& args);

}  // namespace spmdx
