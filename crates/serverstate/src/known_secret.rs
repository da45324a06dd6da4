//! What is derived from the secret that a set keeps, and where the server keeps what it knows of it.
//!
//! Always true: what is derived depends on the secret alone.

use auth::{Secret, TimeFlaw, TimeKeys, TimeSignature, keyed_digest};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is derived from a secret.
pub(crate) struct SharedSecret {
    /// Tells this one from those of other servers in the process.
    number: u64,
    times: TimeKeys,
    mock_credentials: Secret,
}

impl SharedSecret {
    pub(crate) fn of(secret: &Secret) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let purpose: &[u8] = b"credentials of users that do not exist";
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            times: TimeKeys::of(secret),
            mock_credentials: Secret::new(keyed_digest(secret, &[purpose]).to_vec()),
        }
    }

    /// Signs a time; the signature that this thread has made last is used for all times of its block.
    pub(crate) fn sign(&self, time: u64) -> TimeSignature {
        thread_local! {
            static LAST: Cell<(u64, u64, TimeSignature)> =
                const { Cell::new((0, 0, TimeSignature::NONE)) };
        }
        let block = TimeKeys::block_of(time);
        LAST.with(|last| {
            let (of, signed, signature) = last.get();
            if (of, signed) == (self.number, block) {
                return signature;
            }
            let signature = self.times.sign(time);
            last.set((self.number, block, signature));
            signature
        })
    }

    /// Whether a signature is this set's, of this time.
    pub(crate) fn check(&self, time: u64, given: &TimeSignature) -> Result<(), TimeFlaw> {
        self.times.check(time, given)
    }

    /// What made-up credentials are made of.
    pub(crate) fn mock_credentials(&self) -> &Secret {
        &self.mock_credentials
    }
}

/// Where the server keeps what it knows of the secret.
#[derive(Default)]
pub(crate) struct KnownSecret {
    pub(crate) known: OnceLock<SharedSecret>,
    /// It was told that the stored one is not understood.
    pub(crate) is_told: AtomicBool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 32;

    #[test]
    fn a_threads_last_signature_is_of_its_secret_and_its_block() {
        let [one, two] = [1, 2].map(|byte| SharedSecret::of(&Secret::new(vec![byte; BYTES])));
        let time = 1_800_000_000_u64 << 32 | 1;
        for _ in 0..2 {
            for (secret, time) in
                [(&one, time), (&two, time), (&one, time + 1), (&one, time + (1 << 32))]
            {
                let signature = secret.sign(time);
                assert_eq!(signature, secret.times.sign(time));
                assert_eq!(secret.check(time, &signature), Ok(()));
            }
        }
        assert_ne!(one.sign(time), two.sign(time));
        assert_ne!(one.mock_credentials.bytes(), two.mock_credentials.bytes());
    }
}
