//! What schemes did: sums, and over time with the memory in use.

mod errno;
mod sum;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::Action;
use schemars::JsonSchema;
use serde::Serialize;

pub use errno::refusal_name;

/// What schemes did in the selected time.
///
/// The figures are those of all targets. Selected targets and addresses apply to the memory in use and to the regions
/// of the last application only.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Schemes {
    /// The start of the time of the figures, since the start of the recording.
    pub from_ns: u64,
    /// The end of that time.
    pub to_ns: u64,
    /// Why the recording ends before its run, if it does.
    pub cut_short: Option<String>,
    /// Major page faults of all targets, for which a page was read from a disk or from swap. `None` if they are not
    /// known.
    pub major_faults: Option<u64>,
    /// The bytes by which compressed swap (zram and zswap) has grown. It may hold pages of other processes, too. `None`
    /// without compressed swap.
    pub compressed_growth_bytes: Option<i64>,
    /// The bytes that all schemes have freed, less those by which compressed swap has grown. What came back and was
    /// freed again counts each time. `None` without compressed swap.
    pub net_freed_bytes: Option<i64>,
    /// The schemes, in the order in which they appear.
    pub schemes: Vec<Scheme>,
    /// The activities that were recorded, about one per second.
    pub over_time: Vec<Moment>,
}

/// What one scheme did.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Scheme {
    /// The name of the scheme.
    pub name: Arc<str>,
    /// The action.
    pub action: Cow<'static, str>,
    /// Whether it was in force at the end. Schemes can be changed during a run.
    pub in_force: bool,
    /// Whether it was awake at the end, by its watermarks.
    pub awake: bool,
    /// The share of the time in which it was awake, 0 to 1.
    pub awake_share: f64,
    /// The limit of its quota per period at the end. `None` if there is no limit.
    pub quota_bytes: Option<u64>,
    /// How far its goals were reached at the end: 1 is exactly. `None` if there are no goals, or it is not known.
    pub goal_score: Option<f64>,
    /// The share of the quota that was in force at the end, because too much of what the scheme freed came back soon.
    /// `None` if all of it was in force.
    pub quota_share: Option<f64>,
    /// The sums.
    #[serde(flatten)]
    pub total: Total,
    /// The last application. `None` if there was none.
    pub last: Option<Application>,
    /// The last recorded application that acted on something. `None` if none did.
    pub last_acting: Option<Application>,
    #[serde(skip)]
    awake_time: Duration,
    #[serde(skip)]
    time: Duration,
}

/// Sums of what a scheme did in the selected time.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Total {
    /// The number of applications.
    pub applications: u64,
    /// Regions that the scheme selected within its quota, without those that filters rejected completely.
    pub tried_regions: u64,
    /// Bytes of these regions.
    pub tried_bytes: u64,
    /// Bytes of these regions that all filters let pass: the action was called for them.
    pub passed_bytes: u64,
    /// Regions to which the action was applied, at least in part.
    pub applied_regions: u64,
    /// Bytes to which the action was applied; bytes that it freed, if it frees memory.
    pub applied_bytes: u64,
    /// Bytes that the action unmapped without freeing them, so that they are in memory still.
    pub unmapped_bytes: u64,
    /// Of the bytes that it freed, those that were watched until the end of their time.
    pub watched_bytes: u64,
    /// Of these, those that were in memory again within their time.
    pub returned_bytes: u64,
    /// Bytes that filters rejected.
    pub rejected_bytes: u64,
    /// What the kernel refused, by reason, the most bytes first.
    pub refusals: Vec<Refusal>,
    /// Periods in which the quota was too small.
    pub quota_exceeded: u64,
    /// The time of its actions, and of checking pages for its filters.
    pub spent_ns: u64,
}

/// What the kernel refused for one reason.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Refusal {
    /// The reason.
    #[serde(skip)]
    pub why: isotherm_core::scheme::Refusal,
    /// The name of a reason that this version does not know.
    #[serde(skip)]
    pub unknown_reason: Option<Arc<str>>,
    /// The error number of the system, if there was one.
    pub errno: Option<i32>,
    /// The name of that error, such as `EAGAIN`. `None` if it is not known.
    pub name: Option<&'static str>,
    /// Regions that were refused, at least in part.
    pub regions: u64,
    /// Bytes that were refused.
    pub bytes: u64,
}

/// An application of a scheme.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Application {
    /// The time since the start of the recording.
    pub time_ns: u64,
    /// Bytes that the quota held back.
    pub held_back_bytes: u64,
    /// Bytes that were left out because they could not be observed.
    pub unobservable_bytes: u64,
    /// The regions on which it acted, in the order of the actions.
    pub regions: Vec<ActedRegion>,
}

/// A region that a scheme acted on.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct ActedRegion {
    /// The process ID of the target, or 0 for physical memory.
    pub pid: u32,
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// Bytes to which the action was applied.
    pub applied_bytes: u64,
}

/// A recorded activity.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Moment {
    /// The time since the start of the recording.
    pub time_ns: u64,
    /// What the schemes in force did since the previous moment.
    pub schemes: Vec<SchemeInterval>,
    /// The memory of the selected targets, as far as it could be read.
    pub memory: Vec<TargetMemory>,
    /// The memory of the whole system.
    pub system: System,
    /// Major page faults of all targets since the previous moment. `None` if they are not known.
    pub major_faults: Option<u64>,
    #[serde(skip)]
    pub(crate) elapsed: Duration,
}

/// What a scheme did since the previous moment, and its state.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SchemeInterval {
    /// The name of the scheme.
    pub name: Arc<str>,
    /// Bytes for which the action was called.
    pub passed_bytes: u64,
    /// Bytes to which the action was applied.
    pub applied_bytes: u64,
    /// Bytes that the kernel refused.
    pub refused_bytes: u64,
    /// Bytes that filters rejected.
    pub rejected_bytes: u64,
    /// Bytes that the quota held back in the last application.
    pub held_back_bytes: u64,
    /// The limit of its quota per period.
    pub quota_bytes: Option<u64>,
    /// How far its goals were reached.
    pub goal_score: Option<f64>,
    /// Whether it was awake.
    pub awake: bool,
}

/// The memory that a target uses.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct TargetMemory {
    /// The process ID of the target, or 0 for physical memory.
    pub pid: u32,
    /// Resident bytes (RSS).
    pub resident_bytes: u64,
    /// Resident bytes, with shared pages divided among the processes that share them (PSS), by the kernel's
    /// `smaps_rollup`. `None` if the recording does not tell.
    pub proportional_bytes: Option<u64>,
    /// Bytes in swap.
    pub swapped_bytes: u64,
}

/// The memory of the whole system.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct System {
    /// Bytes of memory.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Bytes that are available without swapping.
    pub available_bytes: u64,
    /// Bytes of swap.
    pub swap_total_bytes: u64,
    /// Free bytes of swap.
    pub swap_free_bytes: u64,
    /// The share of the time since the previous moment in which some task waited for memory (PSI `some`), 0 to 1.
    /// `None` if it is not known.
    pub stalled_share: Option<f64>,
}

/// A quantity over time.
pub type Points = Vec<(Duration, f64)>;

impl Schemes {
    /// The start and the end of the time of the figures.
    pub fn time(&self) -> (Duration, Duration) {
        (Duration::from_nanos(self.from_ns), Duration::from_nanos(self.to_ns))
    }

    /// The bytes per second to which a scheme was applied. Moments that are too close for a rate make one point.
    pub fn rate(&self, scheme: &str) -> Points {
        const LEAST: Duration = Duration::from_millis(250);
        let mut points: Vec<(Duration, Duration, f64)> = vec![];
        for moment in &self.over_time {
            let bytes =
                moment.schemes.iter().find(|did| &*did.name == scheme).map_or(0, |did| did.applied_bytes) as f64;
            let (time, elapsed) = (Duration::from_nanos(moment.time_ns), moment.elapsed);
            match points.last_mut() {
                Some((last, span, sum)) if elapsed.min(*span) < LEAST => {
                    (*last, *span, *sum) = (time, *span + elapsed, *sum + bytes);
                }
                _ => points.push((time, elapsed, bytes)),
            }
        }
        points.into_iter().map(|(time, span, sum)| (time, sum / span.max(LEAST).as_secs_f64())).collect()
    }

    /// The major page faults of all targets per second.
    pub fn fault_rate(&self) -> Points {
        self.points(|moment| Some(moment.major_faults? as f64 / moment.elapsed.as_secs_f64().max(0.25)))
    }

    /// The quota of a scheme in bytes per period, if goals tune it. Otherwise empty.
    pub fn tuned_quota(&self, scheme: &str) -> Points {
        let of = |moment: &Moment| moment.schemes.iter().find(|did| &*did.name == scheme).cloned();
        if !self.over_time.iter().filter_map(of).any(|did| did.goal_score.is_some()) {
            return vec![];
        }
        self.points(|moment| Some(of(moment)?.quota_bytes? as f64))
    }

    /// A quantity at the moments at which it is known.
    pub fn points(&self, value: impl Fn(&Moment) -> Option<f64>) -> Points {
        let point = |moment: &Moment| Some((Duration::from_nanos(moment.time_ns), value(moment)?));
        self.over_time.iter().filter_map(point).collect()
    }

    /// At most `most` schemes, those that were applied to the most bytes, and the number of the others.
    pub(crate) fn busiest(&self, most: usize) -> (Vec<&Scheme>, usize) {
        let mut order: Vec<usize> = (0..self.schemes.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(self.schemes[i].total.applied_bytes));
        order.truncate(most);
        order.sort_unstable();
        let left_out = self.schemes.len() - order.len();
        (order.into_iter().map(|i| &self.schemes[i]).collect(), left_out)
    }
}

impl Scheme {
    /// Whether its action frees memory, so that the bytes that it was applied to are free bytes.
    pub(crate) fn frees(&self) -> bool {
        Action::named(&self.action).is_some_and(|action| action.frees())
    }
}

impl Moment {
    /// RSS, PSS and swap of all targets together. `None` if no target could be read; PSS also if the recording does not
    /// tell.
    pub fn used(&self) -> [Option<u64>; 3] {
        let sum = |part: fn(&TargetMemory) -> Option<u64>| {
            let known = self.memory.iter().map(part).reduce(|sum, bytes| Some(sum?.saturating_add(bytes?)));
            known.flatten()
        };
        [sum(|u| Some(u.resident_bytes)), sum(|u| u.proportional_bytes), sum(|u| Some(u.swapped_bytes))]
    }
}

impl Total {
    /// Bytes that were refused, for all reasons together.
    pub fn refused_bytes(&self) -> u64 {
        self.refusals.iter().map(|refusal| refusal.bytes).fold(0, u64::saturating_add)
    }
}

impl Refusal {
    /// Whether both are refusals for one reason.
    fn is_for_the_reason_of(&self, other: &Self) -> bool {
        (&self.why, &self.unknown_reason) == (&other.why, &other.unknown_reason)
    }

    /// The name of the system's error, else its number, else the reason.
    pub fn label(&self) -> String {
        refusal_name(&self.why, self.unknown_reason.as_deref())
    }
}
