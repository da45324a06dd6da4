//! Which releases of MongoDB this server and its data are like.

/// The MongoDB release whose behaviour this server shows.
pub const MONGODB_VERSION: &str = "8.0.14";
/// The same in numbers.
pub const MONGODB_VERSION_PARTS: [i32; 4] = [8, 0, 14, 0];
/// What data files of this server are compatible with, in MongoDB's words.
pub const FEATURE_VERSION: &str = "8.0";

/// The form of users and roles that is taken over: that of every MongoDB since 3.0.
pub const AUTH_SCHEMA_VERSION: i32 = 5;
