//! One file per command: parse, run, reply.
#![forbid(unsafe_code)]
