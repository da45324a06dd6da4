//! Mutations that decoders of lengths, tags and offsets dislike, deterministic from a seed.

/// A small generator (splitmix64), so that a finding depends on nothing but its seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that starts at `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, or 0 where `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.bits() % bound as u64) as usize }
    }
}

/// Values that lengths, counts and tags break on.
const EDGES: [u32; 14] =
    [0, 1, 4, 5, 15, 16, 0x7F, 0x80, 0xFF, 0xFFFF, 0x0100_0000, 0x7FFF_FFFF, 0x8000_0000, u32::MAX];

/// Makes inputs from a corpus.
pub struct Mutator {
    random: Random,
    corpus: Vec<Vec<u8>>,
}

impl Mutator {
    /// A mutator over `corpus`, which must not be empty.
    pub fn new(seed: u64, corpus: Vec<Vec<u8>>) -> Self {
        Self { random: Random::new(seed), corpus }
    }

    /// The next input: a corpus entry with one to eight mutations, now and then noise.
    pub fn next_input(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        if random.below(50) == 0 {
            let length = random.below(300);
            return (0..length).map(|_| random.bits() as u8).collect();
        }
        let mut input = self.corpus[random.below(self.corpus.len())].clone();
        for _ in 0..=random.below(8) {
            let other = self.corpus[random.below(self.corpus.len())].as_slice();
            mutate(random, &mut input, other);
        }
        input
    }
}

fn mutate(random: &mut Random, input: &mut Vec<u8>, other: &[u8]) {
    let at = random.below(input.len());
    match random.below(9) {
        0 if !input.is_empty() => input[at] ^= 1 << random.below(8),
        1 if !input.is_empty() => input[at] = random.bits() as u8,
        2 if input.len() >= 4 => {
            let at = random.below(input.len() - 3);
            let edge = EDGES[random.below(EDGES.len())];
            input[at..at + 4].copy_from_slice(&edge.to_le_bytes());
        }
        3 if input.len() >= 4 => {
            let at = random.below(input.len() - 3);
            let old = u32::from_le_bytes([input[at], input[at + 1], input[at + 2], input[at + 3]]);
            let new = old.wrapping_add(random.below(9) as u32).wrapping_sub(4);
            input[at..at + 4].copy_from_slice(&new.to_le_bytes());
        }
        4 => input.truncate(at),
        5 => {
            let end = (at + random.below(16)).min(input.len());
            input.drain(at..end);
        }
        6 => {
            let piece: Vec<u8> = (0..random.below(16)).map(|_| random.bits() as u8).collect();
            input.splice(at..at, piece);
        }
        7 => {
            let from = random.below(other.len());
            let to = (from + random.below(64)).min(other.len());
            input.splice(at..at, other[from..to].iter().copied());
        }
        _ => {
            let end = (at + random.below(64)).min(input.len());
            let piece = input[at..end].to_vec();
            input.splice(at..at, piece);
        }
    }
}
