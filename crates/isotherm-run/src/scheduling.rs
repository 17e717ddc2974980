//! How the thread of the monitor is scheduled.

use isotherm_kernel::scheduling::{bind, lock_memory, nice, set_nice};

use crate::RunError;

/// The nice value of the monitor's thread, where that is allowed and no other is asked for. The thread sleeps nearly
/// all of the time, and what it measures is wrong if it wakes up late.
pub const NICE: i32 = -10;

/// How the thread of the monitor is scheduled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// Its nice value, −20 to 19. `None` is [`NICE`] where that is allowed and lowers the value.
    pub nice: Option<i32>,
    /// The processors that it runs on; all if empty.
    pub cpus: Vec<usize>,
    /// Whether the memory of this process stays in memory, where that is allowed.
    pub locks_memory: bool,
}

impl Scheduling {
    /// Applies it to the calling thread.
    pub(crate) fn apply(&self) -> Result<(), RunError> {
        match self.nice {
            Some(wanted) => set_nice(wanted).map_err(|source| RunError::Nice { nice: wanted, source })?,
            // Without the privilege it stays as it is.
            None => _ = nice().ok().filter(|nice| *nice > NICE).map(|_| set_nice(NICE)),
        }
        if !self.cpus.is_empty() {
            bind(&self.cpus).map_err(RunError::Affinity)?;
        }
        if self.locks_memory {
            // The limit on locked memory may be too low. Then pages are read in again when they are needed.
            let _ = lock_memory();
        }
        Ok(())
    }
}
