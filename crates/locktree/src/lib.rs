//! Key and range locks, FIFO with deadlines, wait-for graph, escalation.
#![forbid(unsafe_code)]
