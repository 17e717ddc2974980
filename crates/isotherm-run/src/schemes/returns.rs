//! The notices of a run when memory that a scheme freed comes back soon.

use isotherm_core::scheme::Returns;
use isotherm_core::units::{bytes, duration, percent};

use crate::{Notice, NoticeKind, Severity};

/// The notice that too much comes back, or no longer does.
pub(crate) fn notice(returns: Returns) -> Notice {
    let Returns { scheme, moved, too_much, freed, returned, window, slowed } = &returns;
    let came_back = match window.is_zero() {
        _ if *moved => format!("was moved back within {}", duration(*window)),
        true => "was in memory again at the next survey".into(),
        false => format!("was in memory again within {}", duration(*window)),
    };
    let share = percent(*returned as f64 / (*freed).max(1) as f64);
    let did = if *moved { "moved" } else { "freed" };
    let what = format!("{scheme}: {} of {} that it {did} ({share}) {came_back}", bytes(*returned), bytes(*freed));
    let (severity, text) = match (too_much, slowed) {
        (true, true) => (Severity::Warning, format!("{what}; its quota is reduced until less comes back")),
        (true, false) => {
            let advice = "ask for a higher age, or give it a quota, which is reduced then";
            (Severity::Warning, format!("{what}; {advice}"))
        }
        (false, true) => (Severity::Info, format!("{what}; its quota grows again")),
        (false, false) => (Severity::Info, what),
    };
    Notice { severity, text: text.into(), kind: NoticeKind::Returns(returns) }
}
