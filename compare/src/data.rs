//! The rows every engine is given: an 8-byte big-endian id → 270 bytes, half of them random, and
//! three index entries of 20, 24 and 28 bytes without a value. All from the id and a version, so that
//! any reader can check what it got.

/// Bytes of a row's value.
pub const VALUE_BYTES: usize = 270;

/// A small, fast generator (splitmix64): good enough for keys, cheap enough not to be measured.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// The primary key of row `id`.
pub fn key(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

/// Which of `parts` even parts of a table's key range holds this entry.
pub fn part(table: usize, key: &[u8], parts: u64) -> u64 {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let (at, range) = match table {
        2 => (number(&key[..4]), 1000),
        _ => (number(&key[..8]), 1_005_000),
    };
    (at * parts / range).min(parts - 1)
}

/// The value of row `id` at `version`.
pub fn value(id: u64, version: u64, into: &mut [u8; VALUE_BYTES]) {
    into.fill(b'f');
    into[..8].copy_from_slice(&id.to_be_bytes());
    into[8..16].copy_from_slice(&version.to_be_bytes());
    let mut random = Random(id ^ (version << 40));
    for chunk in into[16..16 + VALUE_BYTES / 2].chunks_mut(8) {
        let bytes = random.next().to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}

/// The index entries of row `id`: (table, key).
pub fn entries(id: u64, mut each: impl FnMut(usize, &[u8])) {
    let mut random = Random(id.wrapping_mul(0x2545_F491_4F6C_DD1D));
    let customer = random.below(100_000);
    let price = (random.below(500_000) + customer * 1000) / 100;
    let cash = random.below(1000);
    let mut at = [0u8; 28];
    at[..8].copy_from_slice(&price.to_be_bytes());
    at[8..12].copy_from_slice(&(customer as u32).to_be_bytes());
    at[12..20].copy_from_slice(&id.to_be_bytes());
    each(1, &at[..20]);
    at[..4].copy_from_slice(&(cash as u32).to_be_bytes());
    at[4..12].copy_from_slice(&price.to_be_bytes());
    at[12..16].copy_from_slice(&(customer as u32).to_be_bytes());
    at[16..24].copy_from_slice(&id.to_be_bytes());
    each(2, &at[..24]);
    at[..8].copy_from_slice(&price.to_be_bytes());
    at[8..16].copy_from_slice(&(id / 1000).to_be_bytes());
    at[16..20].copy_from_slice(&(customer as u32).to_be_bytes());
    at[20..28].copy_from_slice(&id.to_be_bytes());
    each(3, &at[..28]);
}
