// SPDX-License-Identifier: Apache-2.0
// Named schedules, their text form, and that of torch.distributed.pipelining.
#include <random>

#include "base/error.h"
#include "check.h"
#include "passes/pipeline/check.h"
#include "passes/pipeline/make_schedule.h"
#include "passes/pipeline/schedule_csv.h"

using namespace spmdx;

TEST(named_schedules_of_two_ranks) {
  CHECK_EQ(str(make_schedule("gpipe", 2, 2)), std::string("F0 F1 B0 B1\nF0 F1 B0 B1"));
  CHECK_EQ(str(make_schedule("1f1b", 2, 3)), std::string("F0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2"));
  CHECK_EQ(str(make_schedule("zb-h1", 2, 3)), std::string("F0 F1 I0 W0 F2 I1 W1 I2 W2\nF0 I0 F1 I1 W0 F2 I2 W1 W2"));
  CHECK_EQ(str(make_schedule("interleaved:2", 2, 2)),
           std::string("F0 F1 1.F0 1.F1 1.B0 1.B1 B0 B1\nF0 F1 1.F0 1.B0 1.F1 1.B1 B0 B1"));
  CHECK(make_schedule("interleaved:1", 3, 5) == make_schedule("1f1b", 3, 5));
}

TEST(interleaved_schedules_of_other_numbers_have_their_larger_rounds_first) {
  CHECK_EQ(str(make_schedule("interleaved:2", 1, 2)), std::string("F0 1.F0 1.B0 F1 B0 1.F1 1.B1 B1"));
  CHECK_EQ(str(make_schedule("interleaved:2", 2, 5)),
           std::string("F0 F1 F2 1.F0 1.F1 1.F2 1.B0 F3 1.B1 F4 1.B2 1.F3 B0 1.F4 B1 B2 1.B3 1.B4 B3 B4\n"
                       "F0 F1 F2 1.F0 1.B0 1.F1 1.B1 1.F2 1.B2 F3 B0 F4 B1 1.F3 B2 1.F4 1.B3 1.B4 B3 B4"));
}

TEST(names_and_numbers_of_schedules_that_are_none_are_refused) {
  for (const char* name : {"", "1F1B", "interleaved", "interleaved:", "interleaved:0", "interleaved:-1",
                           "interleaved:2 ", "interleaved:99999999999999999999"})
    CHECK_THROWS(ShardingError, make_schedule(name, 2, 2),
                 "no schedule is called '" + std::string(name) +
                     "'. Expected 'gpipe', '1f1b', 'interleaved:2' or another number of chunks, or 'zb-h1'. Write one "
                     "of these, or read a table of your own.");
  CHECK_THROWS(ShardingError, make_schedule("1f1b", 0, 2),
               "a schedule for 0 ranks. Expected from 1 to 999999. Give the number that the pipeline has.");
  CHECK_THROWS(ShardingError, make_schedule("1f1b", 2, -3),
               "a schedule for -3 microbatches. Expected from 1 to 999999. Give the number that the pipeline has.");
  CHECK_THROWS(ShardingError, make_schedule("interleaved:1000000", 1, 1),
               "a schedule for 1000000 chunks. Expected from 1 to 999999. Give the number that the pipeline has.");
  CHECK_THROWS(ShardingError, make_schedule("interleaved:1000", 1000, 1000),
               "a schedule for 1000 ranks, 1000 chunks and 1000 microbatches. Expected at most 16777216 forwards. Make "
               "fewer microbatches.");
}

TEST(text_of_schedules_is_read_again) {
  const Schedule read = parse_schedule("\n  F0 1.F0\t12.I3\r\n\nW0 B999999\n");
  CHECK_EQ(str(read), std::string("F0 1.F0 12.I3\nW0 B999999"));
  CHECK_EQ(read.ranks.size(), 2u);
  CHECK_EQ(read.num_chunks(), 13);
  CHECK_EQ(read.num_stages(), 26);
  CHECK_EQ(read.num_microbatches(), 1'000'000);
  CHECK_EQ(parse_schedule("").num_microbatches(), 0);
}

TEST(text_that_is_no_schedule_is_refused_with_line_and_column) {
  for (const char* word : {"F", "f0", "X0", "F-1", "F+1", "F0x", "F1000000", "1F0", ".F0", "1.", "-1.F0", "1.2.F0",
                           "F0,", "SEND_F0", "1.F0.", "1000000.F0", "//", "0x1.F0", "F99999999999999999999"})
    CHECK_THROWS(ShardingError, parse_schedule("F0 B0\n\n F0 " + std::string(word) + " B0"),
                 "line 3, column 5: found '" + std::string(word) +
                     "'. Expected F, B, I or W and the number of a microbatch below 1000000. Write F0, or 1.F0 for the "
                     "rank's chunk 1.");
}

TEST(csv_is_that_of_torch) {
  CHECK_EQ(csv(make_schedule("interleaved:2", 2, 1)), std::string("0F0,2F0,2B0,0B0\r\n1F0,3F0,3B0,1B0\r\n"));
  CHECK_EQ(str(parse_csv("0F0,,2F0,2B0, 0B0\r\n,1F0,3F0,3I0,3W0,1B0")),
           std::string("F0 1.F0 1.B0 B0\nF0 1.F0 1.I0 1.W0 B0"));
  CHECK_EQ(str(parse_csv("0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
                         "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1RESHARD\n\n")),
           std::string("F0 B0\nF0 B0"));
  CHECK_EQ(parse_csv("").ranks.size(), 0u);
  CHECK_EQ(parse_csv("0F0,0B0\n\n2F0,2B0\n").ranks[1].size(), 0u);
}

TEST(csv_that_is_no_schedule_is_refused_with_line_and_cell) {
  for (const char* cell : {"F0", "3", "3F", "3F0x", "3X0", "-3F0", "(3F0;3B1)OVERLAP_F_B", "3F1000000", "SEND_F0",
                           "3F99999999999999999999", "2000001F0", "3 F0", "\"3F0\""})
    CHECK_THROWS(ShardingError, parse_csv("0F0,0B0\r\n1F0,,1B0," + std::string(cell) + "\r\n"),
                 "line 2, cell 4: found '" + std::string(cell) +
                     "'. Expected a stage, F, B, I or W, and a microbatch. Write '0F0', or leave the cell empty.");
  CHECK_THROWS(ShardingError, parse_csv("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n"),
               "line 1, cell 2: '3F0' is of stage 3. Expected rank 0 of 2 to hold the stages 0, 2, …. Use a schedule "
               "whose stages go round the ranks.");
}

TEST(named_schedules_of_any_numbers_can_run_and_are_read_again) {
  std::mt19937 random(7);
  const auto drawn = [&](int most) { return static_cast<int>(random() % most) + 1; };
  const auto holds = [&](const std::string& kind, int ranks, int microbatches) {
    const Schedule schedule = make_schedule(kind, ranks, microbatches);
    check_schedule(schedule);
    CHECK(parse_schedule(str(schedule)) == schedule && parse_csv(csv(schedule)) == schedule);
    CHECK_EQ(schedule.num_microbatches(), microbatches);
  };
  for (int i = 0; i < 200; ++i) {
    const int ranks = drawn(16), microbatches = drawn(48), chunks = drawn(6);
    for (const std::string& kind :
         {std::string("gpipe"), std::string("1f1b"), std::string("zb-h1"), "interleaved:" + std::to_string(chunks)})
      holds(kind, ranks, microbatches);
  }
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (int microbatches = 1; microbatches <= 32; ++microbatches)
      for (const char* kind : {"1f1b", "zb-h1", "interleaved:2", "interleaved:3"}) holds(kind, ranks, microbatches);
}
