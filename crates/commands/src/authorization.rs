//! The page `docs/AUTHORIZATION.md`: what each command needs, what each built-in role may, from the tables that the
//! server itself goes by.

use crate::registry::COMMANDS;
use auth::{BUILT_IN, privileges_of};
use std::fmt::Write;

/// The page.
pub fn page() -> String {
    let mut page = String::from(
        "# Authorization\n\nMade from the server's own tables by\n`cargo run -p commands --example authorization > docs/AUTHORIZATION.md`; a test holds them together.\n\n\
         ## What each command needs\n\n| Command | Needs | Never shown |\n|---|---|---|\n",
    );
    for command in COMMANDS {
        let (name, needs) = (command.name, command.needs.sentence());
        let secret = command.secret.join(", ");
        writeln!(page, "| `{name}` | {needs} | {secret} |").expect("a text takes what is written");
    }
    page.push_str("\n## What each built-in role may\n\nOf the database `d`, or of `admin` where a role exists there only.\n");
    for role in BUILT_IN {
        let db = if role.admin_only { "admin" } else { "d" };
        writeln!(page, "\n### {}@{db}\n\n| On | Actions |\n|---|---|", role.name)
            .expect("a text takes what is written");
        for privilege in privileges_of(role, db) {
            let document = privilege.to_document();
            let resource = document.get_document("resource").map(ToString::to_string);
            let actions: Vec<&str> = document
                .get_array("actions")
                .map_or(Vec::new(), |list| list.iter().filter_map(bson::Bson::as_str).collect());
            writeln!(page, "| `{}` | {} |", resource.unwrap_or_default(), actions.join(", "))
                .expect("a text takes what is written");
        }
    }
    page
}

#[cfg(test)]
mod tests {
    #[test]
    fn authorization_page_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/AUTHORIZATION.md");
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            there == super::page(),
            "docs/AUTHORIZATION.md is stale: cargo run -p commands --example authorization > docs/AUTHORIZATION.md"
        );
    }
}
