//! A marker through every secret field of every command, looked for in all that the server says or keeps.

use super::super::Client;
use crate::registry::COMMANDS;
use bson::{Bson, Document, doc};
use parking_lot::Mutex;
use serverstate::{AuditSink, Host, LogEvent, Network};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const MARK: &str = "MARKEDSECRET";

/// Keeps every line and every event.
#[derive(Default)]
struct Recorder {
    lines: Mutex<Vec<String>>,
    events: Mutex<Vec<String>>,
}

impl AuditSink for Recorder {
    fn record(&self, event: &Document) -> Result<(), String> {
        self.events.lock().push(event.to_string());
        Ok(())
    }

    fn rotate(&self) -> Result<(), String> {
        Ok(())
    }
}

impl Host for Recorder {
    fn log(&self, event: &LogEvent<'_>) {
        self.lines.lock().push(format!("{} {}", event.message, event.attributes));
    }

    fn recent_log(&self, _name: &str) -> Option<(Vec<String>, u64)> {
        Some((self.lines.lock().clone(), 0))
    }

    fn rotate_log(&self) -> Result<(), String> {
        Ok(())
    }

    fn shut_down(&self, _timeout: Duration) {}

    fn audit(&self) -> Option<&dyn AuditSink> {
        Some(self)
    }

    fn network(&self) -> Network {
        Network::default()
    }
}

/// The marker in all the shapes that a client may give a value.
fn shapes() -> Vec<Bson> {
    vec![
        Bson::from(MARK),
        super::binary(MARK.as_bytes().to_vec()).into(),
        doc! { "x": MARK, "payload": MARK }.into(),
        bson::bson!([MARK, { "pwd": MARK }]),
    ]
}

/// A command with the marker in one of its secret fields, and what else it has to have to come far.
fn marked(name: &str, field: &str, value: &Bson) -> Document {
    let mut command = match name {
        "createUser" | "updateUser" => doc! { name: "m", "roles": [] },
        "saslStart" => doc! { name: 1, "mechanism": "SCRAM-SHA-256" },
        "saslContinue" => doc! { name: 1, "conversationId": 1 },
        "authenticate" => doc! { name: 1, "mechanism": "MONGODB-CR", "user": "m" },
        "explain" => return doc! { name: { "createUser": "m", field: value.clone(), "roles": [] } },
        _ => doc! { name: 1 },
    };
    command.insert(field, value.clone());
    command
}

/// The marker's bytes as base64.
const BASE64: &str = "TUFSS0VEU0VDUkVU";

/// How the marker looks in a text: by itself, or as bytes.
fn is_in(text: &str) -> bool {
    let digit = |digit: u8| char::from_digit(digit.into(), 16).expect("below 16");
    let hex: String = MARK.bytes().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
    text.contains(MARK) || text.contains(&hex) || text.contains(BASE64)
}

#[test]
fn no_secret_field_of_any_command_is_in_any_output() {
    let recorder = Arc::new(Recorder::default());
    let root = Client::asking_with_host(Arc::clone(&recorder) as Arc<dyn Host>);
    root.ok("admin", super::create("root", &[("root", "admin")]));
    assert_eq!(root.log_in("root", "admin"), 0);
    root.ok("admin", doc! { "profile": 2, "slowms": 0 });
    root.ok("admin", doc! { "setParameter": 1, "auditAuthorizationSuccess": true });
    let nobody = root.another(50);
    let mut sent = 0;
    for command in COMMANDS.iter().filter(|command| !command.secret.is_empty()) {
        for field in command.secret {
            for value in shapes() {
                for client in [&root, &nobody] {
                    for database in ["admin", "$external"] {
                        let asked = marked(command.name, field, &value);
                        let reply = client.run(database, asked.clone());
                        assert!(!is_in(&reply.to_string()), "{} answers {reply}", command.name);
                        sent += 1;
                    }
                }
            }
        }
    }
    assert!(sent > 100, "{sent}");
    for name in ["saslStart", "createUser", "updateUser", "authenticate", "explain"] {
        assert!(recorder.lines.lock().iter().any(|line| line.contains(name)), "{name} was logged");
    }
    for outputs in [&recorder.lines, &recorder.events] {
        let outputs = outputs.lock();
        assert!(!outputs.is_empty());
        for told in outputs.iter() {
            assert!(!is_in(told), "{told}");
        }
    }
    let all = |name: &str| doc! { name: 1 };
    let told = [
        doc! { "find": "system.profile", "batchSize": 10_000 },
        doc! { "getLog": "global" },
        all("serverStatus"),
        all("engineStatus"),
        all("getDiagnosticData"),
        all("serverHistory"),
        all("getCmdLineOpts"),
        all("top"),
        all("connectionStatus"),
        doc! { "usersInfo": 1, "showPrivileges": false },
        doc! { "currentOp": 1, "$all": true },
        doc! { "aggregate": 1, "pipeline": [{ "$currentOp": { "allUsers": true, "idleConnections": true } }], "cursor": {} },
    ];
    for command in told {
        let reply = root.run("admin", command.clone()).to_string();
        assert!(!is_in(&reply), "{command}: {reply}");
    }
    let profile = root.ok("admin", doc! { "find": "system.profile", "batchSize": 10_000 });
    assert!(profile.to_string().contains("createUser"), "it was profiled");
}

#[test]
fn no_secret_field_is_shown_while_its_command_runs() {
    let root = Client::rooted();
    root.service.test_commands.store(true, std::sync::atomic::Ordering::Relaxed);
    let secret: Vec<_> = COMMANDS.iter().filter(|command| !command.secret.is_empty()).collect();
    for (at, command) in secret.into_iter().enumerate() {
        // Before the fail point, which may be for what logs in.
        let other = root.another(60 + at as u64);
        assert_eq!(other.log_in("root", "admin"), 0);
        let data = doc! { "failCommands": [command.name], "blockConnection": true,
        "blockTimeMS": 60_000, "failInternalCommands": true };
        root.ok(
            "admin",
            doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data },
        );
        let asked = marked(command.name, command.secret[0], &Bson::from(MARK));
        let shown = thread::scope(|scope| {
            let running = scope.spawn(|| other.run("admin", asked));
            let mut looks = 0;
            let shown = loop {
                looks += 1;
                assert!(looks < 100_000, "{} never runs", command.name);
                let all = root.ok("admin", doc! { "currentOp": 1, "$all": true });
                let found = all.get_array("inprog").unwrap().iter().find_map(|one| {
                    let one = one.as_document()?;
                    let shown = one.get_document("command").ok()?;
                    shown.contains_key(command.name).then(|| one.clone())
                });
                match found {
                    Some(found) => break found,
                    None => thread::yield_now(),
                }
            };
            let opid = shown.get("opid").unwrap().clone();
            root.ok("admin", doc! { "killOp": 1, "op": opid });
            running.join().unwrap();
            shown
        });
        root.ok("admin", doc! { "configureFailPoint": "failCommand", "mode": "off" });
        assert!(!is_in(&shown.to_string()), "{shown}");
    }
}
