//! What a scheme does, in sentences.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use isotherm_core::NodeId;
use isotherm_core::scheme::{
    Action, CgroupLimit, CgroupPressure, ClosedInterval, Condition, Feed, Filter, FilterKind, First, Goal, Metric,
    NodePart, Order, PageKind, Quota, Reclaim, Scheme, Waiting, Watermarks,
};
use isotherm_core::units::hertz;
use isotherm_core::units::setting::{bytes, duration, percent};

/// What a scheme does: the name and the action in the first line, then one indented line for each other part.
pub fn describe(scheme: &Scheme) -> String {
    let applied = match scheme.apply_interval {
        Some(interval) => format!("It is applied at most once every {}.", duration(interval)),
        None => "It is applied at each aggregation.".into(),
    };
    let mut text = format!("{}: {}\n", scheme.name, action(scheme));
    let parts = [
        Some(describe_condition(&scheme.condition)),
        Some(applied),
        (scheme.looks == 1).then(|| "One look that finds memory accessed is enough.".into()),
        scheme.never_accessed.map(|time| {
            format!("If no access was ever found in memory, it is enough that it was idle for {}.", duration(time))
        }),
        (!scheme.makes_room_for.is_empty()).then(|| {
            let names = scheme.makes_room_for.join(", ");
            format!("It makes room for what {names} would move, of memory that two surveys have found idle.")
        }),
        scheme.unobserved.then(|| match scheme.action.reclaim() {
            Some(_) => {
                "Memory that could not be observed counts as idle, too, and page cache of unknown age is taken, a \
                        hundredth each 6 s."
                    .into()
            }
            None => "Memory that could not be observed counts as idle, too.".into(),
        }),
        filters(&scheme.filters),
        limits(&scheme.quota, scheme.action),
        goals(&scheme.quota),
        scheme.action.limit().map(|_| {
            "Limits become what they were when pressure, refaults or returns reach their goal, when the scheme sleeps, \
             and at the end."
                .into()
        }),
        scheme.watermarks.as_ref().map(watermarks),
    ];
    for part in parts.iter().flatten() {
        text.push_str("  ");
        text.push_str(part);
        text.push('\n');
    }
    text
}

fn action(scheme: &Scheme) -> Cow<'static, str> {
    let text = match (scheme.action, scheme.inside) {
        (Action::Stat, _) => "counts memory, and changes nothing.",
        (Action::WillNeed, _) => "reads memory in before it is used (MADV_WILLNEED).",
        (Action::Cold, _) => "makes memory the first that the kernel reclaims when memory is short (MADV_COLD).",
        (Action::PageOut, _) => "reclaims memory at once, to swap or to its file (MADV_PAGEOUT).",
        (Action::HugePage, false) => "makes huge pages at once where 7/8 of a huge page are in memory (MADV_COLLAPSE).",
        (Action::HugePage, true) => "allows huge pages, by a call inside the target (MADV_HUGEPAGE).",
        (Action::HugePageAhead, _) => {
            "allows huge pages in the rest of a mapping that fills up, by a call inside the target (MADV_HUGEPAGE)."
        }
        (Action::NoHugePage, _) => "forbids huge pages, by a call inside the target (MADV_NOHUGEPAGE).",
        (Action::Collapse, _) => "makes huge pages at once (MADV_COLLAPSE).",
        (Action::MLock, _) => "locks memory, so that it is not reclaimed, by a call inside the target (mlock).",
        (Action::MUnlock, _) => "unlocks memory, so that it can be reclaimed, by a call inside the target (munlock).",
        (Action::Promote, _) => "moves memory to the nearest node with room of the next faster tier (move_pages).",
        (Action::Demote, _) => "moves memory to the nearest node with room of the next slower tier (move_pages).",
        (Action::MigrateHot(to) | Action::MigrateCold(to), _) => {
            return match to.single() {
                Some(node) => format!("moves memory to node {node} (move_pages).").into(),
                None if to.are_in_order() => {
                    format!("moves memory to the first of the nodes {to} that has room (move_pages).").into()
                }
                None => format!("spreads memory over nodes by weight, {to} (move_pages).").into(),
            };
        }
        (Action::Reclaim(how), _) => return format!("{}.", reclaim(how)).into(),
        (Action::Limit(CgroupLimit { reclaim: how, margin, keep }), _) => {
            let margin = percent(f64::from(margin) / f64::from(CgroupLimit::MOST_MARGIN));
            let kept = if keep { ", and protects the memory in use (memory.low)" } else { "" };
            return format!(
                "{}; then lets their limits down to the memory that is left and {margin} of it (memory.high){kept}.",
                reclaim(how)
            )
            .into();
        }
    };
    text.into()
}

/// How memory of cgroups is reclaimed.
fn reclaim(Reclaim { first, swappiness }: Reclaim) -> String {
    let how = match first {
        First::PageOut => "reclaims idle pages (MADV_PAGEOUT), and lets the kernel choose for those that stay",
        First::Cold => "makes idle pages the first that the kernel reclaims (MADV_COLD), and has it reclaim",
        First::Nothing => "has the kernel reclaim as much as is idle",
    };
    let with = swappiness.map(|number| format!(" with a swappiness of {number}")).unwrap_or_default();
    format!("{how}, from the cgroups of the targets (memory.reclaim){with}")
}

/// Which regions a condition selects, in a sentence.
pub fn describe_condition(condition: &Condition) -> String {
    let size = bounds(condition.size, Condition::ANY.size, bytes).map(|size| format!("of {size}"));
    let rate = match (condition.rate.min(), condition.rate.max()) {
        (0.0, 0.0) => Some("that are not accessed".into()),
        _ => bounds(condition.rate, Condition::ANY.rate, percent).map(|rate| format!("with an access rate of {rate}")),
    };
    let hz = bounds(condition.hz, Condition::ANY.hz, hertz).map(|hz| match &rate {
        Some(_) => format!("and a frequency of {hz}"),
        None => format!("with a frequency of {hz}"),
    });
    let age = bounds(condition.age, Condition::ANY.age, duration).map(|age| match rate.as_ref().or(hz.as_ref()) {
        Some(_) => format!("and whose age is {age}"),
        None => format!("whose age is {age}"),
    });
    let parts: Vec<String> = [size, rate, hz, age].into_iter().flatten().collect();
    match parts.as_slice() {
        [] => "It acts on all regions.".into(),
        parts => format!("It acts on regions {}.", parts.join(" ")),
    }
}

/// Two bounds in words. None if they are the limits.
fn bounds<T: PartialOrd + Copy>(
    bounds: ClosedInterval<T>,
    limits: ClosedInterval<T>,
    show: impl Fn(T) -> String,
) -> Option<String> {
    let (min, max) = (bounds.min(), bounds.max());
    match (min == limits.min(), max == limits.max()) {
        (true, true) => None,
        (false, true) => Some(format!("at least {}", show(min))),
        (true, false) => Some(format!("at most {}", show(max))),
        (false, false) if min == max => Some(format!("exactly {}", show(min))),
        (false, false) => Some(format!("{} to {}", show(min), show(max))),
    }
}

fn filters(filters: &[Filter]) -> Option<String> {
    let verb = |allow| if allow { "allow" } else { "reject" };
    // The last filter decides about what no filter matches: the opposite of its own verdict.
    let rest = verb(!filters.last()?.allow);
    let filters = filters.iter().map(|filter| {
        let except = if filter.matching { "" } else { "all memory except " };
        format!("{} {except}{}", verb(filter.allow), memory(&filter.kind))
    });
    let filters: Vec<String> = filters.collect();
    Some(format!("Its filters, in this order: {}; {rest} all other memory.", filters.join("; ")))
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
        FilterKind::Pages(PageKind::Present) => "pages in memory".into(),
        FilterKind::Pages(PageKind::Young) => "young pages".into(),
        FilterKind::Pages(PageKind::Huge) => "huge pages".into(),
        FilterKind::Pages(PageKind::Compressible) => "pages that compress well".into(),
        FilterKind::Pages(PageKind::Active) => "pages that the kernel takes for active".into(),
        FilterKind::Pages(PageKind::Unmapped) => "page cache that no process maps".into(),
        FilterKind::Pages(PageKind::Folio(least, most)) => match *most {
            u64::MAX => format!("pages in folios of {} or more", bytes(*least)),
            most => format!("pages in folios of {} to {}", bytes(*least), bytes(most)),
        },
        FilterKind::Pages(PageKind::Node(node)) => format!("memory on node {node}"),
    }
}

fn limits(quota: &Quota, action: Action) -> Option<String> {
    let limits = [
        quota.bytes().map(|limit| format!("on at most {}", bytes(limit))),
        quota.time().map(|limit| format!("for at most {}", duration(limit))),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    let amount = match limits.as_slice() {
        [] if quota.goals().is_empty() => return None,
        [] => "on as much memory as its goals need".into(),
        limits => limits.join(" and "),
    };
    let together = quota.owner().map(|owner| format!(", together with {owner}")).unwrap_or_default();
    let order = match action.order() {
        Order::ColdestFirst => "coldest",
        Order::HottestFirst => "hottest",
    };
    let weights = quota.weights();
    Some(format!(
        "In each {}, it acts {amount}{together}, {order} regions first (weights: size {}, access rate {}, age {}).",
        period(quota),
        weights.size(),
        weights.rate(),
        weights.age()
    ))
}

fn period(quota: &Quota) -> String {
    match quota.period() {
        period if period == Duration::from_secs(1) => "second".into(),
        period => format!("period of {}", duration(period)),
    }
}

fn goals(quota: &Quota) -> Option<String> {
    let goals: Vec<String> = quota.goals().iter().map(|one| goal(one, quota)).collect();
    match goals.as_slice() {
        [] => None,
        bounds if quota.goals().iter().all(Goal::is_bound) => {
            let one = if bounds.len() > 1 { "one of these holds" } else { "this holds" };
            Some(format!(
                "The quota adjusts itself, and nothing is done in a period that begins when {one}: {}.",
                bounds.join("; ")
            ))
        }
        [one] => Some(format!("The quota adjusts itself so that {one}.")),
        several if fill_nodes(quota) => {
            Some(format!("The quota adjusts itself so that all of these hold: {}.", several.join("; ")))
        }
        several => Some(format!("The quota adjusts itself so that one of these holds: {}.", several.join("; "))),
    }
}

/// Whether each goal is about the use of another node: such a scheme fills all of them.
fn fill_nodes(quota: &Quota) -> bool {
    let filled = |goal: &Goal| match goal.metric() {
        Metric::NodeUsed(part) => Some(part.node),
        _ => None,
    };
    let nodes: Option<BTreeSet<NodeId>> = quota.goals().iter().map(filled).collect();
    nodes.is_some_and(|nodes| nodes.len() == quota.goals().len())
}

fn goal(goal: &Goal, quota: &Quota) -> String {
    match goal.metric() {
        Metric::StallTime => {
            let stalled = Duration::try_from_secs_f64(goal.target()).unwrap_or(Duration::MAX);
            format!("some task waits for memory for {} in each {}", duration(stalled), period(quota))
        }
        Metric::FreeMemory => format!("{} of all memory is free", percent(goal.target())),
        Metric::WorkingSetResident => format!("{} of the working set is resident", percent(goal.target())),
        Metric::NodeUsed(NodePart { node, cgroup: None }) => {
            format!("{} of node {node} is used", percent(goal.target()))
        }
        Metric::NodeUsed(NodePart { node, cgroup: Some(cgroup) }) => {
            format!("the cgroup {cgroup} uses {} of node {node}", percent(goal.target()))
        }
        Metric::NodeFree(NodePart { node, cgroup: None }) => {
            format!("{} of node {node} is free", percent(goal.target()))
        }
        Metric::NodeFree(NodePart { node, cgroup: Some(cgroup) }) => {
            format!("{} of node {node} is not used by the cgroup {cgroup}", percent(goal.target()))
        }
        Metric::Fed(Feed::File(file)) => format!("the number in {file} is {}", goal.target()),
        Metric::Fed(Feed::Named(name)) => format!("the metric {name} that a program feeds is {}", goal.target()),
        Metric::Pressure => format!("some task waits for memory in {} of the time", percent(goal.target())),
        Metric::CgroupPressure(CgroupPressure { cgroup, waiting, window }) => {
            let who = match (waiting, cgroup) {
                (Waiting::Some, None) => "some task of a cgroup of the targets waits".into(),
                (Waiting::Full, None) => "all tasks of a cgroup of the targets wait".into(),
                (Waiting::Some, Some(cgroup)) => format!("some task of the cgroup {cgroup} waits"),
                (Waiting::Full, Some(cgroup)) => format!("all tasks of the cgroup {cgroup} wait"),
            };
            format!("{who} for memory in {} of {}", percent(goal.target()), duration(window.length()))
        }
        Metric::Refaults => {
            format!("the kernel brings back {} of the working set in a minute", percent(goal.target()))
        }
        Metric::Returns => {
            format!("{} of the working set comes back in a minute of what was freed", percent(goal.target()))
        }
    }
}

fn watermarks(marks: &Watermarks) -> String {
    let metric = match marks.metric() {
        Metric::Pressure => "the share of time in which some task waits for memory",
        _ => "free memory",
    };
    format!(
        "It sleeps while {metric} is above {high} or below {low}, and wakes when it is between {low} and {mid}. \
         It checks this every {interval}.",
        high = percent(marks.high()),
        mid = percent(marks.mid()),
        low = percent(marks.low()),
        interval = duration(marks.interval()),
    )
}
