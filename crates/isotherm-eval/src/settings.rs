//! Settings of the machine: changed for the runs where the user allows it, and restored.

use std::path::{Path, PathBuf};

use isotherm_kernel::{ZramSwap, drop_caches, set_transparent_huge_pages, transparent_huge_pages};

use crate::{Configuration, EvalError};

/// The size of swap in zram, at most. The papers have the same.
const SWAP: u64 = 4 << 30;

/// Settings of the machine that may be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MayChange {
    /// Transparent huge pages: `always` for `thp`, `madvise` for all others.
    pub huge_pages: bool,
    /// Swap: to the first zram device, with half the size of memory, 4 GiB at most.
    pub swap: bool,
    /// The page cache: dropped before each run.
    pub caches: bool,
}

impl MayChange {
    /// The names of the settings, as `--may-change` has them.
    pub const NAMES: [&str; 3] = ["thp", "swap", "caches"];

    /// Adds the setting of this name. Whether there is one.
    pub fn allow(&mut self, name: &str) -> bool {
        match name {
            "thp" => self.huge_pages = true,
            "swap" => self.swap = true,
            "caches" => self.caches = true,
            _ => return false,
        }
        true
    }

    /// The names of those that may be changed.
    pub fn names(self) -> Vec<String> {
        let allowed = [self.huge_pages, self.swap, self.caches];
        Self::NAMES.into_iter().zip(allowed).filter(|(_, allowed)| *allowed).map(|(name, _)| name.into()).collect()
    }
}

/// The settings during an evaluation. What was before is restored when this is dropped.
#[derive(Debug)]
pub(crate) struct Settings {
    root: PathBuf,
    may: MayChange,
    huge_pages_before: Option<String>,
    /// Taken away when this is dropped.
    swap: Option<ZramSwap>,
}

impl Settings {
    /// Sets up swap if that is allowed and the machine has none. The other settings are set for each configuration.
    pub(crate) fn begin(may: MayChange, has_swap: bool, memory: u64) -> Result<Self, EvalError> {
        let swap = match may.swap && !has_swap {
            true => {
                let began = ZramSwap::begin(SWAP.min(memory / 2));
                Some(began.map_err(EvalError::system("swap cannot be set to zram (is there a /dev/zram0?)"))?)
            }
            false => None,
        };
        let mut settings = Self::below(Path::new("/"), may);
        settings.swap = swap;
        Ok(settings)
    }

    fn below(root: &Path, may: MayChange) -> Self {
        let huge_pages_before = may.huge_pages.then(|| transparent_huge_pages(root)).flatten();
        Self { root: root.into(), may, huge_pages_before, swap: None }
    }

    /// Prepares for a run.
    pub(crate) fn ready(&self, configuration: Configuration) -> Result<(), EvalError> {
        if self.may.huge_pages {
            let wanted = if configuration == Configuration::Thp { "always" } else { "madvise" };
            let set = set_transparent_huge_pages(&self.root, wanted);
            set.map_err(EvalError::system(format!("transparent huge pages cannot be set to {wanted}")))?;
        }
        if self.may.caches {
            drop_caches(&self.root).map_err(EvalError::system("the page cache cannot be dropped"))?;
        }
        Ok(())
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        if let Some(before) = &self.huge_pages_before {
            // Nobody is left to tell.
            let _ = set_transparent_huge_pages(&self.root, before);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn huge_pages_are_set_for_each_run_and_restored_and_only_if_they_may_be() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("sys/kernel/mm/transparent_hugepage/enabled");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let read = || fs::read_to_string(&file).unwrap();

        fs::write(&file, "always madvise [never]").unwrap();
        let mut may = MayChange::default();
        Settings::below(root.path(), may).ready(Configuration::Thp).unwrap();
        assert_eq!(read(), "always madvise [never]");

        assert!(may.allow("thp") && !may.allow("anything"));
        assert_eq!(may.names(), ["thp"]);
        let settings = Settings::below(root.path(), may);
        settings.ready(Configuration::Thp).unwrap();
        assert_eq!(read(), "always");
        settings.ready(Configuration::Ethp).unwrap();
        assert_eq!(read(), "madvise");
        drop(settings);
        assert_eq!(read(), "never");
    }
}
