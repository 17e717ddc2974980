//! The machine that a measurement runs on. Huge pages and swap are set in the laboratory only.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// A file that exists in the laboratory only (`lab/boot` makes it).
const LABORATORY: &str = "/lab/settings";

const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const ZRAM: &str = "/sys/block/zram0/disksize";

/// Settings of transparent huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// No memory.
    Never,
    /// Memory for which a program calls `madvise`.
    Madvise,
    /// All memory.
    Always,
}

/// The machine, and whether its settings may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// The laboratory's virtual machine: settings may be changed.
    Laboratory,
    /// Any other machine: settings stay as they are.
    Here,
}

impl Machine {
    /// The machine that this program runs on.
    pub fn this() -> Self {
        if Path::new(LABORATORY).exists() { Self::Laboratory } else { Self::Here }
    }

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Laboratory => "laboratory",
            Self::Here => "here",
        }
    }

    /// Checks that transparent huge pages are set to `madvise`, which `thp` needs where the setting may not
    /// be changed.
    ///
    /// # Errors
    /// If the setting is another one, or cannot be read.
    pub fn require_madvise(self) -> Result<()> {
        let set = fs::read_to_string(HUGE_PAGES).with_context(|| format!("{HUGE_PAGES} cannot be read"))?;
        ensure!(
            self == Self::Laboratory || set.contains("[madvise]"),
            "{HUGE_PAGES} is {}; thp and ethp need madvise: set it, or leave them out (--configurations)",
            set.trim()
        );
        Ok(())
    }

    /// Uses zram of this size as swap.
    ///
    /// # Errors
    /// If this machine is not the laboratory, or the kernel has no zram.
    pub fn swap_to_zram(self, bytes: u64) -> Result<()> {
        ensure!(self == Self::Laboratory, "swap is set in the laboratory only");
        write(ZRAM, &bytes.to_string())?;
        on_zram("mkswap")?;
        on_zram("swapon")
    }

    /// Prepares for a run: sets huge pages, empties swap, drops caches and compacts memory, so that all runs
    /// start alike. Changes nothing outside the laboratory.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn ready(self, huge_pages: HugePages) -> Result<()> {
        if self == Self::Here {
            return Ok(());
        }
        on_zram("swapoff")?;
        on_zram("swapon")?;
        let word = match huge_pages {
            HugePages::Never => "never",
            HugePages::Madvise => "madvise",
            HugePages::Always => "always",
        };
        write(HUGE_PAGES, word)?;
        write("/proc/sys/vm/drop_caches", "3")?;
        write("/proc/sys/vm/compact_memory", "1")?;
        sleep(Duration::from_millis(500));
        Ok(())
    }
}

fn on_zram(program: &str) -> Result<()> {
    let output = Command::new(program).arg("/dev/zram0").output();
    let output = output.with_context(|| format!("{program} cannot be started"))?;
    ensure!(output.status.success(), "{program} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn write(path: &str, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("{text} cannot be written to {path}"))
}
