//! To which dictionaries the records of an entry write, for who follows few of them.
//!
//! Always true: of what is known nothing is missing.

use smallvec::SmallVec;

/// So many dictionaries that an entry writes to are told.
const MOST_TOLD: usize = 16;

/// The dictionaries to whose keys the commits of an entry write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WrittenDictionaries {
    /// These, in no order.
    Known(SmallVec<[u64; 2]>),
    /// They are many, or were not looked for.
    Unknown,
}

impl WrittenDictionaries {
    pub(crate) fn add(&mut self, dictionary: u64) {
        let Self::Known(known) = self else { return };
        // Operations of one dictionary stand together.
        if known.last() == Some(&dictionary) || known.contains(&dictionary) {
            return;
        }
        if known.len() < MOST_TOLD {
            known.push(dictionary);
        } else {
            *self = Self::Unknown;
        }
    }
}

impl Default for WrittenDictionaries {
    fn default() -> Self {
        Self::Known(SmallVec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_dictionaries_are_not_told_apart() {
        let mut written = WrittenDictionaries::default();
        for dictionary in [3, 3, 7, 3] {
            written.add(dictionary);
        }
        assert_eq!(written, WrittenDictionaries::Known([3, 7].into_iter().collect()));
        for dictionary in 0..=MOST_TOLD as u64 {
            written.add(dictionary);
        }
        assert_eq!(written, WrittenDictionaries::Unknown);
        written.add(3);
        assert_eq!(written, WrittenDictionaries::Unknown);
    }
}
