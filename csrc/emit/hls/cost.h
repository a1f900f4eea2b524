// SPDX-License-Identifier: Apache-2.0
// Cost: what operators and arrays take of an FPGA.
// Source: floats as Vivado HLS names and counts its cores for 7 series at 10 ns (fadd_32ns_32ns_32_5_full_dsp: 5 steps,
// 2 DSP …), as its public reports and tutorials show them; fixed points by widths of a DSP48 (25 × 18 bits), UG479, and
// of a block RAM of 18 Kbit, UG473. Steps of fadd, fmul, fdiv, fexp and fcmp are in those names; other figures are
// rough, and were never measured.
#pragma once
#include "emit/hls/design.h"

namespace spmdx::emit::hls {

struct Resources {
  int64_t dsp = 0, bram18 = 0, lut = 0, ff = 0;
  Resources& operator+=(const Resources& other);
  Resources operator*(int64_t times) const;
  bool operator==(const Resources&) const = default;
};

struct Cost {
  int64_t latency = 0;  // cycles until its result may be used
  Resources resources;
};
Cost cost_of(Operator op, const Number& number);

int64_t bits_of(Elem elem, const Number& number);
// An array of so many elements of so many bits: distributed below 1,024 bits, else in block RAM.
Resources memory(int64_t count, int64_t bits);

// Of a nest: cycles from one iteration to the next, and from the start of one to its end.
int64_t interval_of(const Nest& nest, const Number& number);
int64_t depth_of(const Nest& nest, const Number& number);

}  // namespace spmdx::emit::hls
