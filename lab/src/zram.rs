//! Swap on compressed memory.

use std::process::Command;

use crate::run;

/// Swap on zram until this is dropped.
#[derive(Debug)]
pub struct Zram(());

impl Zram {
    /// Swap of so many MiB.
    pub fn of(mib: u64) -> Self {
        let script = format!("echo {mib}M > /sys/block/zram0/disksize && mkswap /dev/zram0 && swapon /dev/zram0");
        let ran = run(Command::new("sh").args(["-ec", &script]));
        assert_eq!(ran.status, 0, "{script}: {ran:?}");
        Self(())
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        // If this fails, the test has failed before.
        let script = "swapoff /dev/zram0; echo 1 > /sys/block/zram0/reset";
        let _ = Command::new("sh").args(["-c", script]).status();
    }
}
