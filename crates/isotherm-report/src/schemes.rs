//! What schemes did: the sums of each, and over time, beside the memory in use.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{Report, Statistics};
use isotherm_core::{SystemMemory, TargetId};
use isotherm_record::Activity;
use serde::Serialize;

use crate::source::{Selection, Source};
use crate::{ReportError, errno, units};

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
    pub action: &'static str,
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
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Refusal {
    /// The error's number.
    pub errno: i32,
    /// The error's name, such as `EAGAIN`; none if it is not known.
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
    /// What schemes did, as `source` tells it.
    ///
    /// # Errors
    /// When the recording cannot be read, tells nothing of schemes, or nothing that was asked for.
    pub fn new(source: &dyn Source, selection: &Selection) -> Result<Self, ReportError> {
        let mut made = Self { from_ns: 0, to_ns: 0, cut_short: source.cut_short(), schemes: vec![], over_time: vec![] };
        let (mut before, mut first): (Option<Activity>, Option<Duration>) = (None, None);
        let mut ids = vec![];
        for activity in source.activities().map_err(ReportError::Source)? {
            let activity = activity.map_err(ReportError::Source)?;
            first = first.or(Some(activity.time));
            if selection.holds_time(activity.time) {
                made.add(&activity, before.as_ref(), selection);
                ids.extend(activity.memory.iter().map(|&(id, _)| id));
                ids.sort_unstable();
                ids.dedup();
            }
            before = Some(activity);
        }
        let (Some(first), Some(last)) = (first, before) else { return Err(ReportError::NoSchemes) };
        let known = |target: TargetId| ids.is_empty() || ids.contains(&target);
        if made.over_time.is_empty() || !selection.target.is_none_or(known) {
            let ids: Vec<String> = ids.iter().take(20).map(ToString::to_string).collect();
            let mut holds =
                format!("what schemes did from {} to {}", units::duration(first), units::duration(last.time));
            if !ids.is_empty() {
                holds += &format!(", and the memory of {}", ids.join(", "));
            }
            return Err(ReportError::NothingMatches { asked: selection.describe(), holds });
        }
        made.finish();
        Ok(made)
    }

    /// As [`Schemes::new`], but nothing where a recording tells nothing of schemes in the selected time.
    pub(crate) fn if_any(source: &dyn Source, selection: &Selection) -> Result<Option<Self>, ReportError> {
        match Self::new(source, selection) {
            Ok(schemes) => Ok(Some(schemes)),
            Err(ReportError::NoSchemes | ReportError::NothingMatches { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn add(&mut self, activity: &Activity, before: Option<&Activity>, selection: &Selection) {
        let since = before.map_or(Duration::ZERO, |before| before.time);
        let elapsed = activity.time.saturating_sub(since);
        if self.over_time.is_empty() {
            self.from_ns = nanoseconds(since);
        }
        self.to_ns = nanoseconds(activity.time);
        self.schemes.iter_mut().for_each(|scheme| scheme.in_force = false);
        let mut did = vec![];
        for report in &activity.schemes {
            let earlier = before.and_then(|before| before.schemes.iter().find(|earlier| earlier.name == report.name));
            let total = Total::between(earlier.map(|earlier| &earlier.total), &report.total);
            did.push(Did {
                name: report.name.clone(),
                applied_bytes: total.applied_bytes,
                refused_bytes: total.refused_bytes(),
                rejected_bytes: total.rejected_bytes,
                held_back_bytes: report.last.held_back_bytes,
                quota_bytes: report.quota,
                goal_score: report.goal_score,
                awake: report.awake,
            });
            self.scheme(report).add(report, &total, elapsed, selection);
        }
        let stalled = before.and_then(|before| before.system.stalled).zip(activity.system.stalled);
        self.over_time.push(Moment {
            time_ns: nanoseconds(activity.time),
            schemes: did,
            memory: (activity.memory.iter().filter(|(id, _)| selection.target.is_none_or(|wanted| wanted == *id)))
                .map(|&(id, used)| Used {
                    pid: id.0,
                    resident_bytes: used.resident,
                    proportional_bytes: used.proportional,
                    swapped_bytes: used.swapped,
                })
                .collect(),
            system: System::new(&activity.system, stalled, elapsed),
            elapsed,
        });
    }

    /// The scheme of this report's name.
    fn scheme(&mut self, report: &Report) -> &mut Scheme {
        let known = self.schemes.iter().position(|scheme| scheme.name == report.name);
        let index = known.unwrap_or_else(|| {
            self.schemes.push(Scheme::new(report));
            self.schemes.len() - 1
        });
        &mut self.schemes[index]
    }

    fn finish(&mut self) {
        for scheme in &mut self.schemes {
            let share = scheme.awake_time.as_secs_f64() / scheme.time.as_secs_f64();
            scheme.awake_share = if share.is_finite() { share } else { f64::from(u8::from(scheme.awake)) };
            scheme.total.refusals.sort_by_key(|refusal| std::cmp::Reverse(refusal.bytes));
        }
    }

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

impl Scheme {
    fn new(report: &Report) -> Self {
        Self {
            name: report.name.clone(),
            action: report.action.name(),
            in_force: true,
            awake: report.awake,
            awake_share: 0.0,
            quota_bytes: None,
            goal_score: None,
            total: Total::default(),
            last: None,
            last_acting: None,
            awake_time: Duration::ZERO,
            time: Duration::ZERO,
        }
    }

    fn add(&mut self, report: &Report, total: &Total, elapsed: Duration, selection: &Selection) {
        self.action = report.action.name();
        (self.in_force, self.awake) = (true, report.awake);
        (self.quota_bytes, self.goal_score) = (report.quota, report.goal_score);
        self.time += elapsed;
        self.awake_time += if report.awake { elapsed } else { Duration::ZERO };
        self.total.add(total);
        if report.total.applications == 0 {
            return;
        }
        let regions = report.last.regions.iter().filter_map(|acted| {
            let range = selection.address.map_or(Some(acted.range), |wanted| wanted.intersection(acted.range))?;
            let chosen = selection.target.is_none_or(|wanted| wanted == acted.target);
            let applied_bytes = acted.applied.min(range.size());
            chosen.then_some(Acted { pid: acted.target.0, start: range.start(), end: range.end(), applied_bytes })
        });
        let last = Last {
            time_ns: nanoseconds(report.last.time),
            held_back_bytes: report.last.held_back_bytes,
            unobservable_bytes: report.last.unobservable_bytes,
            regions: regions.collect(),
        };
        if !last.regions.is_empty() {
            self.last_acting = Some(last.clone());
        }
        self.last = Some(last);
    }
}

impl Total {
    /// What was added from `before` to `now`; all of `now` if the scheme has begun anew in between.
    fn between(before: Option<&Statistics>, now: &Statistics) -> Self {
        let nothing = Statistics::default();
        let before = before.filter(|before| before.applications <= now.applications).unwrap_or(&nothing);
        let more = |part: fn(&Statistics) -> u64| part(now).saturating_sub(part(before));
        let refusals = now.refusals.iter().map(|refusal| {
            let earlier = before.refusals.iter().find(|earlier| earlier.errno == refusal.errno);
            let (regions, bytes) = earlier.map_or((0, 0), |earlier| (earlier.regions, earlier.bytes));
            Refusal {
                errno: refusal.errno,
                name: errno::name(refusal.errno),
                regions: refusal.regions.saturating_sub(regions),
                bytes: refusal.bytes.saturating_sub(bytes),
            }
        });
        Self {
            applications: more(|s| s.applications),
            tried_regions: more(|s| s.tried_regions),
            tried_bytes: more(|s| s.tried_bytes),
            passed_bytes: more(|s| s.passed_bytes),
            applied_regions: more(|s| s.applied_regions),
            applied_bytes: more(|s| s.applied_bytes),
            rejected_bytes: more(|s| s.rejected_bytes),
            refusals: refusals.filter(|refusal| refusal.regions > 0).collect(),
            quota_exceeded: more(|s| s.quota_exceeded),
            spent_ns: nanoseconds(now.time.saturating_sub(before.time)),
        }
    }

    fn add(&mut self, more: &Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.applications, more.applications);
        add(&mut self.tried_regions, more.tried_regions);
        add(&mut self.tried_bytes, more.tried_bytes);
        add(&mut self.passed_bytes, more.passed_bytes);
        add(&mut self.applied_regions, more.applied_regions);
        add(&mut self.applied_bytes, more.applied_bytes);
        add(&mut self.rejected_bytes, more.rejected_bytes);
        add(&mut self.quota_exceeded, more.quota_exceeded);
        add(&mut self.spent_ns, more.spent_ns);
        for refusal in &more.refusals {
            match self.refusals.iter_mut().find(|known| known.errno == refusal.errno) {
                Some(known) => {
                    add(&mut known.regions, refusal.regions);
                    add(&mut known.bytes, refusal.bytes);
                }
                None => self.refusals.push(*refusal),
            }
        }
    }

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
    /// What it is called: its name, or else its number.
    pub fn called(&self) -> String {
        self.name.map_or_else(|| format!("error {}", self.errno), str::to_owned)
    }
}

impl System {
    fn new(system: &SystemMemory, stalled: Option<(Duration, Duration)>, elapsed: Duration) -> Self {
        let share = stalled.map(|(before, now)| now.saturating_sub(before).as_secs_f64() / elapsed.as_secs_f64());
        Self {
            total_bytes: system.total,
            free_bytes: system.free,
            available_bytes: system.available,
            swap_total_bytes: system.swap_total,
            swap_free_bytes: system.swap_free,
            stalled_share: share.filter(|share| share.is_finite()).map(|share| share.clamp(0.0, 1.0)),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
