//! Whether the data of a directory is that of a member without indexes (`buildIndexes: false`, ADR 67).
//!
//! Always true: the directory says so, by an empty file, before the first index is left out. So a directory whose data lacks
//! indexes is never used as that of a member which has them, whatever the configuration says by then.

use crate::error::{Error, Result};
use crate::set_document::SetDocument;
use os::{OpenOptions, Os};
use quorum::MemberId;
use std::path::Path;

/// The data of a directory that has it lacks indexes.
const NAME: &str = "indexes.left-out";

/// Whether this member leaves indexes out. Where the document says so the directory does from now on.
///
/// # Errors
/// The document says that the member has indexes, and its data has none; what the disk says.
pub(crate) fn decide(
    os: &Os,
    directory: &Path,
    document: &SetDocument,
    own: MemberId,
) -> Result<bool> {
    let path = directory.join(NAME);
    let failed = |source| Error::File { path: path.clone(), source };
    let is_marked = os.vfs.exists(&path).map_err(failed)?;
    match document.builds_indexes(own) {
        // One that the set has no more stays what it is.
        None => return Ok(is_marked),
        Some(true) if is_marked => {
            return Err(Error::Directory(
                "this member is to have indexes by now, and its data was that of one without them (buildIndexes: \
                 false): empty the directory, and it is filled again"
                    .to_owned(),
            ));
        }
        Some(true) => return Ok(false),
        Some(false) => {}
    }
    if !is_marked {
        os.vfs.open(&path, OpenOptions::create()).map_err(failed)?;
        os.vfs.sync_dir(directory).map_err(failed)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Document, doc};
    use os::sim::{SimOs, Survival};

    fn document(own: Option<bool>) -> SetDocument {
        let mut members: Vec<Document> = vec![doc! { "_id": 0, "host": "h:1" }];
        if let Some(builds) = own {
            members.push(
                doc! { "_id": 1, "host": "h:2", "priority": 0.0, "votes": 1, "buildIndexes": builds },
            );
        }
        let ids = (0..members.len() as i32).map(|id| (id, MemberId(id as u64 + 10))).collect();
        SetDocument::new(doc! { "_id": "rs", "members": members }, &ids).unwrap()
    }

    #[test]
    fn what_the_data_lacks_is_on_disk_and_is_not_forgotten() {
        let sim = SimOs::new(7);
        let dir = Path::new("/data");
        let mut os = sim.os();
        os.vfs.create_dir_all(dir).unwrap();
        let decided = |os: &Os, own| decide(os, dir, &document(own), MemberId(11));
        assert!(!decided(&os, Some(true)).unwrap());
        assert!(!decided(&os, None).unwrap());
        assert!(decided(&os, Some(false)).unwrap());
        for _ in 0..2 {
            assert!(decided(&os, Some(false)).unwrap());
            assert!(decided(&os, None).unwrap(), "one that was removed has no indexes either");
            let refused = decided(&os, Some(true)).unwrap_err().to_string();
            assert!(refused.contains("empty the directory"), "{refused}");
            os = sim.reboot_with(Survival::Nothing);
        }
    }
}
