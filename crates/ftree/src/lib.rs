//! The fractal tree: memtable, runs, nodes, leaf segments, flush, merge, cursor.
