//! What all schemes of a run together may do, from one run to the next.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use isotherm_core::scheme::{Limits, TakenOut};

/// What all schemes of a run together may do, whatever their quotas allow. Schemes that are put in force later keep to
/// it, too, and those of a file.
///
/// Clones share what is out, so that the next run on the same targets goes on from there.
#[derive(Clone, Debug, Default)]
pub struct SchemeLimits {
    limits: Limits,
    out: Arc<Out>,
}

#[derive(Debug, Default)]
struct Out {
    /// What was out at the end of the last run.
    left: Mutex<TakenOut>,
    /// Bytes that are out now.
    bytes: AtomicU64,
}

impl SchemeLimits {
    /// Other limits on what is out already.
    #[must_use]
    pub fn with(&self, limits: Limits) -> Self {
        Self { limits, out: Arc::clone(&self.out) }
    }

    /// How many bytes are out. `None` if that has no limit, and so is not known.
    pub fn out_bytes(&self) -> Option<u64> {
        self.limits.most_out.map(|_| self.out.bytes.load(Ordering::Relaxed))
    }

    /// The limits, and what earlier runs have left out.
    pub(crate) fn begin(&self) -> (Limits, TakenOut) {
        (self.limits, self.left().clone())
    }

    /// Notes what is out.
    pub(crate) fn note(&self, out: &TakenOut) {
        self.out.bytes.store(out.bytes(), Ordering::Relaxed);
    }

    /// Keeps what is out for the next run.
    pub(crate) fn end(&self, out: &TakenOut) {
        self.note(out);
        self.left().clone_from(out);
    }

    fn left(&self) -> MutexGuard<'_, TakenOut> {
        // Each change is one assignment, so a panic of another thread does not spoil it.
        self.out.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
