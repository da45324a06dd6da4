//! What can go wrong on the simulated disk, by chance or by plan.

/// Rates of random faults, in cases per million calls, and the size of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Bytes the disk holds; a change that would need more returns `StorageFull`.
    pub capacity_bytes: u64,
    /// A read returns EIO.
    pub read_error_ppm: u32,
    /// A write returns EIO and changes nothing.
    pub write_error_ppm: u32,
    /// A write stores a part and then returns EIO.
    pub short_write_ppm: u32,
    /// A sync returns EIO; what it should have synced is then a random subset, for good.
    pub sync_error_ppm: u32,
    /// A read's result has one bit flipped; the platter is right.
    pub read_flip_ppm: u32,
    /// A write stores one bit wrong, silently.
    pub write_flip_ppm: u32,
    /// A write lands 4 KiB further, silently.
    pub misdirected_write_ppm: u32,
    /// A read returns what is 4 KiB further.
    pub misdirected_read_ppm: u32,
    /// A write succeeds and stores nothing.
    pub dropped_write_ppm: u32,
    /// A sync, of a file or a directory, succeeds and does nothing: a disk that lies, or a
    /// program that forgot. No acknowledgement can be kept on it; a test of tests.
    pub dropped_sync_ppm: u32,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            capacity_bytes: 1 << 40,
            read_error_ppm: 0,
            write_error_ppm: 0,
            short_write_ppm: 0,
            sync_error_ppm: 0,
            read_flip_ppm: 0,
            write_flip_ppm: 0,
            misdirected_write_ppm: 0,
            misdirected_read_ppm: 0,
            dropped_write_ppm: 0,
            dropped_sync_ppm: 0,
        }
    }
}

/// One planned fault at one syscall. A kind that does not fit the call (a sync error planned for a
/// write) becomes an I/O error of that call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call returns `StorageFull` and changes nothing.
    NoSpace,
    /// The call returns EIO and changes nothing (a sync then loses a random subset).
    Io,
    /// A write stores a part, then returns EIO.
    ShortWrite,
    /// A write stores one bit wrong and succeeds.
    WriteFlip,
    /// A write lands 4 KiB further and succeeds.
    Misdirected,
    /// A write or sync succeeds and does nothing.
    Dropped,
}

/// Faults that happened, for a test that asks whether an error it sees has a cause. Crashes do not
/// count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    /// Calls that answered EIO.
    pub io_errors: u64,
    /// Calls that answered `StorageFull`.
    pub out_of_space: u64,
    /// Bytes stored or read wrong without a word.
    pub damage: u64,
    /// Syncs that answered well and did nothing.
    pub lies: u64,
}
