//! Compiles the peers' shims. `WIREDTIGER` names a built source tree (`cargo xtask gates` makes it);
//! RocksDB and LMDB are the distribution's libraries.

fn main() {
    if std::env::var_os("CARGO_FEATURE_ROCKSDB").is_none() {
        return;
    }
    rocksdb();
    if std::env::var_os("CARGO_FEATURE_PEERS").is_some() {
        others();
    }
}

fn rocksdb() {
    println!("cargo::rerun-if-changed=peers");
    cc::Build::new().cpp(true).std("c++17").file("peers/rocks.cc").compile("peer_rocks");
    cc::Build::new().file("peers/throttle.c").compile("peer_throttle");
    // The slowed calls stand before the C library's for shared libraries too.
    for call in ["pread", "pread64", "pwrite", "pwrite64", "write", "fsync", "fdatasync"] {
        println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol={call}");
    }
    println!("cargo::rustc-link-lib=rocksdb");
}

fn others() {
    let tree = std::env::var("WIREDTIGER").expect("run `cargo xtask gates`: it sets WIREDTIGER");
    println!("cargo::rerun-if-env-changed=WIREDTIGER");
    cc::Build::new()
        .file("peers/wiredtiger.c")
        .file("peers/lmdb.c")
        .include(format!("{tree}/build/include"))
        .compile("peer_c");
    println!("cargo::rustc-link-search=native={tree}/build");
    for library in ["static=wiredtiger", "lmdb", "snappy"] {
        println!("cargo::rustc-link-lib={library}");
    }
}
