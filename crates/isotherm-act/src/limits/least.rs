//! The limits below which cgroups are not let down.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The limits below which cgroups are not let down, in bytes, by the paths of the cgroups. Clones share them, so that
/// they can change during a run.
#[derive(Clone, Debug, Default)]
pub struct LeastLimits(Arc<Mutex<BTreeMap<String, u64>>>);

impl LeastLimits {
    /// Sets that of the cgroup at `path`.
    pub fn set(&self, path: &str, bytes: u64) {
        self.lock().insert(path.into(), bytes);
    }

    /// That of the cgroup at `path`. `None` if it is not known.
    pub fn get(&self, path: &str) -> Option<u64> {
        self.lock().get(path).copied()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        // Each change is one insertion, so a panic of another thread does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
