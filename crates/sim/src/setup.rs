//! A random engine: sizes so small that everything happens within a thousand steps.

use crate::features::{Feature, Features};
use crate::updates::Append;
use crypt::{MasterKey, NonceLog};
use engine::{Background, Compression, DictionaryOptions, HistoryOptions, Options, Sizes};
use std::sync::Arc;
use std::time::Duration;
use testkit::Gen;

/// How one run's engine is opened, and what its clients write.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) options: Options,
    /// Different keys per dictionary.
    pub(crate) keys: u64,
    /// Most bytes of a usual value.
    pub(crate) value_bytes: u64,
    pub(crate) clients: usize,
    /// The history is kept from the first commit on, whatever is changed.
    pub(crate) keeps_all_history: bool,
    keeps_history: bool,
}

impl Setup {
    pub(crate) fn random(random: &mut Gen, features: Features) -> Self {
        let mut options = Options::new("/data");
        options.cache_size = 8 << 20;
        options.background = Background::Manual;
        options.record_part = Some(crate::tombstones::record_part);
        let red_zone = features.has(Feature::FullDisk) && random.one_in(3);
        options.fs_redzone_percent = if red_zone { 5 } else { 0 };
        options.sizes.tiny_trees = !random.one_in(4);
        if features.has(Feature::Encryption) {
            options.master = Some(Arc::new(master()));
            options.nonces = Some(NonceLog::default());
        }
        options.updates = Some(Arc::new(Append { planted: None }));
        let mut setup = Self {
            options,
            keys: pick(random, &[8, 60, 60, 400]),
            value_bytes: pick(random, &[20, 200, 200, 1500]),
            clients: 1 + random.below(5) as usize,
            keeps_all_history: false,
            keeps_history: features.has(Feature::History),
        };
        if setup.keeps_history {
            setup.keeps_all_history = random.one_in(3);
        }
        setup.change(random);
        setup
    }

    /// What an operator may change between two starts.
    pub(crate) fn change(&mut self, random: &mut Gen) {
        let options = &mut self.options;
        options.lock_timeout = Duration::from_millis(pick(random, &[0, 1000]));
        options.checkpoint_period = Duration::from_millis(pick(random, &[0, 2_000, 20_000]));
        options.cleaner_period = Duration::from_millis(pick(random, &[0, 500]));
        options.log_flush_period = Duration::from_millis(pick(random, &[0, 100, 100, 1000]));
        options.compress_before_eviction = Some(random.one_in(2));
        if self.keeps_history {
            options.history = history(random, self.keeps_all_history);
        }
        let budget = pick(random, &[24 << 10, 64 << 10, 256 << 10]);
        options.sizes = Sizes {
            log_segment_bytes: pick(random, &[8 << 10, 16 << 10, 64 << 10]),
            write_budget: budget,
            most_write_budget: budget * pick(random, &[1, 1, 4]),
            memtable_bytes: budget / pick(random, &[2, 5, 12]),
            chunk_bytes: pick(random, &[100, 300, 4096]) as usize,
            spill_bytes: pick(random, &[0, 600, 4 << 10]),
            log_cap: pick(random, &[16 << 10, 64 << 10, 256 << 10]),
            frame_bytes: pick(random, &[0, 16 << 10, 256 << 10]),
            tiny_trees: options.sizes.tiny_trees,
            planted: options.sizes.planted,
            before_publishing: Some(crate::client::before_publishing),
            ..Sizes::default()
        };
    }
}

/// The key that an operator keeps: no crash touches it.
fn master() -> MasterKey {
    MasterKey::parse(format!("{}=", "A".repeat(43)).as_bytes()).expect("the base64 of 32 zeros")
}

/// How much history is kept until the next start. Now and then none is.
fn history(random: &mut Gen, all: bool) -> Option<HistoryOptions> {
    if all {
        return Some(HistoryOptions { bytes: u64::MAX, min_age: Duration::ZERO });
    }
    let bytes = pick(random, &[0, 32 << 10, 200 << 10, u64::MAX]);
    let min_age = Duration::from_millis(pick(random, &[0, 0, 2_000, 60_000]));
    (!random.one_in(8)).then_some(HistoryOptions { bytes, min_age })
}

/// The shape of a new dictionary.
pub(crate) fn dictionary(random: &mut Gen) -> DictionaryOptions {
    let compressions = [
        Compression::None,
        Compression::Lz4,
        Compression::Zlib(1),
        Compression::ZstdDefault,
        Compression::Zstd(1),
    ];
    DictionaryOptions {
        compression: *random.pick(&compressions).unwrap_or(&Compression::None),
        page_size: pick(random, &[4 << 10, 16 << 10, 1 << 20]) as u32,
        read_page_size: pick(random, &[1 << 10, 4 << 10]) as u32,
        fanout: pick(random, &[4, 16, 64]) as u16,
        leaf_filter: random.one_in(2),
    }
}

fn pick(random: &mut Gen, from: &[u64]) -> u64 {
    random.pick(from).copied().unwrap_or(0)
}
