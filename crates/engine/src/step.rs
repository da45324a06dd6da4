//! Background work without threads: one unit of whatever is due, in a fixed order.

use crate::Result;
use crate::environment::Environment;

impl Environment {
    /// One unit of whatever is due; false where nothing is.
    pub(crate) fn step(&self) -> Result<bool> {
        self.health.check_running()?;
        self.free_space.prepare_log()?;
        if let Some(archiver) = &self.archiver {
            archiver.copy();
        }
        self.maintenance.tick()?;
        if self.log_writer.flush_if_due()? {
            return Ok(true);
        }
        if self.checkpoints.is_due() && self.checkpoints.has_changed() {
            self.checkpoints.write()?;
            return Ok(true);
        }
        self.schedule.step()
    }
}
