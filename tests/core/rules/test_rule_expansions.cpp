// SPDX-License-Identifier: Apache-2.0
// Typed expansions of ops: what they consist of, and the types of their results.
#include "check.h"
#include "rules/rule_text.h"

using namespace spmdx;
using namespace spmdx::test;

TEST(rules_expansions) {
  CHECK_EQ(expansion("f32[8]; f32[4, 6]; f32[6, 8]", "f32[4, 8]", "aten.addmm(%0, %1, %2, 1, 1)"), "mm add.Tensor");
  CHECK_EQ(expansion("f32[8]; f32[4, 6]; f32[6, 8]", "f32[4, 8]", "aten.addmm(%0, %1, %2, 0, real#0)"),
           "mm mul.Scalar");
  CHECK_EQ(expansion("bf16[4, 6]", "bf16[4]", "aten.mean.dim(%0, [1], false, none)"),
           "sum.dim_IntList div.Scalar _to_copy");
  CHECK_EQ(expansion("f32[4, 6]", "f32[]", "aten.linalg_vector_norm(%0, 2, none, false, none)"),
           "mul.Tensor sum.dim_IntList sqrt");
  CHECK_EQ(expansion("f32[4, 6]", "f32[4, 6]", "aten._log_softmax(%0, 1, false)"),
           "amax sub.Tensor exp sum.dim_IntList log sub.Tensor");
  expansion("bf16[4, 6]", "f32[4, 6]", "aten._softmax(%0, 1, true)");
  expansion("f32[4, 6]; f32[4, 6]", "f32[4, 6]", "aten._softmax_backward_data(%0, %1, 1, dtype:f32)");
  expansion("f32[4, 6]; f32[4, 6]", "f32[4, 6]", "aten._log_softmax_backward_data(%0, %1, 1, dtype:f32)");
  expansion("f32[4, 6]", "f32[4]; f32[4]", "aten.var_mean.correction(%0, [1], 1, false)");
  expansion("f32[4, 6]", "f32[4, 1]", "aten.logsumexp(%0, [1], true)");
  expansion("f32[9, 8]; i64[4, 5]", "f32[4, 5, 8]", "aten.embedding(%0, %1, -1, false, false)");
}

TEST(rules_norm_expansions) {
  for (const std::string& t : {std::string("f32"), std::string("bf16")}) {
    expansion(t + "[4, 5, 6]; " + t + "[6]; " + t + "[6]", t + "[4, 5, 6]; f32[4, 5, 1]; f32[4, 5, 1]",
              "aten.native_layer_norm(%0, [6], %1, %2, real#0)");
    expansion(t + "[4, 6]; " + t + "[4, 6]; f32[4, 1]; f32[4, 1]; " + t + "[6]; " + t + "[6]",
              t + "[4, 6]; " + t + "[6]; " + t + "[6]",
              "aten.native_layer_norm_backward(%0, %1, [6], %2, %3, %4, %5, [true, true, true])");
    expansion(t + "[4, 3, 5]; f32[3]; f32[3]; f32[3]; f32[3]", t + "[4, 3, 5]; f32[3]; f32[3]; f32[3]; f32[3]",
              "aten._native_batch_norm_legit_functional(%0, %1, %2, %3, %4, true, real#0, real#1)");
    expansion(t + "[4, 3, 5]; " + t + "[4, 3, 5]; f32[3]; f32[3]; f32[3]; f32[3]; f32[3]",
              t + "[4, 3, 5]; f32[3]; f32[3]",
              "aten.native_batch_norm_backward(%0, %1, %2, %3, %4, %5, %6, true, real#0, [true, true, true])");
  }
}

TEST(rules_loss_expansions) {
  CHECK_EQ(expansion("f32[4, 8]; f32[4, 8]", "f32[]", "aten.mse_loss(%0, %1, 1)"),
           "mse_loss sum.dim_IntList div.Scalar");
  expansion("f32[]; f32[4, 8]; f32[4, 8]", "f32[4, 8]", "aten.mse_loss_backward(%0, %1, %2, 1)");
  expansion("f32[4, 8]; f32[4, 8]", "f32[]", "aten.smooth_l1_loss(%0, %1, 1, real#0)");
  expansion("f32[4, 8]; f32[4, 8]; f32[4, 8]", "f32[]", "aten.binary_cross_entropy(%0, %1, %2, 1)");
  // Without a reduction there is nothing to expand.
  CHECK(program("f32[4, 8]; f32[4, 8]", "f32[4, 8]", "aten.mse_loss(%0, %1, 0)").rule->expand == nullptr);
  for (const char* reduction : {"0", "1", "2"})
    for (const bool weighted : {false, true}) {
      const std::string none = reduction[0] == '0' ? "4" : "", weight = weighted ? "; f32[9]" : "";
      const std::string w = weighted ? "%2" : "none", bw = weighted ? "%3, " : "none, ";
      expansion("bf16[4, 9]; i64[4]" + (weighted ? std::string("; bf16[9]") : ""), "bf16[" + none + "]; bf16[]",
                "aten.nll_loss_forward(%0, %1, " + w + ", " + reduction + ", -100)");
      expansion("f32[" + none + "]; f32[4, 9]; i64[4]" + weight + "; f32[]", "f32[4, 9]",
                "aten.nll_loss_backward(%0, %1, %2, " + bw + reduction + ", -100, " + (weighted ? "%4" : "%3") + ")");
    }
  expansion("f32[2, 9, 4, 4]; i64[2, 4, 4]", "f32[]; f32[]", "aten.nll_loss2d_forward(%0, %1, none, 1, -100)");
  CHECK_EQ(expansion("f32[4]; f32[5]; f32[]; f32[]", "f32[4]; f32[5]; f32[]",
                     "aten._amp_foreach_non_finite_check_and_unscale([%0, %1], %2, %3)"),
           "_amp_foreach_non_finite_check_and_unscale _amp_foreach_non_finite_check_and_unscale stack amax");
}
