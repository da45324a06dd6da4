//! Who this member is, and whether another one may open a link to it.
//!
//! Always true: [`Identity::check`] decides from what it is given alone.

use bson::oid::ObjectId;
use quorum::MemberId;

use crate::hello::LinkHello;

/// Who this member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The set's name.
    pub set: String,
    /// The set's identity.
    pub set_id: ObjectId,
    /// Its number, of its data directory.
    pub member: MemberId,
    /// The founder, or a random number since the set was forced to go on without its majority.
    pub lineage: u64,
}

/// Why a link is not let in, or what is wrong with who answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Another set's name.
    #[error("it is in the set '{theirs}', this server in '{ours}'")]
    Set {
        /// What the other says.
        theirs: String,
        /// What this one is in.
        ours: String,
    },
    /// A set of the same name that was initiated apart.
    #[error("its set '{set}' has the id {theirs}, this server's {ours}: they were initiated apart")]
    SetId {
        /// Both sets' name.
        set: String,
        /// What the other says.
        theirs: ObjectId,
        /// This one's.
        ours: ObjectId,
    },
    /// It looks for another member.
    #[error("it looks for the member {0} here, which is another data directory's")]
    To(MemberId),
    /// It says that it is this member.
    #[error("it says that it is this member: is it a copy of this data directory?")]
    Itself,
    /// It went another way than this one when the set was forced to go on.
    #[error(
        "it and this server took different ways when the set was forced to go on without its majority: the data \
         directory of the one that was left behind is to be emptied, and is filled again"
    )]
    Lineage,
    /// Nobody knows it.
    #[error("the member {0} is not in this server's configuration of the set")]
    Unknown(MemberId),
}

impl Identity {
    /// Whether whoever says this is in the same set and means this member; `known` says whether the
    /// configuration has it.
    pub fn check(&self, hello: &LinkHello, known: bool) -> Result<(), Mismatch> {
        if hello.set != self.set {
            return Err(Mismatch::Set { theirs: hello.set.clone(), ours: self.set.clone() });
        }
        if hello.set_id != self.set_id {
            let (theirs, ours) = (hello.set_id, self.set_id);
            return Err(Mismatch::SetId { set: self.set.clone(), theirs, ours });
        }
        if hello.to != self.member {
            return Err(Mismatch::To(hello.to));
        }
        if hello.from == self.member {
            return Err(Mismatch::Itself);
        }
        if hello.lineage != self.lineage {
            return Err(Mismatch::Lineage);
        }
        if !known {
            return Err(Mismatch::Unknown(hello.from));
        }
        Ok(())
    }
}

/// Why a link is not let in, as the other is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRefusal {
    /// In one line: it is logged here, too.
    pub cause: String,
    /// The set's newest document, for one of its members that was removed and may not know it. Links carry it unread.
    pub document: Option<Vec<u8>>,
}

impl From<String> for LinkRefusal {
    fn from(cause: String) -> Self {
        Self { cause, document: None }
    }
}

/// Decides who may open a link to this member.
pub trait Admission: Send + Sync {
    /// Who this member is now.
    fn identity(&self) -> Identity;

    /// Whether that member may open a link; [`Identity::check`] has the usual rules. Called by the threads
    /// that serve clients; must not wait.
    ///
    /// # Errors
    /// The reason.
    fn admit(&self, hello: &LinkHello) -> Result<(), LinkRefusal>;

    /// Another member refuses this one's link as that of a member that was removed, and says the set's newest document
    /// ([`LinkRefusal::document`]). Called by the threads of links; must not wait.
    fn told_of_removal(&self, document: &[u8]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_let_in() {
        let set_id = ObjectId::from_bytes([7; 12]);
        let identity = Identity { set: "rs".to_owned(), set_id, member: MemberId(2), lineage: 5 };
        let hello = LinkHello {
            set: "rs".to_owned(),
            set_id,
            from: MemberId(1),
            to: MemberId(2),
            lineage: 5,
            start: 9,
            connection: 1,
        };
        assert_eq!(identity.check(&hello, true), Ok(()));
        assert_eq!(identity.check(&hello, false), Err(Mismatch::Unknown(MemberId(1))));
        let other = ObjectId::from_bytes([8; 12]);
        for (changed, words) in [
            (LinkHello { set: "other".to_owned(), ..hello.clone() }, "in the set 'other'"),
            (LinkHello { set_id: other, ..hello.clone() }, "initiated apart"),
            (LinkHello { to: MemberId(3), ..hello.clone() }, "another data directory"),
            (LinkHello { from: MemberId(2), ..hello.clone() }, "a copy"),
            (LinkHello { lineage: 0, ..hello.clone() }, "different ways"),
        ] {
            let text = identity.check(&changed, true).unwrap_err().to_string();
            assert!(text.contains(words) && !text.contains('\n'), "{text}");
        }
    }
}
