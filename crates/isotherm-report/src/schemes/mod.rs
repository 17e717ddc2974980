//! What schemes did: the sums of each, and over time, beside the memory in use.

mod errno;
mod sum;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

pub use errno::refusal_name;

/// What schemes did in the selected time.
///
/// Their figures are of all targets; of a selection of targets and addresses are the memory in use and the regions of the last
/// application.
#[derive(Clone, Debug, Serialize)]
pub struct Schemes {
    /// Where the time begins that the figures are of, since the recording's start.
    pub from_ns: u64,
    /// Where it ends.
    pub to_ns: u64,
    /// Why the recording does not reach to the end of its run, if it does not.
    pub cut_short: Option<String>,
    /// The schemes, in the order in which they came.
    pub schemes: Vec<Scheme>,
    /// Each time at which what they did was written down, about a second apart.
    pub over_time: Vec<Moment>,
}

/// What one scheme did.
#[derive(Clone, Debug, Serialize)]
pub struct Scheme {
    /// Its name.
    pub name: Arc<str>,
    /// What it does.
    pub action: Cow<'static, str>,
    /// Whether it was in force at the end: schemes can be changed while they run.
    pub in_force: bool,
    /// Whether its watermarks let it work at the end.
    pub awake: bool,
    /// The share of the time in which they did, 0 to 1.
    pub awake_share: f64,
    /// What its quota allowed in a period at the end; none if nothing limits it.
    pub quota_bytes: Option<u64>,
    /// How far its goals were reached at the end, 1 being just so; none if it has none, or it is not known.
    pub goal_score: Option<f64>,
    /// Its sums.
    #[serde(flatten)]
    pub total: Total,
    /// Its last application; none if there was none.
    pub last: Option<Last>,
    /// The last of those that were written down that acted on something; none if none did.
    pub last_acting: Option<Last>,
    #[serde(skip)]
    awake_time: Duration,
    #[serde(skip)]
    time: Duration,
}

/// What a scheme did in the selected time, added up.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Total {
    /// How often regions were looked for.
    pub applications: u64,
    /// Regions that it wanted and the quota allowed, but for those of which filters left nothing.
    pub tried_regions: u64,
    /// Bytes of them.
    pub tried_bytes: u64,
    /// Bytes of them that filters let pass: what the action was called for.
    pub passed_bytes: u64,
    /// Regions that the action was carried out on, at least in part.
    pub applied_regions: u64,
    /// Bytes that it was carried out on.
    pub applied_bytes: u64,
    /// Bytes that it wanted and a filter rejected.
    pub rejected_bytes: u64,
    /// What the kernel refused, the most bytes first.
    pub refusals: Vec<Refusal>,
    /// In how many periods the quota did not suffice.
    pub quota_exceeded: u64,
    /// Time that its actions took, and looking at pages for its filters.
    pub spent_ns: u64,
}

/// What the kernel refused for one reason.
#[derive(Clone, Debug, Serialize)]
pub struct Refusal {
    /// The reason.
    #[serde(skip)]
    pub why: isotherm_core::scheme::Refusal,
    /// The name of a reason that this version does not know.
    #[serde(skip)]
    pub unknown_reason: Option<Arc<str>>,
    /// The number of the system's error, if there was one.
    pub errno: Option<i32>,
    /// The name of that error, such as `EAGAIN`; none if it is not known.
    pub name: Option<&'static str>,
    /// Regions that were refused, at least in part.
    pub regions: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// An application of a scheme.
#[derive(Clone, Debug, Serialize)]
pub struct Last {
    /// When, since the recording's start.
    pub time_ns: u64,
    /// Bytes that it wanted and the quota held back.
    pub held_back_bytes: u64,
    /// Bytes that it left alone because their temperature could not be observed.
    pub unobservable_bytes: u64,
    /// What it acted on, in that order.
    pub regions: Vec<Acted>,
}

/// A region that a scheme acted on.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Acted {
    /// Whose.
    pub pid: u32,
    /// Its first address.
    pub start: u64,
    /// The address after its last.
    pub end: u64,
    /// Bytes of it that the action was carried out on.
    pub applied_bytes: u64,
}

/// What was written down at one time.
#[derive(Clone, Debug, Serialize)]
pub struct Moment {
    /// Since the recording's start.
    pub time_ns: u64,
    /// What the schemes that were in force did since the moment before.
    pub schemes: Vec<Did>,
    /// The memory of the selected targets for which it could be read.
    pub memory: Vec<Used>,
    /// The memory of the whole system.
    pub system: System,
    #[serde(skip)]
    pub(crate) elapsed: Duration,
}

/// What a scheme did since the moment before, and how it was then.
#[derive(Clone, Debug, Serialize)]
pub struct Did {
    /// Its name.
    pub name: Arc<str>,
    /// Bytes that its action was carried out on.
    pub applied_bytes: u64,
    /// Bytes that the kernel refused.
    pub refused_bytes: u64,
    /// Bytes that filters rejected.
    pub rejected_bytes: u64,
    /// Bytes that the quota held back in the last application.
    pub held_back_bytes: u64,
    /// What its quota allowed in a period.
    pub quota_bytes: Option<u64>,
    /// How far its goals were reached.
    pub goal_score: Option<f64>,
    /// Whether it was awake.
    pub awake: bool,
}

/// The memory of a target.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Used {
    /// Whose.
    pub pid: u32,
    /// Resident bytes (RSS).
    pub resident_bytes: u64,
    /// Resident bytes, those that several processes share divided among them (PSS).
    pub proportional_bytes: u64,
    /// Bytes in swap.
    pub swapped_bytes: u64,
}

/// The memory of the whole system.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct System {
    /// Bytes of memory.
    pub total_bytes: u64,
    /// Bytes that nothing uses.
    pub free_bytes: u64,
    /// Bytes that could be had without swapping.
    pub available_bytes: u64,
    /// Bytes of swap.
    pub swap_total_bytes: u64,
    /// Bytes of swap that are not used.
    pub swap_free_bytes: u64,
    /// The share of the time since the moment before in which some task waited for memory (PSI `some`), 0 to 1; none if it is not known.
    pub stalled_share: Option<f64>,
}

/// A quantity over time.
pub type Points = Vec<(Duration, f64)>;

impl Schemes {
    /// The time that the figures are of.
    pub fn time(&self) -> (Duration, Duration) {
        (Duration::from_nanos(self.from_ns), Duration::from_nanos(self.to_ns))
    }

    /// The bytes a second that a scheme was applied to. What lies closer together than it takes to tell a rate is one point.
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

    /// The quota of a scheme, bytes a period, if it is tuned by goals; otherwise nothing.
    pub fn tuned_quota(&self, scheme: &str) -> Points {
        let of = |moment: &Moment| moment.schemes.iter().find(|did| &*did.name == scheme).cloned();
        if !self.over_time.iter().filter_map(of).any(|did| did.goal_score.is_some()) {
            return vec![];
        }
        self.points(|moment| Some(of(moment)?.quota_bytes? as f64))
    }

    /// A quantity of the moments in which it is known.
    pub fn points(&self, value: impl Fn(&Moment) -> Option<f64>) -> Points {
        let point = |moment: &Moment| Some((Duration::from_nanos(moment.time_ns), value(moment)?));
        self.over_time.iter().filter_map(point).collect()
    }

    /// The schemes to draw, as many as these, those that were applied to most if there are more; and how many are left out.
    pub(crate) fn busiest(&self, most: usize) -> (Vec<&Scheme>, usize) {
        let mut order: Vec<usize> = (0..self.schemes.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(self.schemes[i].total.applied_bytes));
        order.truncate(most);
        order.sort_unstable();
        let left_out = self.schemes.len() - order.len();
        (order.into_iter().map(|i| &self.schemes[i]).collect(), left_out)
    }
}

impl Moment {
    /// Of all targets together: RSS, PSS and swap; none if it could be read of no target.
    pub fn used(&self) -> Option<[u64; 3]> {
        let sum = |part: fn(&Used) -> u64| self.memory.iter().map(part).fold(0, u64::saturating_add);
        (!self.memory.is_empty())
            .then(|| [sum(|u| u.resident_bytes), sum(|u| u.proportional_bytes), sum(|u| u.swapped_bytes)])
    }
}

impl Total {
    /// Bytes that were refused, for whatever reason.
    pub fn refused_bytes(&self) -> u64 {
        self.refusals.iter().map(|refusal| refusal.bytes).fold(0, u64::saturating_add)
    }

    /// Regions that were refused, for whatever reason.
    pub fn refused_regions(&self) -> u64 {
        self.refusals.iter().map(|refusal| refusal.regions).fold(0, u64::saturating_add)
    }
}

impl Refusal {
    /// Whether both are refusals for one reason.
    fn is_for_the_reason_of(&self, other: &Self) -> bool {
        (&self.why, &self.unknown_reason) == (&other.why, &other.unknown_reason)
    }

    /// The name of the system's error, else its number, else the reason.
    pub fn called(&self) -> String {
        refusal_name(&self.why, self.unknown_reason.as_deref())
    }
}
