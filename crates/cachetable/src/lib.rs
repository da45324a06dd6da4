//! Frames in exactly bounded memory: clock eviction in two stages, pins, prefetch.
