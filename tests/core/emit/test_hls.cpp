// SPDX-License-Identifier: Apache-2.0
// Graphs as C++ for high-level synthesis: stages, streams, constants and estimates.
#include <algorithm>

#include "check.h"
#include "emit/hls.h"
#include "graph/text.h"

namespace spmdx {
namespace {

using emit::hls::HlsOptions;
using emit::hls::number_named;

constexpr const char* kProduct =
    "%0 = input \"x\" f32[2, 8]\n"
    "%1 = input \"w\" f32[8, 4]\n"
    "%2 : f32[2, 4] = aten.mm(%0, %1)\n"
    "%3 : f32[2, 4] = prims.maximum(%2, 0.0)\n"
    "return %3\n";

HlsProject project_of(const std::string& text, const std::string& number = "float", int64_t unroll = 4,
                      const std::map<int64_t, std::vector<double>>& constants = {}) {
  HlsOptions options;
  options.number = number_named(number);
  options.unroll = unroll;
  return hls_project(parse_graph(text), constants, options);
}

std::vector<double> counted(int64_t count) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(static_cast<double>(i));
  return numbers;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// The function of a stage.
std::string stage(const HlsProject& project, const std::string& name) {
  const std::string& text = project.files.at("top.cpp");
  const size_t start = text.find("static void " + name + "(");
  return start == text.npos ? "" : text.substr(start, text.find("\n}\n", start) + 3 - start);
}

int64_t cycles(const HlsProject& project, const std::string& name) {
  for (const auto& one : project.estimate.stages)
    if (one.name == name) return one.cycles;
  return -1;
}

}  // namespace

TEST(hls_an_elementwise_stage_is_one_loop) {
  const std::string text =
      "%0 = input \"x\" f32[2, 4]\n"
      "%1 : f32[2, 4] = prims.mul(%0, 0.5)\n"
      "%2 : f32[2, 4] = prims.exp(%1)\n"
      "return %2\n";
  CHECK_EQ(stage(project_of(text), "mul_1"),
           "static void mul_1(hls::stream<number_t>& s0, hls::stream<number_t>& s2) {\n"
           "  STAGE(1);\n"
           "  LOOP(1, 13);\n"
           "  for (int i0 = 0; i0 < 2; ++i0) {\n"
           "    for (int i1 = 0; i1 < 4; ++i1) {\n"
           "#pragma HLS PIPELINE II=1\n"
           "      const number_t v0 = s0.read();\n"
           "      const number_t v1 = number_t(v0 * acc_t(0.5));\n"
           "      const number_t v2 = number_t(exp_of<number_t>(v1));\n"
           "      s2.write(v2);\n"
           "      STEP;\n"
           "    }\n"
           "  }\n"
           "  DRAIN;\n"
           "  LEAVE;\n"
           "}\n");
}

TEST(hls_the_top_function_connects_stages_by_streams) {
  const std::string text = project_of(kProduct, "float", 4, {{1, counted(32)}}).files.at("top.cpp");
  CHECK_EQ(text.substr(text.find("void top(")),
           "void top(const number_t* in0, number_t* out0) {\n"
           "#pragma HLS INTERFACE m_axi port=in0 offset=slave bundle=in0 depth=16\n"
           "#pragma HLS INTERFACE s_axilite port=in0\n"
           "#pragma HLS INTERFACE m_axi port=out0 offset=slave bundle=out0 depth=8\n"
           "#pragma HLS INTERFACE s_axilite port=out0\n"
           "#pragma HLS INTERFACE s_axilite port=return\n"
           "#pragma HLS DATAFLOW\n"
           "  hls::stream<number_t> s0(\"s0\");\n"
           "#pragma HLS STREAM variable=s0 depth=2\n"
           "  hls::stream<acc_t> s1(\"s1\");\n"
           "#pragma HLS STREAM variable=s1 depth=2\n"
           "  hls::stream<number_t> s2(\"s2\");\n"
           "#pragma HLS STREAM variable=s2 depth=2\n"
           "  load_0(in0, s0);\n"
           "  mm_1(s0, s1);\n"
           "  maximum_2(s1, s2);\n"
           "  store_3(out0, s2);\n"
           "}\n");
}

TEST(hls_constants_are_arrays_in_rows_that_are_read_at_once) {
  const HlsProject project = project_of(kProduct, "float", 2, {{1, counted(32)}});
  const std::string weights = project.files.at("weights.h");
  CHECK(has(weights, "static const number_t w1[2][16] = {\n{0, 2, 4, 6, 8, 10, 12, 14,\n16, 18, 20"));
  CHECK(has(weights, "28, 30},\n{1, 3, 5, 7"));
  CHECK(!has(weights, " w0["));
  CHECK(has(stage(project, "mm_1"), "#pragma HLS ARRAY_PARTITION variable=w1 complete dim=1\n"));
  CHECK_THROWS(ShardingError, project_of(kProduct, "float", 2, {{1, counted(31)}}), "a constant has 31 elements");
}

// Of floats, a sum takes 4 cycles, and with four lanes each is added to again in the next iteration.
TEST(hls_a_product_of_floats_waits_for_its_sums) {
  const auto product = [](const std::string& number, int64_t unroll) {
    return cycles(project_of(kProduct, number, unroll, {{1, counted(32)}}), "mm_1");
  };
  CHECK_EQ(product("float", 4), 2 * (8 * 4 + 9 + 4 + 2));
  CHECK_EQ(product("float", 1), 2 * (8 * 4 + 9 + 4 + 2));
  CHECK_EQ(product("fixed<16,6>", 4), 2 * (8 * 1 + 6 + 4 + 2));
  CHECK_EQ(product("fixed<16,6>", 1), 2 * (8 * 4 + 6 + 4 + 2));
}

TEST(hls_the_estimate_counts_multipliers_and_memory) {
  const auto of = [](const std::string& number, int64_t unroll) {
    return project_of(kProduct, number, unroll, {{1, counted(32)}}).estimate.resources;
  };
  CHECK_EQ(of("float", 4).dsp, 4 * 5);
  CHECK_EQ(of("float", 1).dsp, 5);
  CHECK_EQ(of("fixed<16,6>", 4).dsp, 4);
  CHECK_EQ(of("fixed<32,8>", 4).dsp, 4 * 4);
  CHECK_EQ(of("float", 1).bram18, 2 * 2);  // the ports'; 32 floats of one row are logic
}

TEST(hls_the_slowest_stage_is_the_interval) {
  const HlsProject project = project_of(kProduct, "float", 4, {{1, counted(32)}});
  CHECK_EQ(project.estimate.interval, cycles(project, "mm_1"));
  CHECK(project.estimate.latency > project.estimate.interval);
  CHECK(has(project.report, "a run every 94 cycles"));
}

TEST(hls_a_stream_that_two_stages_read_is_spread_and_holds_all) {
  const HlsProject project = project_of(
      "%0 = input \"x\" f32[4, 8]\n"
      "%1 : f32[4] = prims.amax(%0, [1])\n"
      "%2 : f32[4, 8] = prims.broadcast_in_dim(%1, [4, 8], [0])\n"
      "%3 : f32[4, 8] = prims.sub(%0, %2)\n"
      "return %3\n");
  const std::string text = project.files.at("top.cpp");
  CHECK(has(text, "#pragma HLS STREAM variable=s0_1 depth=32\n"));
  CHECK(has(text, "  spread_s0(s0, s0_0, s0_1);\n  amax_1(s0_0, s1);\n"));
  CHECK(has(stage(project, "amax_1"), "#pragma HLS PIPELINE II=1\n"));
}

TEST(hls_what_nobody_reads_is_left_out) {
  const HlsProject project = project_of(
      "%0 = input \"x\" f32[1, 4, 4]\n"
      "%1 : f32[1, 2, 2], %2 : i64[1, 2, 2] = aten.max_pool2d_with_indices(%0, [2, 2])\n"
      "%3 : f32[1, 4, 4] = prims.exp(%0)\n"
      "return %1\n");
  CHECK(!has(stage(project, "max_pool2d_with_indices_1"), ".write(where"));
  CHECK_EQ(cycles(project, "exp_2"), -1);
}

TEST(hls_numbers_have_types_of_their_own) {
  const std::string text = project_of(kProduct, "fixed<16,6>").files.at("top.h");
  CHECK(has(text, "typedef ap_fixed<16, 6, AP_RND, AP_SAT> number_t;\ntypedef ap_fixed<40, 20> acc_t;\n"));
  CHECK_THROWS(ShardingError, number_named("fixed<16>"), "'fixed<16>' is no number");
  CHECK_THROWS(ShardingError, number_named("fixed<40,8>"), "'fixed<40,8>' is no fixed point that is written");
}

TEST(hls_what_is_not_written_is_named) {
  CHECK_THROWS(ShardingError, project_of("%0 = input \"x\" f32[4]\n%1 : f32[4] = aten.sort(%0)\nreturn %1\n"),
               "aten.sort is not written for HLS: it has no row");
  CHECK_THROWS(ShardingError, project_of("%0 = input \"x\" c64[4]\nreturn %0\n"), "a tensor of c64");
  const std::vector<std::string> ops = ops_of_hls();
  CHECK(std::ranges::find(ops, "aten.mm") != ops.end() && ops.size() > 100);
}

TEST(a_flip_of_no_dims_moves_nothing) {
  const auto top = [](const std::string& dims) {
    return project_of("%0 = input \"x\" f32[2, 3]\n%1 : f32[2, 3] = aten.flip(%0, " + dims +
                      ")\n%2 : f32[2, 3] = prims.neg(%1)\nreturn %2\n")
        .files.at("top.cpp");
  };
  const std::string plain =
      project_of("%0 = input \"x\" f32[2, 3]\n%1 : f32[2, 3] = prims.neg(%0)\nreturn %1\n").files.at("top.cpp");
  CHECK_EQ(top("[]") == plain, true);
  CHECK_EQ(top("[1]") == plain, false);
}

}  // namespace spmdx
