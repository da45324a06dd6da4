//! What can go wrong on the simulated disk, by chance or by plan.

/// Rates of random faults, in cases per million calls, and the size of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Bytes the disk holds; a change that would need more answers `StorageFull`.
    pub capacity_bytes: u64,
    /// A read answers EIO.
    pub read_error_ppm: u32,
    /// A write answers EIO and changes nothing.
    pub write_error_ppm: u32,
    /// A write stores a part and then answers EIO.
    pub short_write_ppm: u32,
    /// A sync answers EIO; what it should have synced is then a random subset, for good.
    pub sync_error_ppm: u32,
    /// A read's result has one bit flipped; the platter is right.
    pub read_flip_ppm: u32,
    /// A write stores one bit wrong, silently.
    pub write_flip_ppm: u32,
    /// A write lands 4 KiB further, silently.
    pub misdirected_write_ppm: u32,
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
        }
    }
}

/// One planned fault at one syscall. A kind that does not fit the call (a sync error planned for a
/// write) becomes an I/O error of that call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call answers `StorageFull` and changes nothing.
    NoSpace,
    /// The call answers EIO and changes nothing (a sync then loses a random subset).
    Io,
    /// A write stores a part, then answers EIO.
    ShortWrite,
    /// A write stores one bit wrong and answers well.
    WriteFlip,
    /// A write lands 4 KiB further and answers well.
    Misdirected,
    /// A write or sync answers well and does nothing.
    Dropped,
}
