//! Commands about logical sessions and transactions.
