//! Who a client is and what it may do, without I/O: SCRAM on both sides, credentials as they are stored,
//! actions, resources, privileges, the built-in roles, the inheritance of roles, restrictions by address,
//! key files and what members log in with, signatures of the cluster's times.
//!
//! Always true:
//! 1. Nothing here asks the time, chance or a file: nonces, salts and bytes are handed in.
//! 2. A secret is compared in a time that does not depend on where it differs, and is wiped when it is dropped.
//! 3. What is not understood grants nothing: a parser refuses, a lookup finds no privilege.
#![forbid(unsafe_code)]

mod action;
mod builtin;
mod cluster_auth;
mod cluster_key;
mod cluster_time;
mod document;
mod grants;
pub mod key_file;
pub mod old_users;
mod resource;
mod restriction;
mod role;
mod role_name;
pub mod scram;
mod secret;
mod user;

pub use action::{Action, ActionSet};
pub use builtin::{BUILT_IN, BuiltIn, On, built_in, privileges_of};
pub use cluster_auth::ClusterAuth;
pub use cluster_key::ClusterKey;
pub use cluster_time::{TimeFlaw, TimeKeys, TimeSignature};
pub use grants::Grants;
pub use resource::{Privilege, Resource, Target};
pub use restriction::{Address, Network, Restriction, Restrictions, all_met};
pub use role::{Resolved, RoleDocument, Roles, closes_cycle, exists, resolve};
pub use role_name::RoleName;
pub use secret::{Secret, keyed_digest};
pub use user::{UserDocument, UserName};
