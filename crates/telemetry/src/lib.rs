//! Counters, gauges and histograms in one registry that every status page reads.
#![forbid(unsafe_code)]
