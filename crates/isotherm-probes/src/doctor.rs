//! Which probes work here, found out by trying each.

use serde::Serialize;

use crate::RefsProbe;
use crate::bpf::BpfProbe;
use crate::damon::{self, DamonError, Features, Places};
use crate::idle::IdleProbe;

/// What trying one probe showed.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The probe's name, as `--probe` takes it.
    pub probe: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Whether it works here, for this user.
    pub works: bool,
    /// If it does not: what failed, why, and what would mend it.
    pub why_not: Option<String>,
    /// Whether a run may choose it by itself.
    pub auto: bool,
    /// What of it this kernel has, where kernels differ.
    pub features: Option<String>,
}

/// Tries every probe: first those that a run may choose by itself, the best first.
pub fn examine() -> Vec<Finding> {
    let finding = |probe, about, tried: Result<(), String>| Finding {
        probe,
        about,
        works: tried.is_ok(),
        why_not: tried.err(),
        auto: true,
        features: None,
    };
    vec![
        finding(
            "idle",
            "the kernel's idle page tracking, page by page; physical memory, too",
            IdleProbe::check().map_err(|error| error.to_string()),
        ),
        finding("bpf", "page tables read by eBPF, page by page", BpfProbe::check().map_err(|error| error.to_string())),
        finding(
            "refs",
            "/proc/PID/clear_refs and smaps; coarse, a mapping at a time",
            RefsProbe::check().map_err(|error| error.to_string()),
        ),
        Finding { auto: false, ..damon(&finding) },
    ]
}

/// The kernel's DAMON is not tried, only looked at: trying it would mean to change what another may be about to use.
fn damon(finding: &dyn Fn(&'static str, &'static str, Result<(), String>) -> Finding) -> Finding {
    let places = Places::system();
    let tried = damon::check(&places);
    let there = !matches!(tried, Err(DamonError::NoSysfs(_)));
    let about = "the kernel's own DAMON; only when it is asked for";
    Finding {
        features: there.then(|| Features::find(&places).to_string()),
        ..finding("damon", about, tried.map_err(|error| error.to_string()))
    }
}
