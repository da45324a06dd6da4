//! The seam to the connections.

use quorum::MemberId;

use crate::frame::Frame;

/// The connections to the other members.
pub trait Links {
    /// Puts a frame on its way to a member, behind those before it, or loses it. Never waits: where the
    /// member takes nothing, frames are dropped, and [`crate::Replica::link_lost`] is told.
    fn send(&mut self, to: MemberId, frame: Frame);
}
