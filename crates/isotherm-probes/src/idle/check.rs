//! A trial of the whole probe on own memory.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AccessProbe, AddrRange, Layout, Mapping, Observation, PAGE_SIZE, Sample, TargetId, TargetSpace};

use super::{IdleError, IdleProbe};
use isotherm_kernel::Scratch;

const PAGES: u64 = 64;

/// How often a trial in which nothing could be observed is made again: pages that have just been touched first may wait on
/// another processor to be listed.
const ATTEMPTS: u32 = 20;

impl IdleProbe {
    /// Opens the probe and tries it on this process's own memory.
    ///
    /// # Errors
    /// Says what does not work, why, and what would mend it.
    pub fn check() -> Result<(), IdleError> {
        check(Self::open()?)
    }
}

/// Touches own pages, marks them, touches half of them again, and asks `probe` which.
fn check(mut probe: IdleProbe) -> Result<(), IdleError> {
    let failed = |doing: &str, e: &dyn std::error::Error| IdleError::Trial(format!("{doing} own pages failed: {e}"));
    let scratch = Scratch::new(PAGES * PAGE_SIZE)?;
    // Without huge pages configured this fails, and then there are none to be kept away.
    let _ = scratch.huge(false);
    let id = TargetId::process(std::process::id(), Duration::ZERO);
    let range = AddrRange::new(scratch.start(), scratch.start() + PAGES * PAGE_SIZE);
    let mapping = range.map(Mapping::anonymous);
    let mappings: Arc<[Mapping]> = mapping.into_iter().collect();
    let samples: Vec<_> =
        (0..PAGES).map(|page| Sample { target: id, addr: scratch.start() + page * PAGE_SIZE }).collect();
    let mut answers = vec![Observation::Idle; samples.len()];

    probe.update(&[TargetSpace { id, layout: Layout::Process, mappings }]).map_err(|e| failed("finding", &*e))?;
    for _ in 0..ATTEMPTS {
        (0..PAGES).for_each(|page| scratch.touch(page * PAGE_SIZE));
        probe.clear(&samples).map_err(|e| failed("marking", &*e))?;
        for offset in (0..PAGES).step_by(2).map(|page| page * PAGE_SIZE) {
            // The kernel does not forget translations when it marks: another way makes it.
            if scratch.break_up(offset).is_ok() {
                scratch.touch(offset);
            }
        }
        probe.read(&samples, &mut answers).map_err(|e| failed("reading", &*e))?;

        let observed: Vec<_> =
            (0..).zip(&answers).filter(|&(_, &answer)| answer != Observation::Unobservable).collect();
        let truth = |page| if page % 2 == 0 { Observation::Accessed } else { Observation::Idle };
        let wrong = observed.iter().filter(|&&(page, &answer)| answer != truth(page)).count();
        if wrong > 0 {
            let of = observed.len();
            return Err(IdleError::Trial(format!(
                "of {of} pages, half of them touched, {wrong} were said to be otherwise"
            )));
        }
        if observed.len() == answers.len() {
            return Ok(());
        }
    }
    let seen = answers.iter().filter(|&&answer| answer != Observation::Unobservable).count();
    if seen == 0 { Err(IdleError::Trial("none of its own pages could be observed".into())) } else { Ok(()) }
}
