//! What the fractal tree keeps inside pages: entries, filters, nodes, images, footers.

use crate::Target;
use ftree::format::{self, PageValue};

fn entries() -> Vec<format::PageEntry> {
    let mut entries: Vec<format::PageEntry> = (0..30u64)
        .map(|n| {
            let value = PageValue::Put(vec![n as u8; n as usize]);
            (format!("key/{n:04}").into_bytes(), n % 3 + 1, value)
        })
        .collect();
    entries.insert(0, (Vec::new(), 1 << 50, PageValue::Delete));
    entries.push((b"key/0029".to_vec(), 1, PageValue::Delete));
    entries.push((b"other".to_vec(), 9, PageValue::Put(Vec::new())));
    entries.push((b"other".to_vec(), 8, PageValue::Large(vec![7, 0, 90, 70])));
    entries
}

/// A page of entries behind its checksum. What is accepted must read, search and write again.
pub(super) const TREE_PAGE: Target = Target {
    name: "tree-page",
    corpus: || vec![format::write_page(&entries()), format::write_page(&entries()[..1])],
    start: || {
        Box::new(|bytes| {
            if let Ok(entries) = format::read_page(bytes) {
                for (_, _, value) in &entries {
                    if let PageValue::Large(reference) = value {
                        let _ = format::large_facts(reference).is_ok();
                    }
                }
                let again = format::write_page(&entries);
                assert_eq!(format::read_page(&again).as_ref(), Ok(&entries));
            }
        })
    },
};

/// A filter.
pub(super) const TREE_FILTER: Target = Target {
    name: "tree-filter",
    corpus: || {
        let keys: Vec<Vec<u8>> = entries().into_iter().map(|(key, _, _)| key).collect();
        vec![format::write_filter(keys.iter().map(Vec::as_slice))]
    },
    start: || {
        Box::new(|bytes| {
            for key in [&b""[..], b"key", b"other"] {
                let _ = format::filter_passes(bytes, key).is_ok();
            }
        })
    },
};

/// A node, a footer and a tree image: the same bytes are read as each of them.
pub(super) const TREE_NODE: Target = Target {
    name: "tree-node",
    corpus: || {
        let nodes: [&[u8]; 2] = [
            include_bytes!("../../../ftree/tests/golden/node.bin"),
            include_bytes!("../../../ftree/tests/golden/node-root.bin"),
        ];
        nodes.iter().map(|node| node.to_vec()).collect()
    },
    start: || {
        Box::new(|bytes| {
            if let Ok(node) = format::read_node(bytes) {
                assert_eq!(node.pivots.len() + 1, node.children.len());
                assert!(node.pivots.is_sorted());
            }
            let _ = format::read_image(bytes).is_ok();
            let _ = format::read_footer(bytes).is_ok();
        })
    },
};
