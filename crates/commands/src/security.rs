//! Logins, users and roles: their commands, and what those commands need for which it depends on the request.
//!
//! Always true: users and roles are changed by `stored` alone.

pub(crate) mod asks;
pub(crate) mod auth_schema_upgrade;
pub(crate) mod authenticate;
pub(crate) mod create_role;
pub(crate) mod create_user;
pub(crate) mod drop_role;
pub(crate) mod drop_user;
pub(crate) mod invalidate_user_cache;
pub(crate) mod logout;
mod pipelines;
pub(crate) mod role_privileges;
pub(crate) mod role_roles;
pub(crate) mod roles_info;
pub(crate) mod sasl;
pub(crate) mod stored;
pub(crate) mod update_role;
pub(crate) mod update_user;
pub(crate) mod user_roles;
pub(crate) mod users_info;
