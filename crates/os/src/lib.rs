//! The one room with windows: files, clock, randomness, threads; a real and a simulated twin.
