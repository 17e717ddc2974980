//! The machine that a measurement runs on: huge pages and swap, which only the laboratory's may be set.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Only the laboratory has it, from its first moment on.
const LABORATORY: &str = "/lab/settings";

const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const ZRAM: &str = "/sys/block/zram0/disksize";

/// For which memory the kernel makes huge pages by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// None.
    Never,
    /// Where a program asks for them.
    Madvise,
    /// All.
    Always,
}

/// What may be done to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// A machine of our own, of which everything may be set.
    Laboratory,
    /// Somebody's machine, of which nothing is changed.
    Here,
}

impl Machine {
    /// The machine that this runs on.
    pub fn this() -> Self {
        if Path::new(LABORATORY).exists() { Self::Laboratory } else { Self::Here }
    }

    /// As it is called in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Laboratory => "laboratory",
            Self::Here => "here",
        }
    }

    /// Whether programs of their own accord decide which memory may be huge pages, as `thp` has it where nothing is set.
    ///
    /// # Errors
    /// If the kernel makes huge pages for all or for none, or does not tell.
    pub fn lets_programs_ask(self) -> Result<()> {
        let set = fs::read_to_string(HUGE_PAGES).with_context(|| format!("{HUGE_PAGES} cannot be read"))?;
        ensure!(
            self == Self::Laboratory || set.contains("[madvise]"),
            "{HUGE_PAGES} is {}: only where it is madvise can thp be compared with orig; leave thp and ethp out",
            set.trim()
        );
        Ok(())
    }

    /// Makes compressed memory (zram) of this size the swap space.
    ///
    /// # Errors
    /// If this is not the laboratory, or the kernel has no zram.
    pub fn swap_to_zram(self, bytes: u64) -> Result<()> {
        ensure!(self == Self::Laboratory, "this is not the laboratory: its swap stays as it is");
        write(ZRAM, &bytes.to_string())?;
        call("mkswap")?;
        call("swapon")
    }

    /// Makes ready for a run: sets huge pages, empties swap, drops caches and joins free memory again, so that every run begins
    /// alike. Of a machine that is not ours nothing is changed.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn ready(self, huge_pages: HugePages) -> Result<()> {
        if self == Self::Here {
            return Ok(());
        }
        // What was reclaimed of programs and libraries comes back, too.
        call("swapoff")?;
        call("swapon")?;
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

fn call(program: &str) -> Result<()> {
    let output = Command::new(program).arg("/dev/zram0").output();
    let output = output.with_context(|| format!("{program} cannot be started"))?;
    ensure!(output.status.success(), "{program} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn write(path: &str, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("{text} cannot be written to {path}"))
}
