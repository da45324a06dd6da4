//! Memory of something that grows piece by piece: an array, a set, a table of groups.
//!
//! Always true: what has grown beyond [`UNCHARGED_BYTES`] is charged before it grows further. It is
//! charged in steps of an eighth, so that a piece costs one comparison; what stays small costs
//! nothing and is part of what the account leaves to the program itself.

use crate::{Charge, Part, charge};
use errors::Result;

/// What a single value may take without being charged.
pub const UNCHARGED_BYTES: usize = 16 << 10;

/// The memory of one growing thing; given back when dropped.
#[derive(Debug)]
pub struct Growth {
    part: Part,
    charge: Option<Charge>,
    /// Up to here nothing needs to be asked.
    granted: usize,
}

impl Growth {
    /// Of something that is empty.
    pub const fn new(part: Part) -> Self {
        Self { part, charge: None, granted: UNCHARGED_BYTES }
    }

    /// Of something that was charged already, as far as it was.
    pub fn from_charge(part: Part, charge: Option<Charge>) -> Self {
        let granted = charge.as_ref().map_or(UNCHARGED_BYTES, |charge| charge.bytes() as usize);
        Self { part, charge, granted }
    }

    /// It is about to take so many bytes altogether. Fails with `ExceededMemoryLimit` (146) where
    /// there is no room.
    #[inline]
    pub fn reach(&mut self, bytes: usize) -> Result<()> {
        if bytes <= self.granted { Ok(()) } else { self.extend(bytes) }
    }

    #[cold]
    fn extend(&mut self, bytes: usize) -> Result<()> {
        let wanted = bytes.saturating_add(bytes / 8);
        match &mut self.charge {
            Some(charge) => charge.try_set(wanted as u64)?,
            none => *none = Some(charge(self.part, wanted)?),
        }
        self.granted = wanted;
        Ok(())
    }

    /// It takes so many bytes now, fewer than before: what it gave up is given back.
    pub fn shrink(&mut self, bytes: usize) {
        if let Some(charge) = &mut self.charge {
            charge.set(bytes as u64);
            self.granted = bytes.max(UNCHARGED_BYTES);
        }
    }

    /// The charge, for what has grown to its end; none where it stayed small.
    pub fn into_charge(self) -> Option<Charge> {
        self.charge
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Account, Interrupt, enter};
    use std::sync::Arc;

    struct Never;

    impl Interrupt for Never {
        fn check(&self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_grows_is_charged_in_steps_and_refused_at_the_bound() {
        let account = Account::new(1 << 20);
        let _scope = enter(Arc::new(Never), Arc::clone(&account));
        let mut growth = Growth::new(Part::Values);
        growth.reach(UNCHARGED_BYTES).expect("small");
        assert_eq!(account.total(), 0);
        let mut bytes = UNCHARGED_BYTES;
        while growth.reach(bytes + 10).is_ok() {
            bytes += 10;
            let charged = account.total() as usize;
            assert!(charged >= bytes || bytes <= UNCHARGED_BYTES, "{charged} {bytes}");
            assert!(charged <= bytes + bytes / 8 + 16, "{charged} {bytes}");
        }
        assert!(bytes > 800 << 10 && bytes <= 1 << 20, "{bytes}");
        growth.shrink(100_000);
        assert_eq!(account.total(), 100_000);
        drop(growth);
        assert_eq!(account.total(), 0);
    }
}
