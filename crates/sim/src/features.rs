//! What a run may do. Each seed switches a random half off, so that one run does much of little:
//! bugs hide where everything always happens at once.

use testkit::Gen;

/// One kind of work or fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Feature {
    /// Dictionaries come and go.
    Dictionaries,
    /// Values much larger than a page.
    BigValues,
    /// Savepoints and rollbacks to them.
    Savepoints,
    /// Snapshots and cursors that live long.
    Snapshots,
    /// Checkpoints asked for, besides those that are due.
    Checkpoints,
    /// Hot backups, opened and compared.
    Backups,
    /// Clean closes and reopens.
    Closes,
    /// The power goes.
    Crashes,
    /// The power goes again during recovery.
    NestedCrashes,
    /// Reads, writes and syncs answer EIO.
    IoErrors,
    /// The disk fills up.
    FullDisk,
    /// Bits flip, writes and reads go astray, writes are lost.
    Damage,
    /// Commits end by a bug.
    CommitPanics,
    /// The log is kept as the history, and is followed.
    History,
    /// What is stored is encrypted.
    Encryption,
    /// Dictionaries are filled past the log.
    Loads,
    /// Writes that say how a value changes, and do not read it.
    FastUpdates,
    /// Ranges are deleted at once.
    Tombstones,
}

/// Every feature, in the order of its bit.
pub(crate) const ALL: [Feature; 18] = [
    Feature::Dictionaries,
    Feature::BigValues,
    Feature::Savepoints,
    Feature::Snapshots,
    Feature::Checkpoints,
    Feature::Backups,
    Feature::Closes,
    Feature::Crashes,
    Feature::NestedCrashes,
    Feature::IoErrors,
    Feature::FullDisk,
    Feature::Damage,
    Feature::CommitPanics,
    Feature::History,
    Feature::Encryption,
    Feature::Loads,
    Feature::FastUpdates,
    Feature::Tombstones,
];

/// A set of features.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Features(u32);

impl Features {
    /// A random subset. Damage ends a run early, so it is in every fourth only.
    pub(crate) fn random(random: &mut Gen) -> Self {
        let mut chosen = Self(0);
        for feature in ALL {
            let on = match feature {
                Feature::Damage => random.one_in(4),
                Feature::IoErrors
                | Feature::FullDisk
                | Feature::History
                | Feature::Encryption
                | Feature::Tombstones => random.one_in(3),
                // Each ends the process.
                Feature::CommitPanics => random.one_in(6),
                Feature::Crashes => !random.one_in(4),
                _ => random.one_in(2),
            };
            if on {
                chosen.0 |= 1 << feature as u8;
            }
        }
        chosen
    }

    /// Crashes beside a history that is followed, and nothing else.
    pub fn only_followed() -> Self {
        Self(1 << Feature::Crashes as u8 | 1 << Feature::History as u8)
    }

    /// Crashes and checkpoints beside loads, and snapshots that live long.
    pub fn only_loads() -> Self {
        let all = [Feature::Crashes, Feature::Checkpoints, Feature::Snapshots, Feature::Loads];
        Self(all.into_iter().fold(0, |all, feature| all | 1 << feature as u8))
    }

    /// Updates beside what folds, moves and replays them.
    pub fn only_fast_updates() -> Self {
        let also =
            [Feature::Snapshots, Feature::Savepoints, Feature::Crashes, Feature::Checkpoints];
        also.into_iter().fold(Self(1 << Feature::FastUpdates as u8), |features, feature| {
            Self(features.0 | 1 << feature as u8)
        })
    }

    /// Deletes of ranges beside snapshots, checkpoints and crashes.
    pub fn only_tombstones() -> Self {
        let all = [
            Feature::Tombstones,
            Feature::Dictionaries,
            Feature::Snapshots,
            Feature::Checkpoints,
            Feature::Crashes,
        ];
        Self(all.into_iter().fold(0, |bits, feature| bits | 1 << feature as u8))
    }

    /// Nothing.
    pub(crate) fn none() -> Self {
        Self(0)
    }

    /// Whether it is in.
    pub fn has(self, feature: Feature) -> bool {
        self.0 & (1 << feature as u8) != 0
    }

    /// The same without it.
    #[must_use]
    pub fn without(self, feature: Feature) -> Self {
        Self(self.0 & !(1 << feature as u8))
    }

    /// Those that are in.
    pub fn list(self) -> Vec<Feature> {
        ALL.into_iter().filter(|feature| self.has(*feature)).collect()
    }
}

impl std::fmt::Debug for Features {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.list()).finish()
    }
}
