//! Finds out which probes work on this machine by trying each of them.

use std::path::Path;

use isotherm_core::chain;
use isotherm_kernel::lru_gen::LruGen;
use serde::Serialize;

use crate::RefsProbe;
use crate::bpf::BpfProbe;
use crate::damon::{self, DamonError, DamonPaths, Features, Others};
use crate::idle::IdleProbe;

/// The result of trying one probe.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The probe's name, as `--probe` takes it.
    pub probe: &'static str,
    /// A description of the probe in one line.
    pub about: &'static str,
    /// Whether the probe works on this machine, for this user.
    pub works: bool,
    /// Why the probe does not work, and how to fix it. `None` if it works.
    pub why_not: Option<String>,
    /// Whether a run may choose the probe on its own (`--probe auto`).
    pub auto: bool,
    /// Whether the probe sees physical memory, and not only that of given processes.
    pub physical: bool,
    /// The features of the probe that this kernel has, if kernels differ in them.
    pub features: Option<String>,
}

/// Tries every probe. The probes that a run may choose on its own come first, in order of preference.
pub fn examine() -> Vec<Finding> {
    let finding = |probe, about, tried: Result<(), String>| Finding {
        probe,
        about,
        works: tried.is_ok(),
        why_not: tried.err(),
        auto: true,
        physical: false,
        features: None,
    };
    let idle = finding(
        "idle",
        "the kernel's idle page tracking, page by page; physical memory, too",
        IdleProbe::check().map_err(|error| chain(&error)),
    );
    vec![
        Finding { physical: true, ..idle },
        bpf(&finding),
        finding(
            "refs",
            "/proc/PID/clear_refs and smaps; coarse, a mapping at a time",
            RefsProbe::check().map_err(|error| chain(&error)),
        ),
        Finding { auto: false, ..damon(&finding) },
    ]
}

/// Names a kdamond that changes what the other probes find, and says how it does so. `None` if no kdamond is on.
pub fn disturbance() -> Option<String> {
    Others::look(&DamonPaths::system()).ok()?.disturbance()
}

/// Tries the probe `bpf`, and says what its surveys do to a target.
fn bpf(finding: &dyn Fn(&'static str, &'static str, Result<(), String>) -> Finding) -> Finding {
    let tried = BpfProbe::check().map_err(|error| chain(&error));
    let aging = match LruGen::open(Path::new("/")) {
        Ok(_) => "the multi-generational LRU is on and is used instead where this costs the processes less: it clears \
                  all pages of a cgroup without delaying page faults, and marks accessed pages as young"
            .into(),
        Err(error) => {
            format!("the multi-generational LRU, which does not delay page faults, is not used: {}", chain(&error))
        }
    };
    let surveys = format!(
        "surveys all pages, for isotherm idle as well; memory that several processes map through /proc/PID/clear_refs, \
         which clears the referenced marks of the process and delays its page faults and mmap meanwhile, for at most \
         10 ms by default (--shared-hold); {aging}"
    );
    Finding {
        features: tried.is_ok().then_some(surveys),
        physical: true,
        ..finding("bpf", "page tables read by eBPF, page by page; physical memory as far as processes map it", tried)
    }
}

/// Checks whether the kernel's DAMON is available, without starting it: another program may be about to use it.
fn damon(finding: &dyn Fn(&'static str, &'static str, Result<(), String>) -> Finding) -> Finding {
    let places = DamonPaths::system();
    let tried = damon::check(&places);
    let there = !matches!(tried, Err(DamonError::NoSysfs(_)));
    let about = "the kernel's own DAMON; only when it is asked for";
    Finding {
        physical: true,
        features: there.then(|| Features::find(&places).to_string()),
        ..finding("damon", about, tried.map_err(|error| chain(&error)))
    }
}
