//! One data file: superblock, block allocator, translation table, checksummed compressed blocks.
