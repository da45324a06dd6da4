//! Golden files: committed bytes of every format, so that a format never changes unseen.

use std::fs;
use std::path::Path;

/// Reads `tests/golden/<name>` of the crate at `manifest_dir` (pass `env!("CARGO_MANIFEST_DIR")`)
/// and compares it with what the code encodes today.
///
/// Where `encoded` differs the test fails; run with `FERN_GOLDEN=write` to write the file again,
/// which is right only together with a new format version.
pub fn golden(manifest_dir: &str, name: &str, encoded: &[u8]) -> Vec<u8> {
    let committed = golden_to_decode(manifest_dir, name, encoded);
    let differs = committed.iter().zip(encoded).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{name}: first byte that differs from the golden file");
    assert_eq!(committed.len(), encoded.len(), "{name}: length differs from the golden file");
    committed
}

/// As [`golden`], without the comparison: for bytes that another version of a compression library
/// may make differently, and that must only decode for ever.
pub fn golden_to_decode(manifest_dir: &str, name: &str, encoded: &[u8]) -> Vec<u8> {
    let path = Path::new(manifest_dir).join("tests/golden").join(name);
    if std::env::var_os("FERN_GOLDEN").is_some_and(|value| value == "write") {
        let parent = path.parent().expect("the path has a directory");
        fs::create_dir_all(parent).expect("the directory can be made");
        fs::write(&path, encoded).expect("the golden file can be written");
    }
    fs::read(&path).unwrap_or_else(|e| panic!("golden file {} cannot be read: {e}", path.display()))
}
