//! The notices of a run when watermarks put a scheme to sleep or wake it, and when a scheme cannot free memory.

use isotherm_core::scheme::{Metric, RefusalReason, Report, Wake};
use isotherm_core::units::{bytes, duration, percent};

use crate::{Notice, Severity};

/// The notice that a scheme has fallen asleep or is awake.
pub(crate) fn notice(wake: &Wake) -> Notice {
    let Wake { scheme, awake, value, watermarks } = wake;
    let share = percent(*value);
    let measured = match watermarks.metric() {
        Metric::FreeMemory => format!("{share} of memory is free"),
        // Watermarks are on free memory or on pressure only.
        Metric::Pressure
        | Metric::StallTime
        | Metric::WorkingSetResident
        | Metric::Fed(_)
        | Metric::NodeUsed(_)
        | Metric::NodeFree(_)
        | Metric::CgroupPressure(_)
        | Metric::Refaults
        | Metric::Returns => format!("some task waited for memory in {share} of the last ten seconds"),
    };
    let (mark, limit) = match *value {
        value if value < watermarks.low() => ("below its low mark", watermarks.low()),
        value if value > watermarks.high() => ("above its high mark", watermarks.high()),
        _ => ("above its middle mark", watermarks.mid()),
    };
    let every = duration(watermarks.interval());
    let text = match awake {
        true => format!("{scheme} is awake: {measured}"),
        false => {
            format!("{scheme} sleeps by its watermarks: {measured}, {mark}, {}; checked every {every}", percent(limit))
        }
    };
    Notice::new(Severity::Info, &text)
}

/// The notice that a scheme could not free memory for want of swap, if that is so.
pub(crate) fn no_swap(report: &Report) -> Option<Notice> {
    let refused = report.total.refusals.iter().filter(|count| count.refusal.reason == RefusalReason::NoSwap);
    let refused: u64 = refused.map(|count| count.bytes).sum();
    let text = format!(
        "{}: {} of anonymous and shared memory stays, because there is no free swap for it (add swap, on zram or a \
         disk; without it, {} frees memory of files only)",
        report.name,
        bytes(refused),
        report.action
    );
    (refused > 0).then(|| Notice::new(Severity::Warning, &text))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::time::Duration;

    use isotherm_core::scheme::{Action, Condition, Refusal, RefusalCount, Scheme, Statistics, Watermarks};

    use super::*;

    #[test]
    fn a_scheme_that_falls_asleep_or_wakes_says_why() {
        let watermarks = Watermarks::new(Metric::FreeMemory, Duration::from_secs(5), 0.5, 0.4, 0.2).unwrap();
        let said = |value, awake| {
            let wake = Wake { scheme: "prcl".into(), awake, value, watermarks: watermarks.clone() };
            notice(&wake).text.to_string()
        };
        let asleep =
            "prcl sleeps by its watermarks: 62 % of memory is free, above its high mark, 50 %; checked every 5 s";
        assert_eq!(said(0.62, false), asleep);
        assert!(said(0.1, false).contains("10 % of memory is free, below its low mark, 20 %"));
        assert!(said(0.45, false).contains("above its middle mark, 40 %"));
        assert_eq!(said(0.3, true), "prcl is awake: 30 % of memory is free");
    }

    #[test]
    fn memory_that_stays_because_there_is_no_swap_is_told_with_its_size() {
        let scheme = Scheme::new("prcl", Condition::ANY, Action::PageOut);
        let report = |reason: RefusalReason| {
            let refusal =
                RefusalCount { refusal: Refusal::from(reason), unknown_reason: None, regions: 2, bytes: 3 << 20 };
            let total = Statistics { refusals: vec![refusal], ..Statistics::default() };
            Report { total, ..Report::new(scheme.name.clone(), scheme.action) }
        };
        assert_eq!(no_swap(&report(RefusalReason::Busy)), None);
        let notice = no_swap(&report(RefusalReason::NoSwap)).unwrap();
        assert!(notice.text.starts_with("prcl: 3 MiB of anonymous and shared memory stays, "), "{}", notice.text);
    }
}
