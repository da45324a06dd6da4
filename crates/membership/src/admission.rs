//! Who may open a link to this member: those that its newest document has. Who is not in it any more may not know that:
//! it is told the document, and a member that is told so keeps it until it can follow it ([`AdmitKnown::removal`]).

use crate::set_document::SetDocument;
use bson::oid::ObjectId;
use links::{Admission, Identity, LinkHello, LinkRefusal, Mismatch};
use parking_lot::{Mutex, RwLock};
use quorum::MemberId;

/// The rule, over what is known of the set.
pub(crate) struct AdmitKnown {
    own: MemberId,
    lineage: u64,
    document: RwLock<SetDocument>,
    /// A newer document, which does not have this member.
    removal: Mutex<Option<SetDocument>>,
}

impl AdmitKnown {
    pub(crate) fn new(own: MemberId, lineage: u64, document: SetDocument) -> Self {
        Self { own, lineage, document: RwLock::new(document), removal: Mutex::default() }
    }

    pub(crate) fn lineage(&self) -> u64 {
        self.lineage
    }

    pub(crate) fn document(&self) -> SetDocument {
        self.document.read().clone()
    }

    /// The document that this member was told of since it was asked last, which removes it from its set.
    pub(crate) fn removal(&self) -> Option<SetDocument> {
        let told = self.removal.lock().take();
        told.filter(|told| told.removes(self.own, &self.document.read()))
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

    fn admit(&self, hello: &LinkHello) -> Result<(), LinkRefusal> {
        let is_known = self.document.read().id_of(hello.from).is_some();
        self.identity().check(hello, is_known).map_err(|mismatch| LinkRefusal {
            cause: mismatch.to_string(),
            document: match mismatch {
                Mismatch::Unknown(_) => self.document.read().encode().ok(),
                _ => None,
            },
        })
    }

    fn told_of_removal(&self, document: &[u8]) {
        if let Ok(told) = SetDocument::decode(document)
            && told.removes(self.own, &self.document.read())
        {
            *self.removal.lock() = Some(told);
        }
    }
}
