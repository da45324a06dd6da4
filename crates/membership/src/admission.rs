//! Who may open a link to this member: those that its newest document has.

use crate::set_document::SetDocument;
use bson::oid::ObjectId;
use links::{Admission, Identity, LinkHello};
use parking_lot::RwLock;
use quorum::MemberId;

/// The rule, over what is known of the set.
pub(crate) struct AdmitKnown {
    own: MemberId,
    lineage: u64,
    document: RwLock<SetDocument>,
}

impl AdmitKnown {
    pub(crate) fn new(own: MemberId, lineage: u64, document: SetDocument) -> Self {
        Self { own, lineage, document: RwLock::new(document) }
    }

    pub(crate) fn lineage(&self) -> u64 {
        self.lineage
    }

    pub(crate) fn document(&self) -> SetDocument {
        self.document.read().clone()
    }

    /// From now on this counts.
    pub(crate) fn follow(&self, document: SetDocument) {
        *self.document.write() = document;
    }
}

impl Admission for AdmitKnown {
    fn identity(&self) -> Identity {
        let document = self.document.read();
        Identity {
            set: document.name().to_owned(),
            set_id: document.set_id().unwrap_or(ObjectId::from_bytes([0; 12])),
            member: self.own,
            lineage: self.lineage,
        }
    }

    fn admit(&self, hello: &LinkHello) -> Result<(), String> {
        let is_known = self.document.read().id_of(hello.from).is_some();
        self.identity().check(hello, is_known).map_err(|mismatch| mismatch.to_string())
    }
}
