//! Who may do what: the grants against a naive oracle, what commands say that they need, and what a stranger's bytes come
//! to before anybody has logged in.

use super::network::raw;
use crate::Target;
use auth::{Action, ActionSet, Grants, Privilege, Resource, Target as Of};
use bson::{Bson, Document, RawDocument, bson, doc};
use commands::DeclaredNeeds;
use wire::{Codec, Message, MsgFlags};

const DATABASES: [&str; 6] = ["d", "e", "admin", "local", "config", ""];
const NAMES: [&str; 7] =
    ["c", "x", "system.js", "system.users", "system.buckets.c", "system.profile", ""];

/// Whether a privilege on a resource reaches a target, a sentence of MongoDB's manual each and no tables.
fn reaches(resource: &Resource, target: Of<'_>) -> bool {
    let is_normal = |name: &str| !name.starts_with("system.");
    let is_open = |db: &str| db != "local" && db != "config";
    match (resource, target) {
        (Resource::Any, _)
        | (Resource::Cluster, Of::Cluster)
        | (Resource::AnyNormal, Of::AnyNormal) => true,
        (Resource::AnyNormal, Of::Database(db)) => is_open(db),
        (Resource::AnyNormal, Of::Collection(db, name)) => is_open(db) && is_normal(name),
        (Resource::Database(of), Of::Database(db)) => of == db,
        (Resource::Database(of), Of::Collection(db, name)) => of == db && is_normal(name),
        (Resource::Named(of), Of::Collection(_, name)) => of == name,
        (Resource::Collection(of, named), Of::Collection(db, name)) => of == db && named == name,
        (Resource::Buckets(of, named), Of::Collection(db, name)) => {
            let bucket = name.strip_prefix("system.buckets.");
            (of.is_empty() || of == db)
                && bucket.is_some_and(|bucket| named.is_empty() || named == bucket)
        }
        _ => false,
    }
}

/// Whether these privileges allow all these actions on a target: each action by some privilege that reaches it.
fn allow(privileges: &[Privilege], target: Of<'_>, actions: ActionSet) -> bool {
    actions.iter().all(|action| {
        privileges.iter().any(|one| one.actions.contains(action) && reaches(&one.resource, target))
    })
}

/// Bytes as privileges, four each.
fn privileges(bytes: &[u8]) -> Vec<Privilege> {
    let of = bytes.chunks_exact(4).take(32).map(|part| {
        let db = DATABASES[usize::from(part[1]) % 5].to_owned();
        let name = NAMES[usize::from(part[2]) % 6].to_owned();
        let resource = match part[0] % 8 {
            0 => Resource::Cluster,
            1 => Resource::Any,
            2 => Resource::AnyNormal,
            3 => Resource::Database(db),
            4 => Resource::Named(name),
            5 => Resource::Buckets(String::new(), "c".to_owned()),
            6 => Resource::Buckets(db, String::new()),
            _ => Resource::Collection(db, name),
        };
        let action = Action::ALL[usize::from(part[3]) % Action::ALL.len()];
        Privilege { resource, actions: ActionSet::of(&[action, Action::Find]) }
    });
    of.collect()
}

/// The privileges of a user against the oracle, for every target.
pub(super) const GRANTS: Target = Target {
    name: "grants",
    corpus: || {
        vec![
            vec![3, 0, 0, 7, 2, 0, 0, 9, 7, 2, 3, 1],
            vec![1, 0, 0, 0],
            vec![4, 0, 2, 3, 5, 0, 0, 3, 6, 1, 0, 4, 0, 0, 0, 90],
        ]
    },
    start: || {
        Box::new(|bytes| {
            let held = privileges(bytes);
            let grants = Grants::new(&held);
            let mut targets = vec![Of::Cluster, Of::Any, Of::AnyNormal];
            for db in DATABASES {
                targets.push(Of::Database(db));
                targets.extend(NAMES.map(|name| Of::Collection(db, name)));
            }
            let all = held.iter().fold(ActionSet::EMPTY, |sum, one| sum.union(one.actions));
            for target in targets {
                let told = grants.actions_on(target);
                for action in Action::ALL {
                    let one = ActionSet::of(&[*action]);
                    let expected = allow(&held, target, one);
                    assert_eq!(told.contains(*action), expected, "{action:?} {target:?} {held:?}");
                    assert_eq!(grants.allow(target, one), expected, "{action:?} {target:?}");
                }
                assert_eq!(grants.allow(target, all), allow(&held, target, all), "{target:?}");
            }
            assert!(held.iter().all(|privilege| grants.covers(privilege)));
        })
    },
};

/// Requests as clients send them, and every command's name with little behind it.
fn requests() -> Vec<Document> {
    let mut all: Vec<Document> = DeclaredNeeds::commands().map(|name| doc! { name: "c" }).collect();
    all.extend(DeclaredNeeds::commands().map(|name| doc! { name: 1 }));
    let stages: Bson = bson!([
        { "$lookup": { "from": "x", "as": "y", "pipeline": [{ "$unionWith": { "coll": "z", "pipeline": [] } }] } },
        { "$facet": { "f": [{ "$graphLookup": { "from": "w", "startWith": "$a", "connectFromField": "a", "connectToField": "b", "as": "g" } }] } },
        { "$merge": { "into": { "db": "e", "coll": "m" }, "whenMatched": "replace" } },
    ]);
    all.extend([
        doc! { "aggregate": "c", "pipeline": stages.clone(), "cursor": {} },
        doc! { "aggregate": 1, "pipeline": [{ "$currentOp": { "allUsers": true } }], "cursor": {} },
        doc! { "aggregate": "c", "pipeline": [{ "$out": { "db": "e", "coll": "o" } }], "cursor": {} },
        doc! { "aggregate": "c", "pipeline": [{ "$changeStream": {} }], "cursor": {} },
        doc! { "explain": { "aggregate": "c", "pipeline": stages.clone(), "cursor": {} } },
        doc! { "create": "v", "viewOn": "c", "pipeline": stages },
        doc! { "update": "c", "updates": [{ "q": {}, "u": {}, "upsert": true }], "bypassDocumentValidation": true },
        doc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": {} }, { "update": 1, "filter": {}, "updateMods": {} }], "nsInfo": [{ "ns": "d.c" }, { "ns": "e.c" }] },
        doc! { "applyOps": [{ "op": "i", "ns": "d.c", "o": {} }, { "op": "c", "ns": "d.$cmd", "o": { "drop": "c" } }] },
        doc! { "createUser": "u", "pwd": "p", "roles": [{ "role": "read", "db": "e" }, "dbOwner"] },
        doc! { "createRole": "r", "roles": [], "privileges": [{ "resource": { "db": "e", "collection": "" }, "actions": ["find"] }] },
        doc! { "renameCollection": "d.c", "to": "e.x", "dropTarget": true },
        doc! { "mapReduce": "c", "out": { "merge": "x", "db": "e" } },
        doc! { "listDatabases": 1, "authorizedDatabases": false },
    ]);
    all
}

/// What a request needs, whatever stands in it: who holds exactly that is let through, and who lacks any of it is not.
pub(super) const NEEDS: Target = Target {
    name: "needs",
    corpus: || requests().iter().map(|document| raw(document).into_bytes()).collect(),
    start: || {
        let needs = DeclaredNeeds::default();
        Box::new(move |bytes| {
            let Ok(body) = wire::validate(bytes) else { return };
            let nobody = Grants::default();
            let Some(needed) = needs.of("d", body, &nobody) else { return };
            let exactly = Grants::new(&needed);
            assert_eq!(needs.admits("d", body, &exactly), Some(true), "{needed:?}");
            let everything =
                [Privilege { resource: Resource::Any, actions: ActionSet::of(Action::ALL) }];
            assert_eq!(needs.admits("d", body, &Grants::new(&everything)), Some(true));
            assert_eq!(
                needs.admits("d", body, &nobody),
                Some(needed.iter().all(|one| one.actions.is_empty())),
            );
            for (at, left_out) in needed.iter().enumerate().take(16) {
                let rest: Vec<_> = [&needed[..at], &needed[at + 1..]].concat();
                if left_out.actions.is_empty() || rest.iter().any(|one| reaches_as(one, left_out)) {
                    continue;
                }
                // Who holds less may be asked for something else instead, but for nothing less than that is let through.
                let fewer = Grants::new(&rest);
                let asked = needs.of("d", body, &fewer).expect("it is asked for");
                let held = asked.iter().all(|one| fewer.covers(one));
                assert_eq!(needs.admits("d", body, &fewer), Some(held), "{left_out:?}");
            }
        })
    },
};

/// Whether one privilege allows something of what another does.
fn reaches_as(one: &Privilege, other: &Privilege) -> bool {
    one.resource == other.resource || matches!(one.resource, Resource::Any | Resource::AnyNormal)
}

/// The longest message of who has not logged in, and what a stranger may make the server hold.
const MOST_BYTES: usize = 16 << 10;
const MOST_LIVE: usize = 64 << 10;

/// A connection's first bytes on their way to the gate: told apart, their length, unpacked, decoded, judged. Nobody gets
/// past it but by a command that leads to a login, and what is held meanwhile is little.
pub(super) const PREAUTH: Target = Target {
    name: "preauth",
    corpus: || {
        let mut codec = Codec::new();
        let mut all =
            vec![b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x9a\x9a\x9a\x9a\x9a".to_vec()];
        for mut request in requests() {
            request.insert("$db", "admin");
            let mut frame = Vec::new();
            wire::encode_msg(&mut frame, 1, 0, MsgFlags::default(), &raw(&request));
            let mut packed = Vec::new();
            codec.compress(&frame, wire::Compressor::Zlib, &mut packed).expect("a whole frame");
            all.extend([frame, packed]);
        }
        all
    },
    start: || {
        let needs = DeclaredNeeds::default();
        let mut codec = Codec::new();
        Box::new(move |bytes| {
            if tls::sniff(&bytes[..bytes.len().min(16)]) != tls::Sniffed::Plain {
                return;
            }
            let Some(header) = bytes.first_chunk() else { return };
            let Ok(header) = wire::Header::parse(header) else { return };
            let length = header.length;
            if length > MOST_BYTES || bytes.len() < length {
                return;
            }
            let frame = &bytes[..length];
            let mut live = length;
            let unpacked = if header.opcode == wire::opcode::COMPRESSED {
                let Some(declared) = frame.get(20..24).and_then(|size| size.try_into().ok()) else {
                    return;
                };
                if i64::from(i32::from_le_bytes(declared)) > MOST_BYTES as i64 {
                    return;
                }
                let Ok((plain, _)) = codec.decompress(frame) else { return };
                live += plain.len();
                Some(plain)
            } else {
                None
            };
            let frame = unpacked.as_deref().unwrap_or(frame);
            assert!(live <= MOST_LIVE, "{live} bytes are held for somebody who said {length}");
            match wire::decode(frame) {
                Ok((_, Message::Msg(message))) => judge(&needs, message.body),
                Ok((_, Message::Query(query))) => judge(&needs, query.query),
                _ => {}
            }
        })
    },
};

/// A command that nobody has to log in for needs nothing.
fn judge(needs: &DeclaredNeeds, body: &RawDocument) {
    let free = needs.is_before_login(body);
    if let Some(needed) = needs.of("admin", body, &Grants::default())
        && free
    {
        assert!(needed.is_empty(), "{needed:?}");
    }
}
