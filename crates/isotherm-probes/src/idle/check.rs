//! A test of the whole probe on this process's own memory.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AccessProbe, AddrRange, Layout, Mapping, Observation, PAGE_SIZE, Sample, TargetId, TargetSpace, chain,
};

use super::{IdleError, IdleProbe};
use isotherm_kernel::Scratch;

const PAGES: u64 = 64;

/// How many times the test is repeated while some pages cannot be observed. A page that was touched for the first time
/// may wait on another processor before it is put on a reclaim list, and can be observed only after that.
const ATTEMPTS: u32 = 20;

impl IdleProbe {
    /// Opens the probe and tests it on this process's own memory.
    ///
    /// # Errors
    /// If the probe does not work here. The error says why, and how to fix it.
    pub fn check() -> Result<(), IdleError> {
        check(Self::open()?)
    }
}

/// Touches pages, marks them, touches half of them again, and compares the answers of `probe`.
fn check(mut probe: IdleProbe) -> Result<(), IdleError> {
    let failed = |step: &str, e: &(dyn std::error::Error + 'static)| {
        IdleError::Trial(format!("{step} its own pages failed: {}", chain(e)))
    };
    let scratch = Scratch::new(PAGES * PAGE_SIZE)?;
    // This fails on a kernel without huge pages, which is harmless.
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
            // Marking does not flush the TLB. The changes of protection in `break_up` do.
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
                "{wrong} of {of} pages, half of which were touched, were reported wrongly"
            )));
        }
        if observed.len() == answers.len() {
            return Ok(());
        }
    }
    let seen = answers.iter().filter(|&&answer| answer != Observation::Unobservable).count();
    if seen == 0 { Err(IdleError::Trial("none of its own pages could be observed".into())) } else { Ok(()) }
}
