// SPDX-License-Identifier: Apache-2.0
// StableHLO: texts of small graphs, facts, and what is refused.
#include "base/error.h"
#include "check.h"
#include "emit/stablehlo.h"
#include "graph/text.h"

namespace spmdx {
namespace {

std::string body(const std::string& text) {
  const std::string whole = stablehlo(parse_graph(text));
  const size_t from = whole.find("{\n  ") + 2, to = whole.find("  \"func.return\"");
  return whole.substr(from, to - from);
}

std::string signature(const std::string& text) {
  const std::string whole = stablehlo(parse_graph(text));
  const size_t from = whole.find("main(") + 4;
  return whole.substr(from, whole.find(" {\n", from) - from);
}

std::string refusal(const std::string& text) {
  try {
    stablehlo(parse_graph(text));
  } catch (const ShardingError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(an_op_of_a_tensor_and_a_number_has_a_constant) {
  CHECK_EQ(body(R"(
    %0 = input "" f32[2, 3]
    %1 : f32[2, 3] = prims.mul(%0, 0.5)
    return %1
  )"),
           "  %v0 = \"stablehlo.constant\"() {value = dense<5.00000000000000000e-01> : tensor<2x3xf32>} : () -> "
           "tensor<2x3xf32>\n"
           "  %v1 = \"stablehlo.multiply\"(%arg0, %v0) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>\n");
}

TEST(numbers_that_are_not_finite_are_bits) {
  const auto constant = [](const std::string& type, const std::string& number) {
    const std::string text =
        body("%0 = input \"\" " + type + "[]\n%1 : " + type + "[] = prims.add(%0, " + number + ")\nreturn %1\n");
    const size_t from = text.find("dense<") + 6;
    return text.substr(from, text.find('>', from) - from);
  };
  CHECK_EQ(constant("f32", "inf"), "0x7F800000");
  CHECK_EQ(constant("f32", "-inf"), "0xFF800000");
  CHECK_EQ(constant("f32", "1e39"), "0x7F800000");
  CHECK_EQ(constant("f64", "nan").substr(0, 5), "0x7FF");
  CHECK_EQ(constant("bf16", "inf"), "0x7F80");
  CHECK_EQ(constant("f16", "70000.0"), "0x7C00");
  CHECK_EQ(constant("i64", "-3"), "-3");
}

TEST(products_of_sixteen_bits_are_added_up_in_more) {
  CHECK_EQ(body(R"(
    %0 = input "" bf16[2, 3]
    %1 = input "" bf16[3, 4]
    %2 : bf16[2, 4] = aten.mm(%0, %1)
    return %2
  )"),
           "  %v0 = \"stablehlo.dot_general\"(%arg0, %arg1) {dot_dimension_numbers = "
           "#stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = "
           "[1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision DEFAULT>, "
           "#stablehlo<precision DEFAULT>]} : (tensor<2x3xbf16>, tensor<3x4xbf16>) -> tensor<2x4xf32>\n"
           "  %v1 = \"stablehlo.convert\"(%v0) : (tensor<2x4xf32>) -> tensor<2x4xbf16>\n");
}

TEST(what_pytorch_would_raise_for_is_a_result) {
  const std::string index = R"(
    %0 = input "" f32[5, 3]
    %1 = input "" i64[2]
    %2 : f32[2, 3] = aten.index.Tensor(%0, [%1])
    return %2
  )";
  CHECK_EQ(signature(index), "(%arg0: tensor<5x3xf32>, %arg1: tensor<2xi64>) -> (tensor<2x3xf32>, tensor<i1>)");
  const std::string division = R"(
    %0 = input "" i64[5]
    %1 : i64[5] = prims.div(%0, %0)
    return %1
  )";
  CHECK_EQ(signature(division), "(%arg0: tensor<5xi64>) -> (tensor<5xi64>, tensor<i1>)");
}

TEST(what_is_not_written_is_refused_with_a_reason) {
  CHECK_EQ(refusal("%0 = input \"\" f32[5]\n%1 : f32[5] = aten.i0(%0)\nreturn %1\n"),
           "aten.i0 is not written as StableHLO: it has no row.");
  CHECK_EQ(refusal("%0 = input \"\" i64[5]\n%1 : i64[5] = prims.pow(%0, %0)\nreturn %1\n"),
           "prims.pow is not written as StableHLO: powers of integers are those of PyTorch.");
  CHECK_EQ(refusal("%0 = input \"\" f32[0, 2]\n%1 : f32[2] = prims.amax(%0, [0])\nreturn %1\n"),
           "prims.amax is not written as StableHLO: the extreme of no elements is an error, which no kernel raises.");
  CHECK_EQ(refusal("%0 = input \"\" c64[2]\n%1 : c64[2] = prims.neg(%0)\nreturn %1\n"),
           "StableHLO is not written for c64.");
}

}  // namespace spmdx
