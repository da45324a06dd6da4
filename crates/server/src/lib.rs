//! Sockets, configuration, wiring, shutdown; the binaries.
#![forbid(unsafe_code)]
