//! Changes settings of the machine that concern memory. Only a user who asked for it gets here.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, io};

const HUGE_PAGES: &str = "sys/kernel/mm/transparent_hugepage/enabled";
const DROP_CACHES: &str = "proc/sys/vm/drop_caches";
const ZRAM: &str = "sys/block/zram0";

/// Sets transparent huge pages to `always`, `madvise` or `never`, below `root`, which stands for `/`.
///
/// # Errors
/// If the kernel refuses.
#[allow(clippy::disallowed_methods, reason = "writes to /sys/kernel/mm/transparent_hugepage/enabled")]
pub fn set_transparent_huge_pages(root: &Path, setting: &str) -> io::Result<()> {
    fs::write(root.join(HUGE_PAGES), setting)
}

/// Writes changed pages of files to their disks, and drops the page cache and what the kernel can rebuild of its
/// objects, below `root`, which stands for `/`.
///
/// # Errors
/// If the kernel refuses.
#[allow(clippy::disallowed_methods, reason = "writes to /proc/sys/vm/drop_caches")]
pub fn drop_caches(root: &Path) -> io::Result<()> {
    rustix::fs::sync();
    fs::write(root.join(DROP_CACHES), "3")
}

/// Whether the machine has a zram device that is not used yet, below `root`, which stands for `/`.
pub fn has_free_zram(root: &Path) -> bool {
    fs::read_to_string(root.join(ZRAM).join("disksize")).is_ok_and(|size| size.trim() == "0")
}

/// Swap on the first zram device. It is taken away when this is dropped.
#[derive(Debug)]
pub struct ZramSwap(());

impl ZramSwap {
    /// Gives the device this size, and begins to swap to it.
    ///
    /// # Errors
    /// If the kernel refuses, or the programs `mkswap` and `swapon` are missing or fail.
    #[allow(clippy::disallowed_methods, reason = "writes to /sys/block/zram0/disksize")]
    pub fn begin(bytes: u64) -> io::Result<Self> {
        fs::write(Path::new("/").join(ZRAM).join("disksize"), bytes.to_string())?;
        on_zram("mkswap")?;
        on_zram("swapon")?;
        Ok(Self(()))
    }
}

impl Drop for ZramSwap {
    #[allow(clippy::disallowed_methods, reason = "writes to /sys/block/zram0/reset")]
    fn drop(&mut self) {
        // Without memory for what is in swap, the kernel refuses, and swap stays.
        if on_zram("swapoff").is_ok() {
            let _ = fs::write(Path::new("/").join(ZRAM).join("reset"), "1");
        }
    }
}

fn on_zram(program: &str) -> io::Result<()> {
    let output = Command::new(program).arg("/dev/zram0").stdin(Stdio::null()).output();
    let output =
        output.map_err(|error| io::Error::new(error.kind(), format!("{program} cannot be started: {error}")))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim()))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn settings_are_written_where_the_kernel_reads_them() {
        let root = tempfile::tempdir().unwrap();
        assert!(set_transparent_huge_pages(root.path(), "always").is_err() && drop_caches(root.path()).is_err());
        assert!(!has_free_zram(root.path()));
        for directory in ["sys/kernel/mm/transparent_hugepage", "proc/sys/vm", "sys/block/zram0"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        set_transparent_huge_pages(root.path(), "always").unwrap();
        drop_caches(root.path()).unwrap();
        let read = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
        assert_eq!((read(HUGE_PAGES), read(DROP_CACHES)), ("always".into(), "3".into()));
        for (size, free) in [("0\n", true), ("4096\n", false)] {
            fs::write(root.path().join("sys/block/zram0/disksize"), size).unwrap();
            assert_eq!(has_free_zram(root.path()), free, "{size}");
        }
    }
}
