//! Commands that change or describe databases, collections and indexes, and the server itself.
