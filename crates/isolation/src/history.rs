//! A history: what clients asked of the database in transactions, and what it answered.
//!
//! Always true of a history: a value is written at most once to a key, so that a value read names
//! the transaction that wrote it. Times are of one clock, in microseconds.

/// A key of a list or a register; lists and registers have keys of their own.
pub type Key = u64;
/// A written value, unique for its key.
pub type Value = u64;

/// One operation of a transaction, with its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Put a value at the end of a list.
    Append {
        /// The list.
        key: Key,
        /// What was put there.
        value: Value,
    },
    /// Read a list whole.
    ReadList {
        /// The list.
        key: Key,
        /// Its values in order; empty where there is no such list.
        seen: Vec<Value>,
    },
    /// Put a value in a register.
    Write {
        /// The register.
        key: Key,
        /// What it holds now.
        value: Value,
    },
    /// Read a register.
    ReadRegister {
        /// The register.
        key: Key,
        /// What it held; `None` where it was never written.
        seen: Option<Value>,
    },
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnOutcome {
    /// The database said so.
    Committed,
    /// The database said so, or the client never asked it to commit.
    Aborted,
    /// The client asked it to commit and heard nothing.
    Unknown,
}

/// A transaction as its client saw it.
#[derive(Clone, Debug)]
pub struct RecordedTxn {
    /// Who ran it; a client runs one at a time.
    pub client: u32,
    /// Before its first operation was sent.
    pub begin: u64,
    /// After the answer to its last one, the commit or the abort.
    pub end: u64,
    /// What became of it.
    pub outcome: TxnOutcome,
    /// Operations that were answered, in order, and writes that may have been done.
    pub ops: Vec<Op>,
}

/// What must not be seen, by the names of the literature (Adya; Elle).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// A transaction does not see its own writes, or sees a key change under it.
    Internal,
    /// A value nobody wrote, or one that is in a list twice.
    Garbage,
    /// A value of an aborted transaction was read (G1a).
    AbortedRead,
    /// A value that its own transaction wrote over was read by another (G1b).
    IntermediateRead,
    /// Two reads of a list that no order of appends explains.
    IncompatibleOrder,
    /// Two transactions read one version of a key and both replaced it.
    LostUpdate,
    /// A cycle of writes (G0).
    WriteCycle,
    /// A cycle of writes and reads of them (G1c).
    CircularInformationFlow,
    /// A cycle with one read of what was replaced (G-single).
    ReadSkew,
    /// A cycle with several, no two of them one after the other (G-nonadjacent).
    NonAdjacent,
    /// Any other cycle (G2-item): write skew.
    WriteSkew,
}

/// What the database promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Each transaction reads one state, at least as new as when it began; of two that write one
    /// key at a time one fails.
    Snapshot,
    /// As if one after the other, in an order that agrees with the clock.
    Serializable,
}

impl Level {
    /// Whether the promise is broken where this is seen.
    pub fn forbids(self, anomaly: Anomaly) -> bool {
        self == Self::Serializable || anomaly != Anomaly::WriteSkew
    }
}
