// SPDX-License-Identifier: Apache-2.0
// Rules: factors of many calls, the walk of view by brute force, localised attributes.
#include <map>
#include <thread>

#include "check.h"
#include "rules/lookup.h"
#include "rules/rule/row.h"
#include "rules/rule/rule.h"
#include "rules/rule_text.h"

using namespace spmdx;
using namespace spmdx::test;

namespace {

// The elements a device holds when factor `f`, the only one cut, keeps [begin, end): row-major indices.
std::vector<int64_t> kept(const OpRule& rule, const TensorFactors& dims, const Shape& shape, int f, int64_t begin,
                          int64_t end) {
  std::vector<int64_t> result;
  for (int64_t index = 0; index < numel(shape); ++index) {
    int64_t rest = index;
    bool inside = true;
    for (size_t d = shape.size(); d-- > 0;) {
      int64_t coordinate = rest % shape[d];
      rest /= shape[d];
      for (size_t k = dims[d].size(); k-- > 0;) {
        const int64_t size = rule.factors[static_cast<size_t>(dims[d][k])].size, digit = coordinate % size;
        coordinate /= size;
        if (dims[d][k] == f) inside &= digit >= begin && digit < end;
      }
    }
    if (inside) result.push_back(index);
  }
  return result;
}

std::string view_op(const Shape& to) { return "aten.view(%0, " + str(to) + ")"; }

std::vector<Arg> localised(const Program& p, const std::vector<Box>& inputs, const std::vector<Box>& outputs) {
  std::vector<Arg> args = p.node.call->args;
  CHECK(p.rule->localise != nullptr);
  if (p.rule->localise) p.rule->localise(*p.node.call, inputs, outputs, args);
  return args;
}

}  // namespace

TEST(rules_products) {
  CHECK_EQ(rule_of("f32[4, 6]; f32[6, 8]", "f32[4, 8]", "aten.mm(%0, %1)"), "ab/,b/c->ac");
  CHECK_EQ(rule_of("f32[2, 4, 6]; f32[2, 6, 8]", "f32[2, 4, 8]", "aten.bmm(%0, %1)"), "abc/,ac/d->abd");
  CHECK_EQ(rule_of("f32[8]; f32[4, 6]; f32[6, 8]", "f32[4, 8]", "aten.addmm(%0, %1, %2, 1, 1)"), "a,bc+,c+a->ba");
  CHECK_EQ(rule_of("f32[6]; f32[6]", "f32[]", "aten.dot(%0, %1)"), "a/,a/->");
  // A contraction over 1 needs no factor.
  CHECK_EQ(rule_of("f32[4, 1]; f32[1, 8]", "f32[4, 8]", "aten.mm(%0, %1)"), "a_,_b->ab");
}

TEST(rules_pointwise) {
  CHECK_EQ(rule_of("f32[4, 6]; f32[6]", "f32[4, 6]", "aten.add.Tensor(%0, %1, 1)"), "ab,b->ab");
  CHECK_EQ(rule_of("f32[4, 1]; f32[1, 6]", "f32[4, 6]", "aten.mul.Tensor(%0, %1)"), "a_,_b->ab");
  CHECK_EQ(rule_of("f32[4]; f32[]", "f32[4]", "aten.add.Tensor(%0, %1, 1)"), "a,->a");
  const Program sum = program("f32[4]; f32[4]", "f32[4]", "aten.add.Tensor(%0, %1, 1)");
  CHECK(sum.rule->linearity == Linearity::joint);
  // x + 2 of a partial x would add 2 on every device.
  CHECK(program("f32[4]", "f32[4]", "aten.add.Scalar(%0, 2, 1)").rule->linearity == Linearity::none);
  CHECK(program("f32[4]", "f32[4]", "aten.rsub.Scalar(%0, 2, 1)").rule->linearity == Linearity::none);
  CHECK(program("f32[4]; f32[4]", "f32[4]", "aten.mul.Tensor(%0, %1)").rule->linearity == Linearity::each);
  const Program div = program("f32[4]; f32[4]", "f32[4]", "aten.div.Tensor(%0, %1)");
  CHECK(div.rule->linearity == Linearity::joint && div.rule->linear_inputs == 1);
  CHECK(program("f32[4]; f32[4]", "f32[4]", "aten.div.Tensor_mode(%0, %1, \"floor\")").rule->linearity ==
        Linearity::none);
  // The root of a negative part is no number, although that of the maximum is one.
  CHECK(program("f32[4]", "f32[4]", "aten.sqrt(%0)").rule->linearity == Linearity::none);
  CHECK(program("f32[4]", "f32[4]", "aten.relu(%0)").rule->linearity == Linearity::monotone);
  CHECK(program("f32[4]", "bf16[4]", "aten._to_copy(%0, dtype:bf16, none, none, none, false, none)").rule->linearity ==
        Linearity::joint);
  CHECK(program("i64[4]", "f32[4]", "aten._to_copy(%0, dtype:f32, none, none, none, false, none)").rule->linearity ==
        Linearity::none);
}

TEST(rules_reductions) {
  CHECK_EQ(rule_of("f32[4, 6]", "f32[4]", "aten.sum.dim_IntList(%0, [1], false, none)"), "ab/->a");
  CHECK_EQ(rule_of("f32[4, 6]", "f32[4, 1]", "aten.sum.dim_IntList(%0, [-1], true, none)"), "ab/->a_");
  CHECK_EQ(rule_of("f32[4, 6]", "f32[]", "aten.sum(%0, none)"), "a/b/->");
  CHECK_EQ(rule_of("f32[4, 6]", "f32[6]", "aten.amax(%0, [0], false)"), "a>b->b");
  CHECK_EQ(rule_of("f32[4, 6]", "f32[]", "aten.mean(%0, none)"), "a+b+->");
  CHECK_EQ(rule_of("f32[4, 6]", "f32[4]; i64[4]", "aten.max.dim(%0, 1, false)"), "ab^->a,a");
  CHECK_EQ(rule_of("f32[4]; f32[4]", "f32[4]", "aten.maximum(%0, %1)"), "a,a->a");
  CHECK_EQ(rule_of("f32[4, 6]", "i64[4]", "aten.argmax(%0, 1, false)"), "ab^->a");
  CHECK_EQ(rule_of("f32[4, 6]", "f32[]", "aten.linalg_vector_norm(%0, 2, none, false, none)"), "a+b+->");
  CHECK_EQ(rule_of("f32[4, 6]", "f32[4]", "aten.var.correction(%0, [1], 1, false)"), "ab^->a");
}

TEST(rules_movement) {
  CHECK_EQ(rule_of("f32[2, 3, 4]", "f32[4, 2, 3]", "aten.permute(%0, [2, 0, 1])"), "abc->cab");
  CHECK_EQ(rule_of("f32[3, 1]", "f32[2, 3, 4]", "aten.expand(%0, [2, 3, 4], false)"), "a_->bac");
  CHECK_EQ(rule_of("f32[4, 6]", "f32[4, 3]", "aten.slice.Tensor(%0, 1, 0, 3, 1)"), "ab+->ac+");
  CHECK_EQ(rule_of("f32[4, 60]", "f32[4, 30]", "aten.slice.Tensor(%0, 1, 0, 30, 1)"), "ab^->ab^");
  CHECK_EQ(rule_of("f32[4, 60]", "f32[4, 12]", "aten.slice.Tensor(%0, 1, 0, 12, 1)"), "ab^->ab^");
  CHECK_EQ(rule_of("f32[4, 6]", "f32[4, 6]", "aten.slice.Tensor(%0, 1, 0, 6, 1)"), "ab->ab");
  CHECK_EQ(rule_of("f32[4, 6]", "f32[6]", "aten.select.int(%0, 0, 2)"), "a+b->b");
  CHECK_EQ(rule_of("f32[6]", "f32[4, 6]", "aten.select_backward(%0, [4, 6], 0, 2)"), "a->b+a");
  CHECK_EQ(rule_of("f32[4, 6]; f32[4]", "f32[4, 6]", "aten.select_scatter(%0, %1, 1, 2)"), "ab+,a->ab+");
  CHECK_EQ(rule_of("f32[4, 6]; f32[4, 2]", "f32[4, 6]", "aten.slice_scatter(%0, %1, 1, 2, 4, 1)"), "ab+,ac!->ab+");
  CHECK_EQ(rule_of("f32[4, 6]", "f32[4, 2]", "spmdx.read_range(%0, 1, 2, 1)"), "ab/->ac");
  CHECK_EQ(rule_of("f32[4, 2]", "f32[4, 6]", "spmdx.place_range(%0, 1, 2, 1)"), "ab/->ac");
  CHECK_EQ(rule_of("f32[4, 6]; f32[4, 2]", "f32[4, 6]", "spmdx.write_range(%0, %1, [1], [2], [1])"), "ab,ac!->ab");
  CHECK_EQ(rule_of("f32[4, 2]; f32[4, 3]", "f32[4, 5]", "aten.cat([%0, %1], 1)"), "ab!,ac!->ad!");
  CHECK_EQ(rule_of("f32[4]; f32[4]", "f32[4, 2]", "aten.stack([%0, %1], 1)"), "a,a->ab!");
  CHECK_EQ(rule_of("f32[4, 6]", "f32[4, 8]", "aten.constant_pad_nd(%0, [1, 1], 0)"), "ab!->ac!");
  CHECK_EQ(rule_of("f32[4, 60]", "f32[4, 62]", "aten.constant_pad_nd(%0, [1, 1], 0)"), "ab^->ab^");
  CHECK_EQ(rule_of("f32[4, 60]", "f32[4, 62]", "aten.constant_pad_nd(%0, [1, 1], 1)"), "ab!->ac!");
  CHECK_EQ(rule_of("f32[4, 6]", "f32[4, 6]", "aten.cumsum(%0, 1, none)"), "ab^->ab^");
  CHECK_EQ(rule_of("f32[4, 6]", "f32[4, 2]; i64[4, 2]", "aten.topk(%0, 2, 1, true, true)"), "ab^->ac!,ac!");
  CHECK_EQ(rule_of("f32[4, 6]", "f32[4, 6]; i64[4, 6]", "aten.sort.stable(%0, true, 0, false)"), "a!b->a!b,a!b");
  CHECK_EQ(rule_of("f32[4, 6]", "f32[8, 6]", "aten.repeat(%0, [2, 1])"), "a!b->c!b");
}

TEST(rules_indexing) {
  CHECK_EQ(rule_of("f32[9, 8]; i64[4, 5]", "f32[4, 5, 8]", "aten.embedding(%0, %1, -1, false, false)"), "a+b,cd->cdb");
  CHECK_EQ(rule_of("f32[4, 5, 8]; i64[4, 5]", "f32[9, 8]", "aten.embedding_dense_backward(%0, %1, 9, -1, false)"),
           "a/b/c,a/b/->d+c");
  CHECK_EQ(rule_of("f32[4, 6]; i64[4, 2]", "f32[4, 2]", "aten.gather(%0, 1, %1, false)"), "ab+,ac->ac");
  CHECK_EQ(rule_of("f32[4, 6]; i64[3]", "f32[4, 3]", "aten.index_select(%0, 1, %1)"), "ab+,c->ac");
  CHECK_EQ(rule_of("f32[4, 6, 5]; i64[3]", "f32[4, 3, 5]", "aten.index.Tensor(%0, [none, %1])"), "ab+c,d->adc");
  CHECK_EQ(rule_of("f32[4, 6]; i64[3, 1]; i64[2]", "f32[3, 2]", "aten.index.Tensor(%0, [%1, %2])"), "a+b!,c_,d->cd");
  CHECK_EQ(rule_of("f32[4, 6]; i64[3]; f32[3, 6]", "f32[4, 6]", "aten.index_put(%0, [%1], %2, true)"),
           "a+b,c+,c+b->a+b");
  CHECK_EQ(rule_of("f32[4, 6]; i64[3]; f32[3, 6]", "f32[4, 6]", "aten.index_put(%0, [%1], %2, false)"),
           "a+b,c!,c!b->a+b");
  CHECK_EQ(rule_of("f32[4, 6, 5]; i64[3]; i64[3]; f32[3, 6]", "f32[4, 6, 5]",
                   "aten.index_put(%0, [%1, none, %2], %3, true)"),
           "a+bc!,d+,d+,d+b->a+bc!");
  CHECK_EQ(rule_of("f32[4, 6]; i64[3]", "f32[4, 6]", "aten.index_fill.int_Scalar(%0, 0, %1, 2)"), "a+b,c!->a+b");
  CHECK_EQ(rule_of("f32[4, 6]; i64[3]; f32[3, 6]", "f32[4, 6]", "aten.index_reduce(%0, 0, %1, %2, \"amax\", true)"),
           "a+b,c!,c!b->a+b");
  CHECK_EQ(rule_of("f32[4, 6]; i64[4, 2]; f32[4, 2]", "f32[4, 6]", "aten.scatter_add(%0, 1, %1, %2)"),
           "ab+,ac+,ac+->ab+");
}

TEST(rules_layers) {
  CHECK_EQ(rule_of("f32[4, 6]", "f32[4, 6]", "aten._softmax(%0, -1, false)"), "ab^->ab^");
  CHECK_EQ(rule_of("f32[4, 5, 6]; f32[6]; f32[6]", "f32[4, 5, 6]; f32[4, 5, 1]; f32[4, 5, 1]",
                   "aten.native_layer_norm(%0, [6], %1, %2, real#0)"),
           "abc^,c^,c^->abc^,ab_,ab_");
  CHECK_EQ(rule_of("f32[4, 6]; f32[4, 6]; f32[4, 1]; f32[4, 1]; f32[6]; f32[6]", "f32[4, 6]; f32[6]; f32[6]",
                   "aten.native_layer_norm_backward(%0, %1, [6], %2, %3, %4, %5, [true, true, true])"),
           "a/b^,a/b^,a/_,a/_,b^,b^->a/b^,b^,b^");
  const std::string conv = ", [1, 1], [1, 1], [1, 1], false, [0, 0], ";
  CHECK_EQ(
      rule_of("f32[2, 3, 8, 8]; f32[4, 3, 3, 3]", "f32[2, 4, 8, 8]", "aten.convolution(%0, %1, none" + conv + "1)"),
      "ab/c^d^,eb/f!g!->aec^d^");
  CHECK_EQ(rule_of("f32[2, 3, 8, 8]; f32[4, 3, 3, 3]; f32[4]", "f32[2, 4, 8, 8]",
                   "aten.convolution(%0, %1, %2" + conv + "1)"),
           "ab+c^d^,eb+f!g!,e->aec^d^");
  // Channels of the input are not summed in the gradient of the bias, which lacks them: they pass.
  CHECK_EQ(rule_of("f32[2, 4, 8, 8]; f32[2, 3, 8, 8]; f32[4, 3, 3, 3]", "f32[2, 3, 8, 8]; f32[4, 3, 3, 3]; f32[4]",
                   "aten.convolution_backward(%0, %1, %2, [4]" + conv + "1, [true, true, true])"),
           "a/b/c^d^,a/e^c^d^,b/e^f!g!->a/e^c^d^,b/e^f!g!,b/");
  CHECK_EQ(rule_of("f32[2, 4, 8]; f32[2, 4, 8]", "f32[2, 4, 8]", "aten.mse_loss(%0, %1, 0)"), "abc,abc->abc");
  CHECK_EQ(rule_of("f32[4, 8]; f32[4, 8]", "f32[]", "aten.mse_loss(%0, %1, 2)"), "a/b/,a/b/->");
  CHECK_EQ(rule_of("f32[4, 8]; f32[4, 8]", "f32[]", "aten.mse_loss(%0, %1, 1)"), "a+b+,a+b+->");
  CHECK_EQ(rule_of("f32[4, 9]; i64[4]", "f32[]; f32[]", "aten.nll_loss_forward(%0, %1, none, 1, -100)"), "a+b+,a+->,");
  CHECK_EQ(
      rule_of("f32[]; f32[4, 9]; i64[4]; f32[]", "f32[4, 9]", "aten.nll_loss_backward(%0, %1, %2, none, 1, -100, %3)"),
      ",ab+,a,->ab+");
  CHECK_EQ(rule_of("f32[2, 3, 8, 8]", "f32[2, 3, 4, 4]; i64[2, 3, 4, 4]",
                   "aten.max_pool2d_with_indices(%0, [2, 2], [2, 2], [0, 0], [1, 1], false)"),
           "abc^d^->abc^d^,abc^d^");
  CHECK_EQ(
      rule_of("f32[2, 4, 5, 8]; f32[2, 4, 6, 8]; f32[2, 4, 6, 8]; f32[1, 1, 5, 6]", "f32[2, 4, 5, 8]; f32[2, 4, 5]",
              "aten._scaled_dot_product_flash_attention_for_cpu(%0, %1, %2, real#0, false, %3, none)"),
      "abc+d!,abe+d!,abe+d!,__c+e+->abc+d!,abc+");
  const std::string norm = "aten._native_batch_norm_legit_functional(%0, %1, %2, %3, %4, true, real#0, real#1)";
  const std::string operands = "f32[4, 3, 5]; f32[3]; f32[3]; f32[3]; f32[3]";
  CHECK_EQ(rule_of(operands, operands, norm), "a^bc^,b,b,b,b->a^bc^,b,b,b,b");
}

TEST(rules_fallback) {
  CHECK_EQ(rule_of("f32[4, 1]", "f32[4]", "my.op(%0)"), "fallback a!_->b!");
  // A row whose sizes do not fit the call is not believed.
  CHECK_EQ(rule_of("f32[4, 6]; f32[7, 8]", "f32[4, 8]", "aten.mm(%0, %1)"), "fallback a!b!,c!d!->e!f!");
  CHECK(program("f32[4]", "f32[4]", "aten.bernoulli.Tensor(%0, %0, opaque \"generator\")").rule != nullptr);
  CHECK(has_rule("aten.add.Tensor") && has_rule("aten.mm") && !has_rule("my.op"));
  const std::vector<std::string> names = all_rules();
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  CHECK(names.size() > 300);
}

// As it is written, and no op twice.
// PyTorch's overloads differ in how their arguments are given, not in what a float among them decides.
TEST(overloads_of_an_op_agree_on_what_their_floats_decide) {
  std::map<std::string_view, bool> by_base;
  for (const rules::Row& row : rules::rows())
    CHECK_EQ(by_base.try_emplace(base_name(row.op), row.constant_reals).first->second, row.constant_reals);
}

TEST(rules_table_is_alphabetical) {
  const auto rising = [](const auto& a, const auto& b) { return !(a < b); };
  const auto rows = rules::rows();
  const auto found = std::adjacent_find(rows.begin(), rows.end(),
                                        [&](const rules::Row& a, const rules::Row& b) { return rising(a.op, b.op); });
  CHECK_EQ(found == rows.end() ? "" : std::string(found->op), "");
  for (const rules::PointwiseOps& group : rules::pointwise_ops()) {
    const auto op = std::adjacent_find(group.ops.begin(), group.ops.end(), rising);
    CHECK_EQ(op == group.ops.end() ? "" : std::string(*op), "");
  }
  for (const rules::Row& row : rows) CHECK(row.letters.empty() == (row.family != nullptr));
}

TEST(rules_view_strings) {
  CHECK_EQ(rule_of("f32[2, 3, 5]", "f32[6, 5]", view_op({6, 5})), "abc->(ab)c");
  CHECK_EQ(rule_of("f32[12]", "f32[3, 4]", view_op({3, 4})), "(ab)->ab");
  CHECK_EQ(rule_of("f32[6, 4]", "f32[4, 6]", view_op({4, 6})), "(ab!)c!->(ad!)e!");
  CHECK_EQ(rule_of("f32[2, 3, 5]", "f32[3, 2, 5]", view_op({3, 2, 5})), "a!b!c->d!e!c");
  CHECK_EQ(rule_of("f32[4, 1, 6]", "f32[4, 6, 1]", view_op({4, 6, 1})), "a_b->ab_");
  CHECK_EQ(rule_of("f32[0, 6]", "f32[6, 0]", view_op({6, 0})), "a!b!->c!d!");
}

// Every cut of a common factor leaves the same elements, in the same order, on both sides.
TEST(rules_view_brute_force) {
  std::vector<Shape> shapes = {{}};
  for (size_t begin = 0, rank = 0; rank < 3; ++rank) {
    const size_t end = shapes.size();
    for (; begin < end; ++begin)
      for (int64_t d : {1, 2, 3, 4, 6}) {
        shapes.push_back(shapes[begin]);
        shapes.back().push_back(d);
      }
  }
  int64_t cuts = 0;
  bool all_equal = true;
  for (const Shape& from : shapes)
    for (const Shape& to : shapes) {
      if (numel(from) != numel(to)) continue;
      Call call{
          .op = "aten.view", .args = {TensorArg{0}, to}, .inputs = {{DType::f32, from}}, .outputs = {{DType::f32, to}}};
      const OpRuleRef rule = rule_for(seal(std::move(call)));
      all_equal &= !rule->fallback;
      for (size_t f = 0; f < rule->factors.size(); ++f) {
        if (rule->factors[f].kind != FactorKind::pass) continue;
        for (int64_t half : {rule->factors[f].size / 2, int64_t{1}}) {
          const auto a = kept(*rule, rule->inputs[0], from, static_cast<int>(f), 0, half);
          all_equal &= a == kept(*rule, rule->outputs[0], to, static_cast<int>(f), 0, half) && !a.empty();
          ++cuts;
        }
      }
    }
  CHECK(all_equal);
  CHECK(cuts > 1000);
}

TEST(rules_localise) {
  const Program view = program("f32[4, 6]", "f32[24]", view_op({24}));
  CHECK(localised(view, {{{2, 2}, {0, 6}}}, {{{12, 12}}})[1] == Arg{std::vector<int64_t>{12}});
  const Program tril = program("f32[8, 8]", "f32[8, 8]", "aten.tril(%0, 1)");
  CHECK(localised(tril, {{{4, 4}, {0, 8}}}, {{{4, 4}, {0, 8}}})[1] == Arg{int64_t{5}});
  CHECK(localised(tril, {{{0, 8}, {6, 2}}}, {{{0, 8}, {6, 2}}})[1] == Arg{int64_t{-5}});
  const Program range = program("", "i64[10]", "aten.arange.start_step(3, 23, 2, dtype:i64, none, none, none)");
  const std::vector<Arg> args = localised(range, {}, {{{4, 3}}});
  CHECK(args[0] == Arg{int64_t{11}} && args[1] == Arg{int64_t{17}});
  const Program draw =
      program("", "f32[4, 6]", "spmdx.random.uniform([4, 6], [0, 0], [4, 6], dtype:f32, real#0, real#1, int#2, int#3)");
  CHECK(draw.rule->random);
  const std::vector<Arg> box = localised(draw, {}, {{{2, 2}, {3, 3}}});
  CHECK(box[0] == Arg{std::vector<int64_t>{4, 6}});
  CHECK(box[1] == Arg{std::vector<int64_t>{2, 3}} && box[2] == Arg{std::vector<int64_t>{2, 3}});
}

TEST(rules_cached) {
  const Program a = program("f32[4, 6]; f32[6, 8]", "f32[4, 8]", "aten.mm(%0, %1)");
  const Program b = program("f32[4, 6]; f32[6, 8]", "f32[4, 8]", "aten.mm(%0, %1)");
  CHECK(a.node.call != b.node.call && a.rule == b.rule);
  std::vector<std::thread> threads;
  std::vector<OpRuleRef> rules(8);
  for (size_t i = 0; i < rules.size(); ++i)
    threads.emplace_back([&rules, i] { rules[i] = program("f32[4]", "f32[4]", "aten.exp(%0)").rule; });
  for (std::thread& thread : threads) thread.join();
  for (const OpRuleRef& rule : rules) CHECK_EQ(letters(*rule), "a->a");
}
