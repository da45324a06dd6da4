//! The open connections: how one is greeted and forgotten, and the transaction bound to one ended.

use crate::connection::{Connection, OperationInterrupt, Origin};
use crate::scripting::ScriptHost;
use crate::state::ServerState;
use dispatch::ConnectionInfo;
use session::CursorId;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl ServerState {
    /// Greets a new connection.
    pub fn open_connection(&self, info: ConnectionInfo) -> Arc<Connection> {
        self.connect(info, Origin::Client)
    }

    /// The connection of the program itself, by which it sets what is fixed once clients may come.
    pub fn open_startup_connection(&self) -> Arc<Connection> {
        self.connect(ConnectionInfo::default(), Origin::Startup)
    }

    fn connect(&self, info: ConnectionInfo, origin: Origin) -> Arc<Connection> {
        let id = self.next_connection.fetch_add(1, Ordering::Relaxed);
        let operation = self.operations.open(id);
        let interrupt =
            Arc::new(OperationInterrupt { operation, clock: Arc::clone(&self.os.clock) });
        let login = Arc::default();
        let asked = self.security.is_enforced().then(|| Arc::clone(&login));
        let script_host =
            Arc::new(ScriptHost::new(&self.scripting, &self.catalog, &interrupt, asked));
        let memory = Arc::clone(&self.memory);
        let connection = Connection::open(id, info, origin, interrupt, script_host, login, memory);
        self.connections.lock().insert(id, Arc::clone(&connection));
        connection
    }

    /// Forgets a connection, and aborts the transaction that was bound to it. Its other cursors
    /// and its sessions live on: another connection may continue them.
    pub fn close_connection(&self, connection: &Connection) {
        self.abort_bound(connection);
        // What it was to write is not written: nobody was told that it is.
        let waiting = connection.lock_waiting.lock().take();
        drop(waiting);
        // Nobody else knows of it: a stream of replies, or a wait, that was broken off ends its cursor.
        let own = connection.own_cursor.swap(0, Ordering::Relaxed);
        if own != 0 {
            let _killed = self.cursors.kill_any(CursorId(own));
        }
        self.operations.close(connection.id);
        let gone = self.connections.lock().remove(&connection.id);
        drop(gone);
    }

    /// The open connections.
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        self.connections.lock().values().cloned().collect()
    }

    /// The connection to which this transaction is bound.
    pub fn connection_of(&self, txn: u64) -> Option<Arc<Connection>> {
        let connections = self.connections.lock();
        connections.values().find(|c| c.txn_id.load(Ordering::Relaxed) == txn).cloned()
    }

    /// Ends the transaction that is bound to the connection without a trace; says whether there
    /// was one.
    pub fn abort_bound(&self, connection: &Connection) -> bool {
        let Some(bound) = connection.bound.lock().take() else { return false };
        drop(bound);
        self.bound_ended(connection);
        self.transactions.aborted.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// After the transaction that was bound to the connection: its cursors go too.
    pub fn bound_ended(&self, connection: &Connection) {
        connection.txn_id.store(0, Ordering::Relaxed);
        self.cursors.kill_where(|cursor| cursor.connection == Some(connection.id));
    }
}
