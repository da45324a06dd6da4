//! Keys, values and choices from a seed.

use os::sim::SimRng;

/// A deterministic generator of test data.
#[derive(Clone, Debug)]
pub struct Gen(SimRng);

impl Gen {
    /// A generator for this seed.
    pub fn new(seed: u64) -> Self {
        Self(SimRng::new(seed))
    }

    /// The next number.
    pub fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of the items; `None` where there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len() as u64) as usize)
    }

    /// A number below `bound` that is small most of the time: half of all are in the lowest tenth.
    pub fn skewed(&mut self, bound: u64) -> u64 {
        if self.one_in(2) { self.below(bound) } else { self.below(bound.div_ceil(10)) }
    }

    /// Bytes of a random length up to `most`, without structure.
    pub fn bytes(&mut self, most: u64) -> Vec<u8> {
        let len = self.below(most + 1);
        (0..len).map(|_| self.u64() as u8).collect()
    }

    /// A key from a space of `space` keys: long shared prefixes, varying lengths, sometimes one the
    /// prefix of another.
    pub fn key(&mut self, space: u64) -> Vec<u8> {
        Self::key_of(self.skewed(space))
    }

    /// The key of a number: those below `space` are all that [`Gen::key`] makes of it.
    pub fn key_of(n: u64) -> Vec<u8> {
        let mut key = format!("k/{}/", n % 7).into_bytes();
        key.extend_from_slice(n.to_string().as_bytes());
        key.resize(key.len() + (n % 5) as usize * (n % 3) as usize, b'.');
        key
    }

    /// A value of up to `most` bytes that compresses about two to one.
    pub fn value(&mut self, most: u64) -> Vec<u8> {
        let len = self.below(most + 1) as usize;
        let mut value = Vec::with_capacity(len + 16);
        while value.len() < len {
            value.extend_from_slice(&self.u64().to_le_bytes());
            value.extend_from_slice(b"fern-fern");
        }
        value.truncate(len);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_data() {
        let make = |seed| {
            let mut data = Gen::new(seed);
            (data.key(100), data.value(500), data.bytes(30))
        };
        assert_eq!(make(4), make(4));
        assert_ne!(make(4), make(5));
    }

    #[test]
    fn keys_come_from_their_space() {
        let mut data = Gen::new(1);
        let keys: std::collections::BTreeSet<_> = (0..5000).map(|_| data.key(50)).collect();
        assert_eq!(keys.len(), 50);
    }
}
