//! The storage engine's API: environment, dictionaries, transactions, checkpoint, recovery.
#![forbid(unsafe_code)]
