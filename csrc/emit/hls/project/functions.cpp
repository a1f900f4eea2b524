// SPDX-License-Identifier: Apache-2.0
// The texts of functions.h.
#include "emit/hls/project/project.h"

namespace spmdx::emit::hls {

const char* const kFunctions = R"(// SPDX-License-Identifier: Apache-2.0
// Functions of numbers.
#pragma once
#include <climits>
#include <cmath>

)"
                               "#include \"top.h\"\n"
                               R"(
// What is beside all other numbers, or is the first and the last of them where there are no infinite ones.
template <class T>
struct Ends {
  static T least() { return T(-INFINITY); }
  static T most() { return T(INFINITY); }
};
template <>
struct Ends<int> {
  static int least() { return INT_MIN; }
  static int most() { return INT_MAX; }
};
template <>
struct Ends<bool> {
  static bool least() { return false; }
  static bool most() { return true; }
};
template <class T>
T least() {
  return Ends<T>::least();
}
template <class T>
T most() {
  return Ends<T>::most();
}

// What is no number is the larger and the smaller one; of `…_number` it is neither.
template <class T>
T larger(T a, T b) {
  return a != a || a > b ? a : b;
}
template <class T>
T smaller(T a, T b) {
  return a != a || a < b ? a : b;
}
template <class T>
T larger_number(T a, T b) {
  return b != b || a > b ? a : b;
}
template <class T>
T smaller_number(T a, T b) {
  return b != b || a < b ? a : b;
}
template <class T>
T abs_of(T a) {
  return a > T(0) ? a : T(T(0) - a);
}
template <class T>
T sign_of(T a) {
  return a > T(0) ? T(1) : a < T(0) ? T(-1) : T(0);
}
)";

const char* const kFloatFunctions = R"(
inline int whole_of(float x) { return int(x); }
template <class T>
T divide_of(T a, T b) {
  return a / b;
}
template <class T>
T pow_of(T a, T b) {
  return std::pow(a, b);
}
template <class T>
T rsqrt_of(T x) {
  return T(1) / std::sqrt(x);
}
template <class T>
T round_of(T x) {
  return std::nearbyint(x);
}
#define FUNCTION(name) \
  template <class T>   \
  T name##_of(T x) {   \
    return std::name(x); \
  }
FUNCTION(exp)
FUNCTION(exp2)
FUNCTION(expm1)
FUNCTION(log)
FUNCTION(log2)
FUNCTION(log10)
FUNCTION(log1p)
FUNCTION(sqrt)
FUNCTION(tanh)
FUNCTION(erf)
FUNCTION(erfc)
FUNCTION(sin)
FUNCTION(cos)
FUNCTION(tan)
FUNCTION(sinh)
FUNCTION(cosh)
FUNCTION(asin)
FUNCTION(acos)
FUNCTION(atan)
FUNCTION(asinh)
FUNCTION(acosh)
FUNCTION(atanh)
FUNCTION(floor)
FUNCTION(ceil)
FUNCTION(trunc)
template <class T>
T sigmoid_of(T x) {
  return T(1) / (T(1) + std::exp(-x));
}
template <class T>
T softplus_of(T x, T beta, T, T threshold) {
  return x * beta > threshold ? x : T(std::log1p(std::exp(x * beta)) / beta);
}
)";

const char* const kFixedFunctions = R"(
template <int W, int I, ap_q_mode Q, ap_o_mode O>
struct Ends<ap_fixed<W, I, Q, O>> {
  typedef ap_fixed<W, I, Q, O> T;
  static T least() { return T(-std::ldexp(1.0, I - 1)); }
  static T most() { return T(std::ldexp(1.0, I - 1) - std::ldexp(1.0, I - W)); }
};

typedef ap_fixed<64, 32> place_t;  // places in tables, and exponents
typedef ap_fixed<50, 18> mid_t;    // what functions compute in

// 1,024 steps of a function, which floats of the machine that compiles give; what is between two of them is found by a
// straight line. The largest error is the second derivative times step² / 8: 2.4e-5 of tanh, 7.4e-6 of erf and erfc,
// 5e-6 of sin and cos, below 1e-6 of the others.
template <double (*Of)(double), int From, int To>
struct Table {
  static const int kSteps = 1024;
  ap_fixed<40, 8> at[kSteps + 1];
  Table() {
    for (int i = 0; i <= kSteps; ++i) at[i] = Of(From + double(To - From) * i / kSteps);
  }
  mid_t operator()(place_t x) const {
    const place_t place = place_t((x - From) * ap_fixed<32, 12>(double(kSteps) / (To - From)));
    const int i = place.to_int() < 0 ? 0 : place.to_int() >= kSteps ? kSteps - 1 : place.to_int();
    const mid_t rest = mid_t(place - i);
    return mid_t(at[i] + (at[i + 1] - at[i]) * rest);
  }
};
inline double exp2_at(double x) { return std::exp2(x); }
inline double log2_at(double x) { return std::log2(x); }
inline double sqrt_at(double x) { return std::sqrt(x); }
inline double rsqrt_at(double x) { return 1 / std::sqrt(x); }
inline double tanh_at(double x) { return std::tanh(x); }
inline double erf_at(double x) { return std::erf(x); }
inline double erfc_at(double x) { return std::erfc(x); }
inline double sin_at(double x) { return std::sin(6.283185307179586 * x); }
inline double cos_at(double x) { return std::cos(6.283185307179586 * x); }

template <class X>
int floor_int(X x) {
  const int whole = x.to_int();
  return x < whole ? whole - 1 : whole;
}
template <class T>
T shifted(mid_t x, int bits) {
  if (bits > 16) return most<T>();
  return T(bits >= 0 ? x << bits : x >> -bits);
}
// x = m × 2^exponent, of which m is from 1 on, and below 2.
inline mid_t normal(mid_t m, int& exponent) {
  exponent = 0;
  for (int i = 0; i < 17; ++i) {
#pragma HLS UNROLL
    if (m >= 2) m = m >> 1, ++exponent;
  }
  for (int i = 0; i < 32; ++i) {
#pragma HLS UNROLL
    if (m < 1) m = m << 1, --exponent;
  }
  return m;
}

template <class T>
T exp2_of_place(place_t y) {
  static const Table<exp2_at, 0, 1> table;
  const int whole = floor_int(y);
  return whole < -33 ? T(0) : shifted<T>(table(place_t(y - whole)), whole);
}
template <class T>
T exp_of(T x) {
  return exp2_of_place<T>(place_t(x * ap_fixed<40, 4>(1.4426950408889634)));
}
template <class T>
T exp2_of(T x) {
  return exp2_of_place<T>(place_t(x));
}
template <class T>
T expm1_of(T x) {
  return T(exp2_of_place<mid_t>(place_t(x * ap_fixed<40, 4>(1.4426950408889634))) - 1);
}
inline place_t log2_of_mid(mid_t x) {
  static const Table<log2_at, 1, 2> table;
  int exponent = 0;
  const mid_t m = normal(x, exponent);
  return place_t(table(place_t(m)) + exponent);
}
template <class T>
T log_by(mid_t x, double factor) {
  return x > 0 ? T(log2_of_mid(x) * ap_fixed<40, 4>(factor)) : least<T>();
}
template <class T>
T log_of(T x) {
  return log_by<T>(x, 0.6931471805599453);
}
template <class T>
T log2_of(T x) {
  return log_by<T>(x, 1);
}
template <class T>
T log10_of(T x) {
  return log_by<T>(x, 0.3010299956639812);
}
template <class T>
T log1p_of(T x) {
  return log_by<T>(mid_t(x + 1), 0.6931471805599453);
}
template <class T>
T sqrt_of(T x) {
  static const Table<sqrt_at, 1, 4> table;
  if (x <= 0) return T(0);
  int exponent = 0;
  const mid_t m = normal(x, exponent);
  const bool is_odd = exponent & 1;
  return shifted<T>(table(place_t(is_odd ? m << 1 : m)), (exponent - is_odd) / 2);
}
template <class T>
T rsqrt_of(T x) {
  static const Table<rsqrt_at, 1, 4> table;
  if (x <= 0) return most<T>();
  int exponent = 0;
  const mid_t m = normal(x, exponent);
  const bool is_odd = exponent & 1;
  return shifted<T>(table(place_t(is_odd ? m << 1 : m)), -(exponent - is_odd) / 2);
}
template <class T>
T tanh_of(T x) {
  static const Table<tanh_at, -8, 8> table;
  return x >= 8 ? T(1) : x <= -8 ? T(-1) : T(table(place_t(x)));
}
template <class T>
T erf_of(T x) {
  static const Table<erf_at, -4, 4> table;
  return x >= 4 ? T(1) : x <= -4 ? T(-1) : T(table(place_t(x)));
}
template <class T>
T erfc_of(T x) {
  static const Table<erfc_at, -4, 4> table;
  return x >= 4 ? T(0) : x <= -4 ? T(2) : T(table(place_t(x)));
}
inline place_t turns(place_t x) {
  const place_t y = place_t(ap_fixed<48, 24>(x) * ap_fixed<40, 4>(0.15915494309189535));
  return place_t(y - floor_int(y));
}
template <class T>
T sin_of(T x) {
  static const Table<sin_at, 0, 1> table;
  return T(table(turns(x)));
}
template <class T>
T cos_of(T x) {
  static const Table<cos_at, 0, 1> table;
  return T(table(turns(x)));
}
template <class T, class B>
T divide_of(T a, B b) {
  if (b == 0) return a < 0 ? least<T>() : most<T>();
  return T(ap_fixed<2 * T::width - T::iwidth, T::iwidth>(a) / b);
}
template <class T>
T pow_of(T a, T b) {
  if (a == 0) return b > 0 ? T(0) : b == 0 ? T(1) : most<T>();
  const T size = exp2_of_place<T>(place_t(b * log2_of_mid(mid_t(abs_of<T>(a)))));
  return a < 0 && b.to_int() % 2 ? T(-size) : size;
}
// By functions whose results have a range of their own, so that these are right where exp is beyond its end.
template <class T>
T sigmoid_of(T x) {
  return T((tanh_of<mid_t>(mid_t(x) >> 1) + 1) * ap_fixed<4, 2>(0.5));
}
template <class T, class B, class I, class L>
T softplus_of(T x, B beta, I inverse, L threshold) {
  const place_t y = place_t(x * beta), size = y < 0 ? place_t(-y) : y;
  if (y > threshold) return x;
  const mid_t less = exp2_of_place<mid_t>(place_t(-size * ap_fixed<40, 4>(1.4426950408889634)));
  const mid_t rest = log_by<mid_t>(mid_t(less + 1), 0.6931471805599453);
  return T(place_t((y < 0 ? place_t(0) : y) + rest) * inverse);
}
template <int W, int I, ap_q_mode Q, ap_o_mode O>
int whole_of(ap_fixed<W, I, Q, O> x) {
  return x.to_int();
}
template <class T>
T floor_of(T x) {
  return T(floor_int(x));
}
template <class T>
T ceil_of(T x) {
  return T(x.to_int() < x ? x.to_int() + 1 : x.to_int());
}
template <class T>
T trunc_of(T x) {
  return T(x.to_int());
}
// Of two that are as near, the even one.
template <class T>
T round_of(T x) {
  const int up = floor_int(mid_t(x + mid_t(0.5)));
  return T(up - x == mid_t(0.5) && up % 2 ? up - 1 : up);
}
)";

}  // namespace spmdx::emit::hls
