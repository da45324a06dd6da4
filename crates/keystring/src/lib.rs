//! BSON values as bytes that sort right under memcmp, and the order of values itself.
#![forbid(unsafe_code)]
