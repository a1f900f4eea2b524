// SPDX-License-Identifier: Apache-2.0
// The text of own_fixed.h.
#include "emit/hls/project/project.h"

namespace spmdx::emit::hls {

const char* const kOwnFixed = R"(// SPDX-License-Identifier: Apache-2.0
// A stand-in for the vendor's ap_fixed.h, so that g++ compiles the design: fixed points of at most 64 bits, of which I
// are before the point. What is told of the vendor's type, this does: results of + - * are exact, and are rounded where
// they are kept: AP_RND to the nearest (of two, to the larger one), AP_TRN down; beyond its ends a number stays at the
// end (AP_SAT), or loses its first bits (AP_WRAP). A quotient has the fraction of the dividend, cut towards 0.
#pragma once
#include <cstdint>
#include <type_traits>

enum ap_q_mode { AP_RND, AP_TRN };
enum ap_o_mode { AP_SAT, AP_WRAP };
typedef __int128 ap_whole;

// raw / 2^F, of up to 128 bits: what an operator gives.
template <int F>
struct ap_exact {
  ap_whole raw;
};

template <int W, int I, ap_q_mode Q = AP_TRN, ap_o_mode O = AP_WRAP>
class ap_fixed {
  static_assert(W <= 64 && I <= W, "at most 64 bits");

 public:
  static const int width = W, iwidth = I;
  constexpr ap_fixed() : raw_(0) {}
  constexpr ap_fixed(int number) : raw_(fitted(ap_whole(number) << (W - I))) {}
  constexpr ap_fixed(double number) : raw_(of_double(number)) {}
  constexpr ap_fixed(float number) : raw_(of_double(number)) {}
  template <int F>
  constexpr ap_fixed(ap_exact<F> x) : raw_(rounded<F>(x.raw)) {}
  template <int W2, int I2, ap_q_mode Q2, ap_o_mode O2>
  constexpr ap_fixed(const ap_fixed<W2, I2, Q2, O2>& x) : raw_(rounded<W2 - I2>(x.raw())) {}

  constexpr int64_t raw() const { return raw_; }
  double to_double() const { return double(raw_) / double(ap_whole(1) << (W - I)); }
  int to_int() const { return int(raw_ / (ap_whole(1) << (W - I))); }  // towards 0
  ap_fixed operator<<(int bits) const { return of_raw(fitted_in_width(ap_whole(raw_) << bits)); }
  ap_fixed operator>>(int bits) const { return of_raw(bits > 63 ? (raw_ < 0 ? -1 : 0) : raw_ >> bits); }

 private:
  static ap_fixed of_raw(int64_t raw) {
    ap_fixed made;
    made.raw_ = raw;
    return made;
  }
  static constexpr int64_t fitted_in_width(ap_whole raw) {
    return int64_t(uint64_t(raw) << (64 - W)) >> (64 - W);
  }
  static constexpr int64_t fitted(ap_whole raw) {
    const ap_whole most = (ap_whole(1) << (W - 1)) - 1;
    if (O == AP_SAT && raw > most) return int64_t(most);
    if (O == AP_SAT && raw < -most - 1) return int64_t(-most - 1);
    return fitted_in_width(raw);
  }
  template <int F>
  static constexpr int64_t rounded(ap_whole raw) {
    constexpr int less = F - (W - I);
    if constexpr (less <= 0) {
      return fitted(raw << -less);
    } else {
      if (Q == AP_RND) raw += ap_whole(1) << (less - 1);
      return fitted(raw >> less);
    }
  }
  static constexpr int64_t of_double(double number) {
    const double scale = double(ap_whole(1) << (W - I)), end = double(ap_whole(1) << 100);
    const double wanted = number * scale + (Q == AP_RND ? 0.5 : 0.0);
    const double kept = wanted > end ? end : wanted < -end ? -end : wanted == wanted ? wanted : 0;
    const ap_whole whole = ap_whole(kept);
    return fitted(double(whole) > kept ? whole - 1 : whole);
  }

  int64_t raw_;
};

// What operators take: fixed points, exact results, and integers beside them.
template <class T>
struct ap_part {
  static constexpr bool is_any = std::is_same_v<T, int>, is_fixed = false;
  static constexpr int fraction = 0;
  static ap_whole raw(T x) { return x; }
};
template <int F>
struct ap_part<ap_exact<F>> {
  static constexpr bool is_any = true, is_fixed = true;
  static constexpr int fraction = F;
  static ap_whole raw(ap_exact<F> x) { return x.raw; }
};
template <int W, int I, ap_q_mode Q, ap_o_mode O>
struct ap_part<ap_fixed<W, I, Q, O>> {
  static constexpr bool is_any = true, is_fixed = true;
  static constexpr int fraction = W - I;
  static ap_whole raw(ap_fixed<W, I, Q, O> x) { return x.raw(); }
};
template <class A, class B>
struct ap_pair {
  typedef ap_part<A> a;
  typedef ap_part<B> b;
  static constexpr int fraction = a::fraction > b::fraction ? a::fraction : b::fraction;
  static ap_whole first(A x) { return a::raw(x) << (fraction - a::fraction); }
  static ap_whole second(B x) { return b::raw(x) << (fraction - b::fraction); }
};
#define AP_OPERATOR template <class A, class B, class = std::enable_if_t<ap_part<A>::is_any && ap_part<B>::is_any && \
                                                           (ap_part<A>::is_fixed || ap_part<B>::is_fixed)>>
AP_OPERATOR auto operator+(A x, B y) {
  typedef ap_pair<A, B> pair;
  return ap_exact<pair::fraction>{pair::first(x) + pair::second(y)};
}
AP_OPERATOR auto operator-(A x, B y) {
  typedef ap_pair<A, B> pair;
  return ap_exact<pair::fraction>{pair::first(x) - pair::second(y)};
}
AP_OPERATOR auto operator*(A x, B y) {
  return ap_exact<ap_part<A>::fraction + ap_part<B>::fraction>{ap_part<A>::raw(x) * ap_part<B>::raw(y)};
}
AP_OPERATOR auto operator/(A x, B y) {
  return ap_exact<ap_part<A>::fraction>{(ap_part<A>::raw(x) << ap_part<B>::fraction) / ap_part<B>::raw(y)};
}
template <class A, class = std::enable_if_t<ap_part<A>::is_fixed>>
auto operator-(A x) {
  return ap_exact<ap_part<A>::fraction>{-ap_part<A>::raw(x)};
}
#define AP_COMPARISON(sign) \
  AP_OPERATOR bool operator sign(A x, B y) { return ap_pair<A, B>::first(x) sign ap_pair<A, B>::second(y); }
AP_COMPARISON(==)
AP_COMPARISON(!=)
AP_COMPARISON(<)
AP_COMPARISON(<=)
AP_COMPARISON(>)
AP_COMPARISON(>=)
)";

}  // namespace spmdx::emit::hls
