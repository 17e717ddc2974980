//! The rule for memory that could be reclaimed.

use std::collections::BTreeMap;
use std::time::Duration;

use isotherm_core::units;

use super::advice::{Advice, Topic};
use super::facts::{Facts, UNKNOWN_SWAP, written};
use super::working_set::{Idle, Window};

/// Memory that was idle for a shorter time is likely to be used again soon.
const LEAST_IDLE: Duration = Duration::from_secs(10);

/// Less is not worth a scheme: at least this much, and this part of the resident memory.
const LEAST_BYTES: u64 = 4 << 20;
const LEAST_SHARE: f64 = 0.05;

/// The scheme takes at least this many seconds for all of the memory, so that it can be ended when the target suffers,
/// and so that memory that comes back lowers its quota before much is gone.
const SECONDS: u64 = 10;

/// The quota of a second is at most this much, as in `schemes/gentle.yaml`.
const MOST_QUOTA: u64 = 256 << 20;

/// The time that the actions of a second may take: 1 % of a CPU, as much as the watching.
const TIME: &str = "10ms";

/// How much could be reclaimed, or why nothing.
pub(super) fn advise(facts: &Facts<'_>) -> Result<Advice, String> {
    let found = facts.working_set;
    let known = |window: &Window| window.length() >= LEAST_IDLE;
    let Some((window, idle)) = found.longest().filter(|window| known(window)).and_then(|w| Some((w, w.idle?))) else {
        return Err(format!("no window of {} or more is known", units::duration(LEAST_IDLE)));
    };
    let resident = found.resident_bytes.unwrap_or(0);
    let no_swap = facts.no_swap().ok_or(UNKNOWN_SWAP)?;
    let bytes = if no_swap { idle.file_bytes.unwrap_or(0) } else { idle.bytes };
    let length = units::duration(window.length());
    if bytes < LEAST_BYTES || (bytes as f64) < resident as f64 * LEAST_SHARE {
        let what = match no_swap {
            true => format!(
                "{} of {} are known to be idle for {length} in mappings of files; {} are so in anonymous memory, and \
                 there is no swap with room",
                units::bytes(bytes),
                units::bytes(resident),
                units::bytes(idle.anonymous_bytes.unwrap_or(0))
            ),
            false => format!("{} of {} are known to be idle for {length}", units::bytes(bytes), units::bytes(resident)),
        };
        return Err(format!("too little to be worth it: {what}"));
    }
    // The lower bound of an estimate.
    let at_least = if window.is_estimated() { "At least " } else { "" };
    let mut text = format!("{at_least}{} could be reclaimed: idle for {length} at the end, {}", units::bytes(bytes), {
        format!("{} of the resident memory", units::percent(bytes as f64 / resident.max(1) as f64))
    });
    text += &match (no_swap, idle) {
        (true, Idle { anonymous_bytes: Some(anonymous), .. }) => format!(
            ", all in mappings of files. Another {} of anonymous memory are idle as long, but there is no swap with \
             room",
            units::bytes(anonymous)
        ),
        (_, Idle { anonymous_bytes: Some(anonymous), file_bytes: Some(file), .. }) => {
            format!(": {} anonymous, {} in mappings of files", units::bytes(anonymous), units::bytes(file))
        }
        _ => String::new(),
    };
    text.push('.');
    if let Some(bytes) = found.idle_throughout_bytes.filter(|&bytes| bytes > 0) {
        text += &format!(
            " In all, at least {} were idle for the whole {} under survey.",
            units::bytes(bytes),
            facts.covered()
        );
    }
    let mut unknown = vec![
        format!("What is used less often than every {length} comes back when it is used; watch for longer to know."),
        "What other processes map as well is not reclaimed by the scheme.".to_owned(),
    ];
    let anonymous = idle.anonymous_bytes.unwrap_or(0);
    match (no_swap, facts.surroundings.swap) {
        (false, Some(swap)) if swap.free_bytes < anonymous => {
            unknown.push(format!("Only {} of swap are free.", units::bytes(swap.free_bytes)));
        }
        _ => {}
    }
    let mut figures = BTreeMap::from([
        ("reclaimable_bytes", bytes),
        ("window_ns", window.window_ns),
        ("idle_bytes", idle.bytes),
        ("resident_bytes", resident),
    ]);
    figures.extend(idle.anonymous_bytes.map(|bytes| ("idle_anonymous_bytes", bytes)));
    figures.extend(idle.file_bytes.map(|bytes| ("idle_file_bytes", bytes)));
    Ok(Advice {
        topic: Topic::Reclaim,
        text,
        figures,
        unknown,
        scheme: Some(scheme(window.length(), bytes, no_swap)),
        command: Some(format!("isotherm run --schemes reclaim.yaml {}", facts.target_options)),
    })
}

/// The scheme that reclaims `bytes` that are idle for `age`.
fn scheme(age: Duration, bytes: u64, only_files: bool) -> String {
    // Whole seconds, so that all of the memory is idle for as long.
    let age = Duration::from_secs(age.as_secs());
    let quota = (bytes / SECONDS).min(MOST_QUOTA).div_ceil(1 << 20).max(1);
    let filters = if only_files { "    filters: [{allow: file}]\n" } else { "" };
    format!(
        "schemes:\n  - name: reclaim-idle\n    access_rate: 0%\n    age: {{min: {}}}\n    action: pageout\n    quota: \
         {{bytes: {quota}M, time: {TIME}, period: 1s}}\n{filters}",
        written(age)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::surroundings::{Surroundings, Swap};
    use crate::tune::working_set::WorkingSet;

    const MIB: u64 = 1 << 20;

    fn found(anonymous: u64, file: u64, seconds: u64) -> WorkingSet {
        let bytes = |bytes: u64| Some(bytes * MIB);
        let idle = Idle { bytes: (anonymous + file) * MIB, anonymous_bytes: bytes(anonymous), file_bytes: bytes(file) };
        let window = Window { window_ns: seconds * 1_000_000_000, idle: Some(idle), ..Window::default() };
        WorkingSet {
            covered_ns: Some(58_000_000_000),
            resident_bytes: bytes(1000),
            idle_throughout_bytes: bytes(250),
            windows: vec![window],
            ..WorkingSet::default()
        }
    }

    fn on(found: &WorkingSet, swap: Option<u64>) -> Result<Advice, String> {
        let swap = swap.map(|free| Swap { total_bytes: 1 << 40, free_bytes: free * MIB });
        let surroundings = Surroundings { swap, ..Surroundings::default() };
        advise(&Facts { working_set: found, blocks: None, surroundings: &surroundings, target_options: "--pid 7" })
    }

    #[test]
    fn idle_memory_can_be_reclaimed_and_the_scheme_asks_for_its_idle_time() {
        let advice = on(&found(400, 100, 30), Some(1000)).unwrap();
        assert_eq!(advice.figures["reclaimable_bytes"], 500 * MIB);
        for part in
            ["500 MiB", "30 s", "50 % of", "400 MiB anonymous, 100 MiB in", "at least 250 MiB were idle for the whole"]
        {
            assert!(advice.text.contains(part), "{part}: {}", advice.text);
        }
        let scheme = advice.scheme.unwrap();
        assert!(
            scheme.contains("age: {min: 30s}")
                && scheme.contains("{bytes: 50M, time: 10ms, period: 1s}")
                && !scheme.contains("filters")
        );
        assert_eq!(advice.command.as_deref(), Some("isotherm run --schemes reclaim.yaml --pid 7"));
    }

    #[test]
    fn without_swap_only_mappings_of_files_count() {
        let advice = on(&found(400, 100, 30), Some(0)).unwrap();
        assert_eq!(advice.figures["reclaimable_bytes"], 100 * MIB);
        assert!(advice.scheme.unwrap().contains("filters: [{allow: file}]"));
        assert!(on(&found(400, 10, 30), Some(0)).unwrap_err().contains("400 MiB are so in anonymous memory"));
        let unknown = on(&found(400, 100, 30), None).unwrap_err();
        assert!(unknown.starts_with("whether there is swap is not known"), "{unknown}");
        let little = on(&found(400, 100, 30), Some(50)).unwrap().unknown;
        assert!(little.iter().any(|text| text == "Only 50 MiB of swap are free."), "{little:?}");
    }

    #[test]
    fn little_memory_and_short_times_are_no_advice() {
        assert!(on(&found(20, 20, 30), Some(1000)).unwrap_err().starts_with("too little to be worth it: 40 MiB"));
        assert!(on(&found(400, 100, 5), Some(1000)).unwrap_err().starts_with("no window of 10 s"));
    }
}
