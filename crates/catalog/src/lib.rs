//! Databases, collections, indexes and documents as dictionaries of the engine.
#![forbid(unsafe_code)]
