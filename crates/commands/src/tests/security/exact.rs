//! Roles of exactly what a command says it needs: the holder passes, and does not without any one action of it.

use super::super::Client;
use super::matrix::{NOT_OF_ROOT, OF_MEMBERS, is_refused, rows};
use crate::gate::{self, Admitted};
use auth::{Action, ActionSet, Privilege};
use bson::{Bson, Document, RawDocumentBuf, doc};
use dispatch::{OpKind, Request};

/// What a request needs of somebody who has nothing yet.
fn needs(client: &Client, database: &str, command: &Document) -> Vec<Privilege> {
    let service = &client.service;
    let body = RawDocumentBuf::try_from(command).unwrap();
    let request = Request {
        database,
        body: &body,
        sequences: &[],
        op: OpKind::Msg,
        exhaust_allowed: false,
        request_id: 1,
        waited_until: None,
        waker: None,
        finisher: None,
    };
    let name = command.keys().next().unwrap();
    let (_, found) = service.registry.find(name).unwrap();
    let identity = service.identity(&client.connection).unwrap();
    let admitted = Admitted { identity, is_access_control_on: true, ..Admitted::default() };
    gate::privileges(&admitted, &service.registry, &request, found, &body)
}

/// From here on the role has these privileges, and no others.
fn hold(root: &Client, privileges: &[Privilege]) {
    let all: Vec<Bson> = privileges
        .iter()
        .filter(|one| !one.actions.is_empty())
        .map(|one| Bson::Document(one.to_document()))
        .collect();
    root.ok("admin", doc! { "updateRole": "exact", "privileges": all });
}

#[test]
fn a_role_of_exactly_what_is_needed_passes_and_without_any_action_of_it_does_not() {
    let root = Client::rooted();
    root.ok("admin", doc! { "createRole": "exact", "roles": [], "privileges": [] });
    let holder = root.with_user("holder", &[("exact", "admin")]);
    let (mut wrong, mut left_out) = (Vec::new(), 0);
    for row in rows() {
        let name = row.command.keys().next().unwrap().as_str();
        if NOT_OF_ROOT.contains(&name) || OF_MEMBERS.contains(&name) {
            continue;
        }
        // As it is sent, with the field that keeps it from being done.
        let mut command = row.command.clone();
        command.insert("noCommandKnowsThis", 1);
        hold(&root, &[]);
        let needed = needs(&holder, row.database, &command);
        assert!(!needed.is_empty(), "{command} needs nothing");
        let refused = |privileges: &[Privilege]| {
            hold(&root, privileges);
            is_refused(&holder, row.database, &row.command)
        };
        if refused(&needed) {
            wrong.push(format!("{command} is refused with {needed:?}"));
        }
        for (at, one) in needed.iter().enumerate() {
            for action in Action::ALL.iter().copied() {
                let without = ActionSet::of(&[action]);
                if one.actions.without(without) == one.actions {
                    continue;
                }
                let mut fewer = needed.clone();
                // The same action on the same resource may be asked for twice.
                for other in &mut fewer {
                    if other.resource == needed[at].resource {
                        other.actions = other.actions.without(without);
                    }
                }
                left_out += 1;
                if !refused(&fewer) {
                    wrong.push(format!("{command} goes without {action:?} on {:?}", one.resource));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {left_out}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(left_out > 100, "{left_out}");
}
