//! The runs that watch the groups. Groups that are watched in the same way share one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use isotherm_kernel::unix_ns;
use isotherm_run::{Notice, RunConfig, RunError, SharedRun};

use crate::config::Manner;
use crate::journal;

/// How many notices are kept.
const NOTICES: usize = 100;

/// All runs that groups share.
#[derive(Default)]
pub struct Engines(Mutex<Vec<Weak<Engine>>>);

/// A run that groups share. It ends with the last of them.
pub struct Engine {
    /// The run.
    pub run: SharedRun,
    manner: Mutex<Manner>,
    notices: Arc<Notices>,
}

/// The last notices, each with its time since the Unix epoch, in nanoseconds.
#[derive(Default)]
struct Notices(Mutex<VecDeque<(u64, Notice)>>);

impl Engines {
    /// Returns the run that watches in this manner. Starts one from `config` if there is none.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn get(&self, manner: &Manner, config: RunConfig) -> Result<Arc<Engine>, RunError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|engine| engine.strong_count() > 0);
        let fits = |engine: &Arc<Engine>| *engine.manner() == *manner && !engine.run.is_over();
        if let Some(engine) = all.iter().filter_map(Weak::upgrade).find(fits) {
            return Ok(engine);
        }
        let notices = Arc::new(Notices::default());
        let kept = Arc::clone(&notices);
        let run = SharedRun::start(config, manner.compares_rates, move |notice| kept.note(notice))?;
        let engine = Arc::new(Engine { run, manner: Mutex::new(manner.clone()), notices });
        all.push(Arc::downgrade(&engine));
        Ok(engine)
    }
}

impl Engine {
    /// Notes that it watches in another manner from now on.
    pub fn set_manner(&self, manner: Manner) {
        *self.manner() = manner;
    }

    /// The last notices that are not about one group.
    pub fn notices(&self) -> Vec<(u64, Notice)> {
        self.notices.lock().iter().cloned().collect()
    }

    fn manner(&self) -> MutexGuard<'_, Manner> {
        self.manner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notices {
    fn note(&self, notice: &Notice) {
        journal::tell(notice);
        let mut all = self.lock();
        if all.len() == NOTICES {
            all.pop_front();
        }
        all.push_back((unix_ns(), notice.clone()));
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, Notice)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
