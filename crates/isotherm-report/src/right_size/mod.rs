//! The right size of a cgroup: the memory that it needs, from its working set over a day and a margin.
//!
//! [`needs`] takes from surveys what each cgroup has needed over time: the memory that was touched within a window, and
//! all that is unobservable or unknown. [`right_size`] makes a request and a limit of it, with the reason in words. It
//! weighs the past as the Vertical Pod Autoscaler of Kubernetes weighs usage (its flags
//! `memory-histogram-decay-half-life`, `target-memory-percentile` and `recommendation-margin-fraction`:
//! <https://github.com/kubernetes/autoscaler/blob/master/vertical-pod-autoscaler/docs/flags.md>).

mod cgroups;

use std::time::Duration;

use isotherm_core::survey::WINDOWS;
use isotherm_core::units;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::wss::weighted_at;

pub use cgroups::{CgroupNeeds, needs};

/// The time after which the past counts half.
const HALF_LIFE: Duration = Duration::from_secs(24 * 3600);

/// The share of the minutes for which the request suffices. It is that of the autoscaler's upper bound (0.9 is its
/// target), because the kernel slows what has less.
const SHARE: f64 = 0.95;

/// What is added, as a share.
const MARGIN: f64 = 0.15;

/// At least so much is added, so that a small process has room for page tables, sockets and the like.
const LEAST_MARGIN: u64 = 16 << 20;

/// The window of the working set if the history is long enough: memory that is used again within it stays.
pub const WINDOW: Duration = Duration::from_secs(600);

/// With a shorter window, memory would have to be read back every few seconds.
const LEAST_WINDOW: Duration = Duration::from_secs(10);

/// The history must be so many times as long as the window.
const LEAST_WINDOWS: u32 = 6;

/// The time of which the largest need counts: a minute, of which a history has one survey at least.
const STEP: Duration = Duration::from_secs(60);

/// A need holds for no longer than this before it is known, so that a gap is no history.
const MOST_HELD: Duration = Duration::from_secs(120);

/// A cgroup whose tasks wait for memory for a larger share of the time is short of it. It is the bound of schemes.
const SHORT: f64 = 0.001;

const DAY: Duration = Duration::from_secs(24 * 3600);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// A size is a multiple of this.
const MIB: u64 = 1 << 20;

/// What is needed at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The time since some start.
    pub time: Duration,
    /// For how long before that it holds.
    pub held: Duration,
    /// Bytes that were touched within the window, unobservable or unknown.
    pub bytes: u64,
}

/// What is known of a cgroup now, beside what its processes have touched. The default is that nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Charged {
    /// Bytes that are charged to it.
    pub current: Option<u64>,
    /// Bytes of the page cache that no process maps and that the kernel has found in use, and of the kernel itself.
    pub unmapped: Option<u64>,
    /// Bytes that cannot make room, because there is no swap for them: anonymous memory. 0 if there is swap.
    pub unswappable: Option<u64>,
    /// The share of the last five minutes for which some task has waited for memory.
    pub pressure: Option<f64>,
}

/// How much memory a cgroup needs, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RightSize {
    /// What suffices for 95 % of the time: the request of a container, or `memory.high`.
    pub request_bytes: u64,
    /// What suffices for all of the time that is known: the limit of a container, or `memory.max`.
    pub limit_bytes: u64,
    /// The need that is not exceeded in 95 % of the minutes, where a minute a day ago counts half.
    pub usual_bytes: u64,
    /// The largest need.
    pub peak_bytes: u64,
    /// The need in the last minute.
    pub last_bytes: u64,
    /// The window of the working set.
    pub window_ns: u64,
    /// The time that is known.
    pub known_ns: u64,
    /// How far it can be trusted, in words.
    pub confidence: String,
    /// Why it is so much, in words.
    pub reason: String,
    /// What is not known, a sentence each.
    pub unknown: Vec<String>,
}

/// The longest window for which a history of this length suffices. `None` if it suffices for none.
pub fn window_of(length: Duration) -> Option<Duration> {
    let fits = |window: &Duration| *window <= WINDOW && *window * (LEAST_WINDOWS + 1) <= length;
    WINDOWS.into_iter().filter(|window| *window >= LEAST_WINDOW).rfind(fits)
}

/// The right size of a cgroup that had these needs, in the order of time, within this window.
///
/// # Errors
/// The error says why no size is known.
pub fn right_size(needs: &[Need], window: Duration, charged: &Charged) -> Result<RightSize, String> {
    let minutes = minutes(needs);
    let known: Duration = minutes.iter().map(|minute| minute.held).sum();
    let least = window * LEAST_WINDOWS;
    let Some(last) = minutes.last().filter(|_| known >= least) else {
        return Err(format!(
            "{} of history are known, and at least {} are needed",
            units::duration(known),
            units::duration(least)
        ));
    };
    let weight = |minute: &Need| {
        let halves = last.time.saturating_sub(minute.time).as_secs_f64() / HALF_LIFE.as_secs_f64();
        minute.held.as_secs_f64() * (-halves).exp2()
    };
    let usual = weighted_at(minutes.iter().map(|minute| (minute.bytes, weight(minute))).collect(), SHARE);
    let peak = minutes.iter().map(|minute| minute.bytes).max().unwrap_or_default();
    let unmapped = charged.unmapped.unwrap_or(0);
    let is_short = charged.pressure.is_some_and(|share| share >= SHORT);
    // Without room, a cgroup cannot show what it would use.
    let bound = charged.current.filter(|_| is_short).unwrap_or(0);
    let least = charged.unswappable.unwrap_or(0);
    let needed = |bytes: u64| bytes.max(least).saturating_add(unmapped).max(bound);
    let with_margin = |bytes: u64| bytes.saturating_add(margin(bytes)).div_ceil(MIB).saturating_mul(MIB);
    let (request, limit) = (needed(usual.max(last.bytes)), needed(peak));
    let mut size = RightSize {
        request_bytes: with_margin(request),
        limit_bytes: with_margin(limit),
        usual_bytes: usual,
        peak_bytes: peak,
        last_bytes: last.bytes,
        window_ns: window.as_nanos() as u64,
        known_ns: known.as_nanos() as u64,
        confidence: confidence(known),
        reason: String::new(),
        unknown: unknown(window, charged),
    };
    size.reason = reason(&size, charged, bound, (request, limit));
    Ok(size)
}

/// The largest need of each minute.
fn minutes(needs: &[Need]) -> Vec<Need> {
    let mut minutes: Vec<Need> = Vec::new();
    let minute = |time: Duration| time.as_nanos() / STEP.as_nanos();
    for need in needs {
        match minutes.last_mut() {
            Some(last) if minute(last.time) == minute(need.time) => {
                last.held += need.held;
                last.bytes = last.bytes.max(need.bytes);
            }
            _ => minutes.push(*need),
        }
    }
    minutes
}

/// What is added to so many bytes.
fn margin(bytes: u64) -> u64 {
    ((bytes as f64 * MARGIN) as u64).max(LEAST_MARGIN)
}

fn confidence(known: Duration) -> String {
    let time = units::duration(known);
    match known {
        _ if known < DAY => format!("low: {time} are known, less than a day"),
        _ if known < WEEK => format!("medium: {time} are known, less than a week"),
        _ => format!("high: {time} are known"),
    }
}

/// Why a size is what it is. `bound` is what it does not fall below under pressure, and `needed` is what a margin was
/// added to.
fn reason(size: &RightSize, charged: &Charged, bound: u64, needed: (u64, u64)) -> String {
    let bytes = units::bytes;
    let mut text = format!(
        "{} of the minutes of {} needed at most {}",
        units::percent(SHARE),
        units::duration(Duration::from_nanos(size.known_ns)),
        bytes(size.usual_bytes)
    );
    if size.last_bytes > size.usual_bytes {
        text += &format!(", and the last one {}", bytes(size.last_bytes));
    }
    if let Some(unmapped) = charged.unmapped.filter(|unmapped| *unmapped > 0) {
        text += &format!("; page cache in use that no process maps, and the kernel, have {} more", bytes(unmapped));
    }
    if let Some(fixed) = charged.unswappable.filter(|fixed| *fixed > size.last_bytes.max(size.usual_bytes)) {
        text += &format!("; without swap, {} of anonymous memory cannot make room", bytes(fixed));
    }
    if bound > 0 && needed.0 == bound {
        text += &format!("; tasks wait for memory, so that nothing below the {} of now is right", bytes(bound));
    }
    text += &format!("; {} more makes {}", added(needed.0), bytes(size.request_bytes));
    text += &format!(". The minute with the most needed {}", bytes(size.peak_bytes));
    text += &format!("; with {} more, the limit is {}.", added(needed.1), bytes(size.limit_bytes));
    if let Some(share) = charged.pressure {
        let share = match share < SHORT {
            true => format!("less than {}", units::percent(SHORT)),
            false => units::percent(share),
        };
        text += &format!(" Tasks waited for memory for {share} of the last 5 minutes.");
    }
    text
}

/// The margin in words.
fn added(bytes: u64) -> String {
    if margin(bytes) > LEAST_MARGIN { units::percent(MARGIN) } else { units::bytes(LEAST_MARGIN) }
}

fn unknown(window: Duration, charged: &Charged) -> Vec<String> {
    let mut unknown =
        vec![format!("What is used less often than every {} would be read back.", units::duration(window))];
    let mut add = |is_unknown: bool, text: &str| unknown.extend(is_unknown.then(|| text.to_owned()));
    add(
        charged.unmapped.is_none(),
        "Page cache that no process maps and memory of the kernel are charged to the cgroup, too, and are not known.",
    );
    add(
        charged.unmapped.is_some(),
        "Page cache that no process maps and memory of the kernel count as they are now; how they were is not known.",
    );
    add(charged.unswappable.is_none(), "Whether there is swap is not known. Without it, idle memory cannot make room.");
    add(charged.pressure.is_none(), "Whether tasks wait for memory is not known.");
    unknown
}

#[cfg(test)]
mod tests;
