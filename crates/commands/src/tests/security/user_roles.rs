//! `$$USER_ROLES`: the roles of whoever asks, wherever an expression stands.

use super::super::Client;
use super::first_batch;
use bson::{Bson, Document, bson, doc};

/// A user with a role of its own that inherits another, and what `$$USER_ROLES` is for it.
fn reader(root: &Client) -> (Client, Bson) {
    root.ok("d", doc! { "createRole": "clerk", "privileges": [], "roles": ["readWrite"] });
    let client = root.with_user("reader", &[("clerk", "d")]);
    let roles = bson!([
        { "_id": "d.clerk", "role": "clerk", "db": "d" },
        { "_id": "d.readWrite", "role": "readWrite", "db": "d" },
    ]);
    (client, roles)
}

#[test]
fn the_roles_of_who_asks_are_told_wherever_an_expression_stands() {
    let root = Client::rooted();
    root.ok("d", doc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 2 }, { "_id": 3 }] });
    let (client, roles) = reader(&root);
    let told = |client: &Client, command: Document| {
        let found = first_batch(&client.ok("d", command));
        found.iter().map(|one| one.get("r").unwrap().clone()).collect::<Vec<_>>()
    };
    let stage = doc! { "$addFields": { "r": "$$USER_ROLES" } };
    let aggregate = |stages: Bson| doc! { "aggregate": "c", "pipeline": stages, "cursor": {} };
    let of_one = bson!([{ "$limit": 1 }, stage.clone()]);
    assert_eq!(told(&client, aggregate(of_one.clone())), std::slice::from_ref(&roles));
    let of_root = bson!([{ "_id": "admin.root", "role": "root", "db": "admin" }]);
    assert_eq!(told(&root, aggregate(of_one.clone())), std::slice::from_ref(&of_root));
    // A find's projection and its filter, `let` of a command, a pipeline within one.
    let find = doc! { "find": "c", "limit": 1, "projection": { "r": "$$USER_ROLES" },
    "filter": { "$expr": { "$in": ["d.clerk", "$$USER_ROLES._id"] } } };
    assert_eq!(told(&client, find.clone()), std::slice::from_ref(&roles));
    assert_eq!(told(&root, find), [] as [Bson; 0]);
    let mut by_let = aggregate(bson!([{ "$limit": 1 }, { "$addFields": { "r": "$$mine" } }]));
    by_let.insert("let", doc! { "mine": "$$USER_ROLES" });
    assert_eq!(told(&client, by_let), std::slice::from_ref(&roles));
    let within = aggregate(bson!([{ "$limit": 1 },
        { "$lookup": { "from": "c", "as": "x", "pipeline": of_one } },
        { "$project": { "r": { "$first": "$x.r" } } }]));
    assert_eq!(told(&client, within), std::slice::from_ref(&roles));
    // A view tells the roles of who reads it, not of who made it.
    root.ok("d", doc! { "create": "v", "viewOn": "c", "pipeline": [stage.clone()] });
    assert_eq!(told(&client, doc! { "find": "v", "limit": 1 }), std::slice::from_ref(&roles));
    assert_eq!(told(&root, doc! { "find": "v", "limit": 1 }), [of_root]);
    // The next batch of a cursor.
    let mut few = aggregate(bson!([stage]));
    few.insert("cursor", doc! { "batchSize": 0 });
    let reply = client.ok("d", few);
    let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    assert_eq!(told(&client, doc! { "getMore": id, "collection": "c" }), vec![roles.clone(); 3]);
    // An update by a pipeline.
    client.ok(
        "d",
        doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": [{ "$set": { "r": "$$USER_ROLES" } }] }] },
    );
    assert_eq!(told(&client, doc! { "find": "c", "filter": { "_id": 1 } }), [roles]);
}

#[test]
fn without_users_nobody_has_a_role_and_a_validator_has_no_asker() {
    let client = Client::new();
    client.ok("d", doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    let find = doc! { "find": "c", "projection": { "r": "$$USER_ROLES" } };
    assert_eq!(first_batch(&client.ok("d", find)), [doc! { "_id": 1, "r": [] }]);
    let validator = doc! { "$expr": { "$eq": ["$$USER_ROLES", []] } };
    client.ok("d", doc! { "create": "checked", "validator": validator });
    // It cannot be asked, so that nothing fits it.
    let reply = client.run("d", doc! { "insert": "checked", "documents": [{}] });
    let errors = reply.get_array("writeErrors").unwrap();
    assert_eq!(errors[0].as_document().unwrap().get_i32("code").ok(), Some(121));
}
