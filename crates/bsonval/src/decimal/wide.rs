//! Unsigned 256-bit integers: just what decimal arithmetic needs.
//!
//! Always true: callers keep values below 10^76, so nothing here wraps.

use std::cmp::Ordering;

/// `high * 2^128 + low`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wide {
    high: u128,
    low: u128,
}

impl From<u128> for Wide {
    fn from(low: u128) -> Self {
        Self { high: 0, low }
    }
}

impl Wide {
    pub(super) fn product(a: u128, b: u128) -> Self {
        const MASK: u128 = u64::MAX as u128;
        let (a1, a0) = (a >> 64, a & MASK);
        let (b1, b0) = (b >> 64, b & MASK);
        let low = a0 * b0;
        let middle = a1 * b0 + (low >> 64);
        let middle2 = a0 * b1 + (middle & MASK);
        Self {
            high: a1 * b1 + (middle >> 64) + (middle2 >> 64),
            low: (middle2 << 64) | (low & MASK),
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        let (low, carry) = self.low.overflowing_add(other.low);
        Self { high: self.high.wrapping_add(other.high).wrapping_add(u128::from(carry)), low }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        let (low, borrow) = self.low.overflowing_sub(other.low);
        Self { high: self.high.wrapping_sub(other.high).wrapping_sub(u128::from(borrow)), low }
    }

    fn times(self, factor: u128) -> Self {
        let low = Self::product(self.low, factor);
        Self { high: low.high.wrapping_add(self.high.wrapping_mul(factor)), low: low.low }
    }

    pub(super) fn times_ten_to(self, mut power: u32) -> Self {
        let mut result = self;
        while power > 0 {
            let step = power.min(37);
            result = result.times(10_u128.pow(step));
            power -= step;
        }
        result
    }

    /// Quotient and remainder by a divisor below 2^127 (bit by bit: at most 256 steps).
    pub(super) fn div_rem(self, divisor: u128) -> (Self, u128) {
        if self.high == 0 {
            return (Self::from(self.low / divisor), self.low % divisor);
        }
        let (mut quotient, mut rest) = (Self::from(0), 0_u128);
        for bit in (0..256).rev() {
            let next = if bit >= 128 { self.high >> (bit - 128) } else { self.low >> bit } & 1;
            rest = (rest << 1) | next;
            if rest >= divisor {
                rest -= divisor;
                if bit >= 128 {
                    quotient.high |= 1 << (bit - 128);
                } else {
                    quotient.low |= 1 << bit;
                }
            }
        }
        (quotient, rest)
    }

    /// The whole part of the square root, and whether that is all of it; of a value from 10^60 to
    /// below 10^74, so that the root and its neighbours fit.
    pub(super) fn root(self) -> (u128, bool) {
        let rough = (self.high as f64 * 2_f64.powi(128) + self.low as f64).sqrt();
        let mut root = rough as u128;
        // The guess has 15 digits, and each of Newton's steps doubles them.
        for _ in 0..3 {
            root = u128::midpoint(root, self.div_rem(root).0.low);
        }
        while Self::product(root, root) > self {
            root -= 1;
        }
        while Self::product(root + 1, root + 1) <= self {
            root += 1;
        }
        (root, Self::product(root, root) == self)
    }

    /// Decimal digits; one for zero.
    pub(super) fn digits(self) -> u32 {
        if self.high == 0 {
            return self.low.checked_ilog10().unwrap_or(0) + 1;
        }
        let (quotient, _) = self.div_rem(10_u128.pow(38));
        38 + quotient.digits()
    }

    /// Whether it is a multiple of `10^power`.
    pub(super) fn ends_in_zeros(self, power: u32) -> bool {
        let (mut value, mut left) = (self, power);
        while left > 0 && value != Self::from(0) {
            let step = left.min(37);
            let (quotient, rest) = value.div_rem(10_u128.pow(step));
            if rest != 0 {
                return false;
            }
            (value, left) = (quotient, left - step);
        }
        true
    }

    /// Divided by `10^power`, rounded half to even.
    pub(super) fn divided_by_ten_to(self, power: u32) -> u128 {
        if power == 0 {
            return self.low;
        }
        let mut value = self;
        let mut left = power;
        let mut sticky = false;
        while left > 37 {
            let (quotient, rest) = value.div_rem(10_u128.pow(37));
            sticky |= rest != 0;
            value = quotient;
            left -= 37;
        }
        let unit = 10_u128.pow(left);
        let (quotient, rest) = value.div_rem(unit);
        let up = match rest.cmp(&(unit / 2)) {
            Ordering::Less => false,
            Ordering::Greater => true,
            Ordering::Equal => (left > 0 && sticky) || quotient.low % 2 == 1,
        };
        quotient.low + u128::from(up)
    }
}
