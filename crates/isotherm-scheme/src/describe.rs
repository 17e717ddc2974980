//! Schemes in plain words.

use std::fmt::Write;
use std::time::Duration;

use isotherm_core::scheme::{
    Action, ClosedInterval, Condition, Filter, FilterKind, Goal, Metric, Order, PageKind, Quota, Scheme, Watermarks,
};
use isotherm_core::units::setting;

/// What a scheme will do, in plain words: a line for each thing that there is to know.
pub fn describe(scheme: &Scheme) -> String {
    let mut lines = vec![format!("{}: {}", scheme.name, does(scheme)), wants(&scheme.condition)];
    lines.push(match scheme.apply_interval {
        Some(interval) => format!("It looks for such memory every {}.", time(interval)),
        None => "It looks for such memory at each aggregation.".into(),
    });
    lines.extend(filters(&scheme.filters));
    lines.extend(quota(&scheme.quota, scheme.action));
    lines.extend(scheme.watermarks.as_ref().map(watermarks));
    let mut text = String::new();
    for (nth, line) in lines.iter().enumerate() {
        let indent = if nth == 0 { "" } else { "  " };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{indent}{line}");
    }
    text
}

fn does(scheme: &Scheme) -> &'static str {
    match (scheme.action, scheme.inside) {
        (Action::Stat, _) => "only counts memory, and changes nothing.",
        (Action::WillNeed, _) => "reads memory in ahead (MADV_WILLNEED).",
        (Action::Cold, _) => "makes memory the next that the kernel reclaims when it needs some (MADV_COLD).",
        (Action::PageOut, _) => "reclaims memory at once: to swap, or to its file (MADV_PAGEOUT).",
        (Action::HugePage, false) => {
            "makes huge pages of memory at once where half of one is in use, from outside (MADV_COLLAPSE)."
        }
        (Action::HugePage, true) => "allows huge pages, by a call inside the target (MADV_HUGEPAGE).",
        (Action::NoHugePage, _) => "forbids huge pages, by a call inside the target (MADV_NOHUGEPAGE).",
        (Action::Collapse, _) => "makes huge pages of memory at once (MADV_COLLAPSE).",
        (Action::MLock, _) => "keeps memory from being reclaimed, by a call inside the target (mlock).",
        (Action::MUnlock, _) => "lets memory be reclaimed again, by a call inside the target (munlock).",
    }
}

fn wants(condition: &Condition) -> String {
    let sizes = range(condition.size, Condition::ANY.size, |bytes| setting::bytes(*bytes));
    let ages = range(condition.age, Condition::ANY.age, |age| time(*age));
    let rates = match (condition.rate.min(), condition.rate.max()) {
        (0.0, 0.0) => Some("that are not accessed".to_owned()),
        _ => range(condition.rate, Condition::ANY.rate, |rate| setting::percent(*rate))
            .map(|r| format!("with an access rate of {r}")),
    };
    let mut text = "It wants regions".to_owned();
    let parts =
        [sizes.map(|sizes| format!("of {sizes}")), rates, ages.map(|ages| format!("that have been so for {ages}"))];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        text.push_str(" of any size, access rate and age");
    } else {
        for (nth, part) in parts.iter().enumerate() {
            text.push_str(if nth == 0 { " " } else { ", " });
            text.push_str(part);
        }
    }
    text.push('.');
    text
}

/// Two bounds in words; none if they leave out nothing.
fn range<T: PartialEq + PartialOrd + Copy>(
    bounds: ClosedInterval<T>,
    all: ClosedInterval<T>,
    show: impl Fn(&T) -> String,
) -> Option<String> {
    let (min, max) = (bounds.min(), bounds.max());
    match (min == all.min(), max == all.max()) {
        (true, true) => None,
        (false, true) => Some(format!("at least {}", show(&min))),
        (true, false) => Some(format!("at most {}", show(&max))),
        (false, false) if min == max => Some(format!("just {}", show(&min))),
        (false, false) => Some(format!("{} to {}", show(&min), show(&max))),
    }
}

fn filters(filters: &[Filter]) -> Vec<String> {
    let Some(last) = filters.last() else {
        return Vec::new();
    };
    let mut lines: Vec<String> = filters
        .iter()
        .enumerate()
        .map(|(nth, filter)| {
            let verb = if filter.allow { "takes" } else { "leaves out" };
            let who = if nth == 0 { "Of that it" } else { "of the rest it" };
            let all_but = if filter.matching { "" } else { "all but " };
            format!("{who} {verb} {all_but}{}", memory(&filter.kind))
        })
        .collect();
    lines.push(format!("and {} what is then left.", if last.allow { "leaves out" } else { "takes" }));
    vec![lines.join("; ")]
}

fn memory(kind: &FilterKind) -> String {
    match kind {
        FilterKind::Anonymous => "anonymous memory".into(),
        FilterKind::File => "memory of files".into(),
        FilterKind::Mapping(pattern) => format!("mappings named {}", pattern.as_str()),
        FilterKind::Address(range) => format!("the addresses {range}"),
        FilterKind::Process(pid) => format!("the process {pid}"),
        FilterKind::Command(pattern) => format!("processes named {}", pattern.as_str()),
        FilterKind::Cgroup(path) => format!("processes of the cgroup {path}"),
        FilterKind::Pages(PageKind::Young) => "pages that were accessed just before".into(),
        FilterKind::Pages(PageKind::Huge) => "huge pages".into(),
    }
}

fn quota(quota: &Quota, action: Action) -> Vec<String> {
    let limits = [quota.bytes().map(setting::bytes), quota.time().map(|limit| format!("{} of time", time(limit)))];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    let period = match quota.period() {
        Duration::ZERO => String::new(),
        one if one == Duration::from_secs(1) => "second".into(),
        period => time(period),
    };
    let mut lines = Vec::new();
    if !limits.is_empty() || !quota.goals().is_empty() {
        let amount = match limits.as_slice() {
            [] => "as much as its goals ask for".into(),
            limits => format!("at most {}", limits.join(" and ")),
        };
        let first = match action.kind().order() {
            Order::ColdestFirst => "the coldest first",
            Order::HottestFirst => "the hottest first",
        };
        let weights = quota.weights();
        let weighed =
            format!("weights: size {}, access rate {}, age {}", weights.size(), weights.rate(), weights.age());
        lines.push(format!("It does {amount} in each {period}, {first} ({weighed})."));
    }
    let goals: Vec<String> = quota.goals().iter().map(|goal| self::goal(goal, &period)).collect();
    if !goals.is_empty() {
        lines.push(format!("Within that, the quota tunes itself to bring {}.", goals.join(" or ")));
    }
    lines
}

fn goal(goal: &Goal, period: &str) -> String {
    match goal.metric() {
        Metric::StallTime => {
            let stalled = time(Duration::from_secs_f64(goal.target()));
            format!("the time that some task waits for memory to {stalled} in each {period}")
        }
        Metric::FreeMemory => format!("free memory to {} of all", setting::percent(goal.target())),
        Metric::WorkingSetResident => {
            format!("the resident share of the working set to {}", setting::percent(goal.target()))
        }
        Metric::Fed(from) => format!("the figure in {from} to {}", goal.target()),
        Metric::Pressure => {
            format!("the share of time in which some task waits for memory to {}", setting::percent(goal.target()))
        }
    }
}

fn watermarks(marks: &Watermarks) -> String {
    let metric = match marks.metric() {
        Metric::Pressure => "the share of time in which some task waits for memory",
        _ => "free memory",
    };
    format!(
        "It sleeps while {metric} is above {} or below {}, and wakes when it is at most {}; looked at every {}.",
        setting::percent(marks.high()),
        setting::percent(marks.low()),
        setting::percent(marks.mid()),
        time(marks.interval()),
    )
}

fn time(time: Duration) -> String {
    if time == Duration::MAX { "ever".into() } else { setting::duration(time) }
}
