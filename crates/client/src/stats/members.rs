//! The members of the server's replica set, a line each, under the figures of `fern stats`.
//!
//! What is always true: a server that has no set, or does not let this user ask, has no lines; a member that did
//! not say how far it is has a dash there.

use bson::{Document, doc};
use mongodb::sync::Database;
use std::fmt::Write as _;

/// The title and the lines of the members; nothing where there are none to show. Asks the server.
pub(super) fn screen(server: &Database) -> String {
    let status = server.run_command(doc! { "replSetGetStatus": 1 }).run();
    status.ok().as_ref().and_then(text).unwrap_or_default()
}

/// What a `replSetGetStatus` says: who each member is, and how many seconds it is behind the newest that any has.
fn text(status: &Document) -> Option<String> {
    let members = status.get_array("members").ok()?;
    let members: Vec<&Document> =
        members.iter().filter_map(|member| member.as_document()).collect();
    let applied = |member: &Document| {
        let at = member.get_datetime("optimeDate").ok()?.timestamp_millis();
        // A member that has said nothing yet is at the beginning of time.
        (at > 0).then_some(at)
    };
    let newest = members.iter().filter_map(|member| applied(member)).max();
    let mut text = format!("\nmembers of {}\n", status.get_str("set").ok()?);
    for member in members {
        let name = member.get_str("name").unwrap_or("-");
        let state = member.get_str("stateStr").unwrap_or("-");
        let behind = newest.zip(applied(member)).map(|(newest, at)| (newest - at) as f64 / 1000.0);
        let behind = behind.map_or("-".to_owned(), |seconds| format!("{seconds:.1} s behind"));
        let message = member.get_str("lastHeartbeatMessage").unwrap_or_default();
        let own = if member.get_bool("self").unwrap_or(false) { "this one" } else { message };
        let line = format!("  {name:<28} {state:<23} {behind:>16}  {own}");
        let _never_fails = writeln!(text, "{}", line.trim_end());
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::DateTime;

    #[test]
    fn every_member_has_a_line_that_says_how_far_behind_it_is() {
        let at = DateTime::from_millis;
        let status = doc! { "set": "rs", "members": [
            { "name": "a:1", "stateStr": "PRIMARY", "optimeDate": at(10_000), "self": true },
            { "name": "b:1", "stateStr": "SECONDARY", "optimeDate": at(8_500) },
            {
                "name": "c:1", "stateStr": "(not reachable/healthy)", "optimeDate": at(0),
                "lastHeartbeatMessage": "there is no connection to it",
            },
        ] };
        let text = text(&status).unwrap();
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["members", "of", "rs"]);
        assert_eq!(lines[2], ["a:1", "PRIMARY", "0.0", "s", "behind", "this", "one"]);
        assert_eq!(lines[3], ["b:1", "SECONDARY", "1.5", "s", "behind"]);
        assert!(text.contains("-  there is no connection to it"), "{text}");
        assert_eq!(super::text(&doc! { "set": "rs" }), None);
    }
}
