//! Signed fixed-point numbers of 384 bits before the point and 384 behind: about 115 digits each
//! way, far more than the 34 of a decimal, so that series and differences have room for error.
//!
//! Always true: callers keep magnitudes below 10^60, so nothing here overflows.

use std::cmp::Ordering;

const LIMBS: usize = 12;
const FRACTION: usize = 6;

/// A sign and little-endian limbs; the point stands before limb [`FRACTION`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fixed {
    pub(super) negative: bool,
    pub(super) limbs: [u64; LIMBS],
}

impl Fixed {
    pub(super) const ZERO: Self = Self { negative: false, limbs: [0; LIMBS] };

    pub(super) fn from_int(value: u128) -> Self {
        let mut limbs = [0; LIMBS];
        limbs[FRACTION] = value as u64;
        limbs[FRACTION + 1] = (value >> 64) as u64;
        Self { negative: false, limbs }
    }

    /// A double of moderate size, exactly.
    pub(super) fn from_f64(value: f64) -> Self {
        let (mut rest, mut limbs) = (value.abs(), [0_u64; LIMBS]);
        let whole = rest.trunc();
        limbs[FRACTION] = whole as u64;
        rest -= whole;
        for limb in (0..FRACTION).rev() {
            rest *= 18_446_744_073_709_551_616.0;
            limbs[limb] = rest.trunc() as u64;
            rest -= rest.trunc();
        }
        Self { negative: value < 0.0, limbs }
    }

    /// The nearest double, or one close to it.
    pub(super) fn to_f64(self) -> f64 {
        let mut value = 0.0;
        for limb in self.limbs.iter().rev() {
            value = value * 18_446_744_073_709_551_616.0 + *limb as f64;
        }
        value *= 2_f64.powi(-64 * FRACTION as i32);
        if self.negative { -value } else { value }
    }

    pub(super) fn is_zero(self) -> bool {
        self.limbs.iter().all(|limb| *limb == 0)
    }

    pub(super) fn neg(self) -> Self {
        Self { negative: !self.negative, ..self }
    }

    pub(super) fn abs(self) -> Self {
        Self { negative: false, ..self }
    }

    /// The part before the point, of magnitudes below 2^64.
    pub(super) fn whole(self) -> u64 {
        self.limbs[FRACTION]
    }

    /// The magnitude without what stands before the point.
    pub(super) fn fraction(mut self) -> Self {
        self.limbs[FRACTION..].fill(0);
        self
    }

    fn compare_magnitude(self, other: Self) -> Ordering {
        self.limbs.iter().rev().cmp(other.limbs.iter().rev())
    }

    pub(super) fn compare(self, other: Self) -> Ordering {
        self.sub(other).sign()
    }

    fn sign(self) -> Ordering {
        match (self.is_zero(), self.negative) {
            (true, _) => Ordering::Equal,
            (_, true) => Ordering::Less,
            _ => Ordering::Greater,
        }
    }

    fn add_magnitude(self, other: Self) -> Self {
        let (mut sum, mut carry) = (self, false);
        for (limb, more) in sum.limbs.iter_mut().zip(other.limbs) {
            let (partial, first) = limb.overflowing_add(more);
            let (total, second) = partial.overflowing_add(u64::from(carry));
            (*limb, carry) = (total, first || second);
        }
        sum
    }

    /// `self` has the greater magnitude.
    fn sub_magnitude(self, other: Self) -> Self {
        let (mut rest, mut borrow) = (self, false);
        for (limb, less) in rest.limbs.iter_mut().zip(other.limbs) {
            let (partial, first) = limb.overflowing_sub(less);
            let (total, second) = partial.overflowing_sub(u64::from(borrow));
            (*limb, borrow) = (total, first || second);
        }
        rest
    }

    pub(super) fn add(self, other: Self) -> Self {
        if self.negative == other.negative {
            return self.add_magnitude(other);
        }
        match self.compare_magnitude(other) {
            Ordering::Less => other.sub_magnitude(self),
            _ => self.sub_magnitude(other),
        }
    }

    pub(super) fn sub(self, other: Self) -> Self {
        self.add(other.neg())
    }

    pub(super) fn mul(self, other: Self) -> Self {
        let mut wide = [0_u64; 2 * LIMBS];
        for (at, a) in self.limbs.iter().enumerate() {
            let mut carry = 0_u128;
            for (with, b) in other.limbs.iter().enumerate() {
                let sum = u128::from(*a) * u128::from(*b) + u128::from(wide[at + with]) + carry;
                wide[at + with] = sum as u64;
                carry = sum >> 64;
            }
            wide[at + LIMBS] = carry as u64;
        }
        let mut limbs = [0; LIMBS];
        limbs.copy_from_slice(&wide[FRACTION..FRACTION + LIMBS]);
        Self { negative: self.negative != other.negative, limbs }
    }

    pub(super) fn times(mut self, factor: u64) -> Self {
        let mut carry = 0_u128;
        for limb in &mut self.limbs {
            let product = u128::from(*limb) * u128::from(factor) + carry;
            *limb = product as u64;
            carry = product >> 64;
        }
        self
    }

    /// Divided by a number that is not zero.
    pub(super) fn over(mut self, divisor: u64) -> Self {
        let divisor = u128::from(divisor.max(1));
        let mut rest = 0_u128;
        for limb in self.limbs.iter_mut().rev() {
            let part = (rest << 64) | u128::from(*limb);
            *limb = (part / divisor) as u64;
            rest = part % divisor;
        }
        self
    }

    /// Quotient; zero where the divisor is. By Newton's iteration on the reciprocal.
    pub(super) fn div(self, other: Self) -> Self {
        if other.is_zero() {
            return Self::ZERO;
        }
        // Scaled by a power of two so that the divisor is near one.
        let shift = other.exponent();
        let divisor = other.abs().shifted(-shift);
        let two = Self::from_int(2);
        let mut inverse = Self::from_f64(1.0 / divisor.to_f64());
        for _ in 0..4 {
            inverse = inverse.mul(two.sub(divisor.mul(inverse)));
        }
        let quotient = self.shifted(-shift).mul(inverse);
        Self { negative: self.negative != other.negative, ..quotient }
    }

    /// `k` where the magnitude is in `[2^k, 2^(k+1))`.
    pub(super) fn exponent(self) -> i32 {
        for (at, limb) in self.limbs.iter().enumerate().rev() {
            if *limb != 0 {
                return (64 * (at as i32 - FRACTION as i32 + 1)) - 1 - limb.leading_zeros() as i32;
            }
        }
        0
    }

    /// Times `2^by`.
    pub(super) fn shifted(self, by: i32) -> Self {
        let (limbs, bits) = ((by.unsigned_abs() / 64) as usize, by.unsigned_abs() % 64);
        let mut moved = [0_u64; LIMBS];
        for (at, limb) in moved.iter_mut().enumerate() {
            let part =
                |at: Option<usize>| at.and_then(|at| self.limbs.get(at)).copied().unwrap_or(0);
            let (near, far) = if by >= 0 {
                let from = at.checked_sub(limbs);
                (part(from), part(from.and_then(|from| from.checked_sub(1))))
            } else {
                (part(Some(at + limbs)), part(Some(at + limbs + 1)))
            };
            *limb = match (bits, by >= 0) {
                (0, _) => near,
                (bits, true) => (near << bits) | (far >> (64 - bits)),
                (bits, false) => (near >> bits) | (far << (64 - bits)),
            };
        }
        Self { negative: self.negative, limbs: moved }
    }

    /// Square root of the magnitude.
    pub(super) fn sqrt(self) -> Self {
        if self.is_zero() {
            return Self::ZERO;
        }
        let half = self.exponent().div_euclid(2);
        let scaled = self.abs().shifted(-2 * half);
        let mut root = Self::from_f64(scaled.to_f64().sqrt());
        for _ in 0..4 {
            root = root.add(scaled.div(root)).over(2);
        }
        root.shifted(half)
    }
}
