//! Which configuration may follow which: a pure function of the two.
//!
//! Always true: a refusal changes nothing and is `NewReplicaSetConfigurationIncompatible`. Several members
//! may come and go at once, unlike in MongoDB: members agree on a change in two steps, the old majority
//! and the new one both.

use super::member::Member;
use super::{Config, incompatible};
use errors::Result;

/// Checks that `after` may follow `before`. A forced change may have any version.
pub fn check(before: &Config, after: &Config, force: bool) -> Result<()> {
    if !force && after.version <= before.version {
        return Err(incompatible(format!(
            "New replica set configuration version must be greater than old, but {} is not \
             greater than {} for replica set {}",
            after.version, before.version, before.set
        )));
    }
    if after.set != before.set {
        return Err(incompatible(format!(
            "New and old configurations differ in replica set name; old was {}, and new is {}",
            before.set, after.set
        )));
    }
    if let (Some(old), Some(new)) = (before.settings.replica_set_id, after.settings.replica_set_id)
        && old != new
    {
        return Err(incompatible(format!(
            "New and old configurations differ in replica set ID; old was {old}, and new is {new}"
        )));
    }
    after
        .members
        .iter()
        .try_for_each(|member| before.members.iter().try_for_each(|old| check_member(old, member)))
}

/// What must stay as it is of a member that is in both.
fn check_member(old: &Member, new: &Member) -> Result<()> {
    let is_same_host = old.host == new.host;
    if !is_same_host && old.id != new.id {
        return Ok(());
    }
    if is_same_host && old.id != new.id {
        return Err(incompatible(format!(
            "New and old configurations both have members with host of {} but in the new \
             configuration the _id field is {} and in the old configuration it is {}",
            new.host, new.id, old.id
        )));
    }
    for (field, differs) in [
        ("arbiterOnly", old.arbiter_only != new.arbiter_only),
        ("buildIndexes", old.build_indexes != new.build_indexes),
    ] {
        if differs {
            return Err(incompatible(format!(
                "New and old configurations differ in the setting of the {field} field for member \
                 {}; to make this change, remove then re-add the member",
                new.host
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{parse, set_of};
    use super::*;
    use bson::oid::ObjectId;
    use bson::{Document, doc};

    fn config(version: i32, extras: &[Document]) -> Document {
        let mut given = set_of(extras);
        given.insert("version", version);
        given
    }

    #[test]
    fn what_may_follow() {
        let two = [doc! {}, doc! { "priority": 0 }];
        let before = parse(&config(3, &two)).unwrap();
        let with_id = |id: u8| {
            let mut given = config(4, &two);
            let id = ObjectId::from_bytes([id; 12]);
            given.insert("settings", doc! { "replicaSetId": id });
            given
        };
        let before_with_id = parse(&with_id(1)).unwrap();
        let without_indexes = [doc! {}, doc! { "priority": 0, "buildIndexes": false }];
        let without_indexes = parse(&config(3, &without_indexes)).unwrap();
        let next = |extras: &[Document]| config(4, extras);
        for (old, new, force, named) in [
            (&before, next(&two), false, None),
            (&before, config(3, &two), false, Some("greater")),
            (&before, config(1, &two), true, None),
            (&before, next(&[doc! { "priority": 5 }, doc! { "tags": { "a": "b" } }]), false, None),
            (&before, next(&[doc! {}, doc! {}, doc! {}, doc! {}]), false, None),
            (&before, next(&[doc! {}]), false, None),
            (&before, next(&[doc! {}, doc! { "host": "z:9" }]), false, None),
            (&before, next(&[doc! {}, doc! { "_id": 7 }]), false, Some("_id field is 7")),
            (&before, next(&[doc! {}, doc! { "_id": 7 }]), true, Some("_id field is 7")),
            (&before, next(&[doc! {}, doc! { "arbiterOnly": true }]), false, Some("arbiterOnly")),
            (
                &before,
                next(&[doc! {}, doc! { "priority": 0, "buildIndexes": false }]),
                false,
                Some("buildIndexes"),
            ),
            (
                &before,
                next(&[doc! {}, doc! { "priority": 0, "buildIndexes": false }]),
                true,
                Some("buildIndexes"),
            ),
            (
                &without_indexes,
                next(&[doc! {}, doc! { "priority": 0 }]),
                false,
                Some("remove then re-add"),
            ),
            (
                &without_indexes,
                next(&[doc! {}, doc! { "priority": 0, "votes": 0, "buildIndexes": false }]),
                false,
                None,
            ),
            (
                &before,
                next(&[
                    doc! {},
                    doc! { "_id": 7, "host": "z:9", "priority": 0, "buildIndexes": false },
                ]),
                false,
                None,
            ),
            (
                &before,
                next(&[doc! {}, doc! { "host": "z:9", "arbiterOnly": true }]),
                false,
                Some("arbiterOnly"),
            ),
            (&before, with_id(1), false, None),
            (&before_with_id, with_id(2), true, Some("replica set ID")),
        ] {
            let after = parse(&new).unwrap();
            let checked = check(old, &after, force);
            match (checked, named) {
                (Ok(()), None) => {}
                (Err(error), Some(named)) => {
                    assert_eq!(error.code().0, 103, "{new}");
                    assert!(error.message().contains(named), "{new}: {error}");
                }
                (checked, _) => panic!("{new}: {checked:?}"),
            }
        }
    }
}
