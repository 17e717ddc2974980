//! The YAML form, which has everything that a scheme can have.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::AddrRange;
use isotherm_core::scheme::{
    Action, CgroupLimit, CgroupPressure, Condition, Destinations, Feed, Filter, FilterKind, First, Goal,
    MakesRoomError, Metric, Moves, NodePart, PageKind, Pattern, PressureWindow, Quota, QuotaError, Reclaim, Scheme,
    SharedQuotaError, Waiting, Watermarks, Weights,
};
use isotherm_core::tiering::LOOKS;
use isotherm_core::units::{self, A_FREQUENCY, A_SHARE, A_SIZE, A_TIME, QuantityError};

use crate::common::{
    A_NODE, A_NODE_WEIGHT, AN_ACTION, Names, action, at_least_one, check_inside, destinations, first_with_room,
    node_number, node_weight, positive_duration, with_destinations,
};
use crate::diagnostic::Diagnostics;
use crate::fields::Fields;
use crate::message::{did_you_mean, shortened};
use crate::tree::{Node, Value};

const SCHEME: [&str; 20] = [
    "name",
    "size",
    "access_rate",
    "access_frequency",
    "age",
    "action",
    "target_node",
    "first",
    "swappiness",
    "margin",
    "keep",
    "looks",
    "never_accessed",
    "makes_room_for",
    "unobserved",
    "inside",
    "apply_interval",
    "quota",
    "watermarks",
    "filters",
];

/// The schemes of a document: a map with the field `schemes`, or a list.
pub fn schemes(root: &Node, diagnostics: &mut Diagnostics) -> Vec<Scheme> {
    let list = match &root.value {
        Value::Map(_) => Fields::open(root, "a scheme file", &["schemes"], diagnostics)
            .and_then(|fields| fields.require("schemes", diagnostics)),
        _ => Some(root),
    };
    let Some((list, items)) = list.and_then(|list| Some((list, list.items("schemes", diagnostics)?))) else {
        return Vec::new();
    };
    let mut names = Names::default();
    let mut schemes = Vec::with_capacity(items.len());
    for (index, node) in items.iter().enumerate() {
        let read = scheme(node, index, &schemes, &mut names, diagnostics);
        schemes.push(read);
    }
    at_least_one(schemes, list.position, diagnostics)
}

/// Reads a scheme. `before` are the schemes before it in the document, as far as they could be read.
fn scheme(
    node: &Node,
    index: usize,
    before: &[Option<Scheme>],
    names: &mut Names,
    diagnostics: &mut Diagnostics,
) -> Option<Scheme> {
    let fields = Fields::open(node, "a scheme", &SCHEME, diagnostics)?;
    let given = fields.get("name").and_then(|node| Some((node.text("a name", diagnostics)?, node.position)));
    let name = names.name(given, index, node.position, diagnostics);
    let condition = condition(&fields, diagnostics);
    let inside = fields.get_or("inside", false, |node| node.flag(diagnostics));
    let action_node = fields.require("action", diagnostics);
    let action = action_node.and_then(|node| node.scalar(AN_ACTION, diagnostics, action));
    if let (Some(action), Some(node), Some(inside)) = (action, action_node, inside) {
        check_inside(action, inside, node.position, "add `inside: true` to the scheme", diagnostics);
    }
    let to = fields.get_or("target_node", None, |node| Some(Some((target_nodes(node, diagnostics)?, node.position))));
    let action = match (action, action_node, to) {
        (Some(action), Some(node), Some(to)) => {
            let how = "add `target_node: 1` to the scheme, with the number of a memory node";
            with_destinations(action, to, node.position, how, diagnostics)
        }
        _ => None,
    };
    let action = with_reclaim(&fields, action, diagnostics);
    let action = with_limit(&fields, action, diagnostics);
    let apply_interval =
        fields.get_or("apply_interval", None, |node| node.scalar(A_TIME, diagnostics, positive_duration).map(Some));
    let looks = fields.get_or("looks", LOOKS, |node| looks(node, action, diagnostics));
    let never_accessed =
        fields.get_or("never_accessed", None, |node| never_accessed(node, action, diagnostics).map(Some));
    let makes_room_for =
        fields.get_or("makes_room_for", Vec::new(), |node| makes_room_for(node, action, before, diagnostics));
    let unobserved = fields.get_or("unobserved", false, |node| unobserved(node, action, diagnostics));
    let default_quota = action.map_or(Quota::UNLIMITED, Quota::default_of);
    let default_goals = default_quota.goals().to_vec();
    let quota = fields.get_or("quota", default_quota, |node| {
        let read = quota(node, before, diagnostics)?;
        let says_goals = node.get("goals").is_some_and(|goals| !matches!(goals.value, Value::Null));
        Some(if says_goals { read } else { read.with_goals(default_goals) })
    });
    if let (Some(action), Some(quota)) = (action, &quota) {
        check_bound(action, quota, fields.get("quota").unwrap_or(node), diagnostics);
    }
    let watermarks = fields.get_or("watermarks", None, |node| watermarks(node, diagnostics).map(Some));
    let filters = fields.get_or("filters", Vec::new(), |node| node.list("filters", diagnostics, filter));
    Some(Scheme {
        name: name.into(),
        condition: condition?,
        action: action?,
        looks: looks?,
        never_accessed: never_accessed?,
        makes_room_for: makes_room_for?,
        unobserved: unobserved?,
        inside: inside?,
        apply_interval: apply_interval?,
        quota: quota?,
        watermarks: watermarks?,
        filters: filters?,
    })
}

/// The action with the fields that say how memory of cgroups is reclaimed.
fn with_reclaim(fields: &Fields<'_>, action: Option<Action>, diagnostics: &mut Diagnostics) -> Option<Action> {
    const A_SWAPPINESS: &str = "a swappiness: a whole number from 0 to 200";
    let how = action.and_then(|action| action.reclaim());
    for name in ["first", "swappiness"] {
        if let (Some(action), None, Some(node)) = (action, how, fields.get(name)) {
            let message = format!("only reclaim and limit have {name}, and this is {action}; leave it out");
            return diagnostics.fail(node.position, message);
        }
    }
    let words = First::ALL.map(|first| (first.name(), first));
    let first = fields.get_or("first", Reclaim::DEFAULT.first, |node| node.word("first action", &words, diagnostics));
    let read = |text: &str| {
        let number = text.parse().ok().filter(|number| *number <= Reclaim::MOST_SWAPPINESS);
        number.ok_or_else(|| QuantityError::form(A_SWAPPINESS, text))
    };
    let swappiness = fields.get_or("swappiness", None, |node| node.scalar(A_SWAPPINESS, diagnostics, read).map(Some));
    Some(action?.with_reclaim(Reclaim { first: first?, swappiness: swappiness? }))
}

/// The action with the fields that say how it sets limits of cgroups: how far above the memory that is left, and
/// whether the memory in use is protected.
fn with_limit(fields: &Fields<'_>, action: Option<Action>, diagnostics: &mut Diagnostics) -> Option<Action> {
    for (name, noun) in [("margin", "a margin"), ("keep", "keep")] {
        if let (Some(action), Some(node)) = (action, fields.get(name))
            && action.limit().is_none()
        {
            let message = format!("only limit has {noun}, and this is {action}; leave it out");
            return diagnostics.fail(node.position, message);
        }
    }
    let keep = fields.get_or("keep", CgroupLimit::DEFAULT.keep, |node| node.flag(diagnostics));
    let margin = fields.get_or("margin", CgroupLimit::DEFAULT.margin, |node| {
        let share = node.scalar(A_SHARE, diagnostics, units::parse_share)?;
        Some((share * f64::from(CgroupLimit::MOST_MARGIN)).round() as u16)
    });
    Some(action?.with_margin(margin?).with_keep(keep?))
}

/// Checks that a scheme that sets limits has a goal that raises them.
fn check_bound(action: Action, quota: &Quota, node: &Node, diagnostics: &mut Diagnostics) {
    if action.limit().is_some() && !quota.goals().iter().any(Goal::is_bound) {
        let message = "limit needs a goal that says when to raise limits: pressure, refaults or returns";
        diagnostics.fail::<()>(node.position, message);
    }
}

/// How many looks must have found hot memory accessed before it is moved.
fn looks(node: &Node, action: Option<Action>, diagnostics: &mut Diagnostics) -> Option<u32> {
    const HOW_MANY: &str = "a number of looks: 1 or 2";
    if let Some(action) = action
        && action.moves() != Some(Moves::Hot)
    {
        return diagnostics.fail(node.position, format!("the action {action} has no looks; leave them out"));
    }
    let read = |text: &str| {
        text.parse().ok().filter(|looks| (1..=LOOKS).contains(looks)).ok_or_else(|| QuantityError::form(HOW_MANY, text))
    };
    node.scalar(HOW_MANY, diagnostics, read)
}

/// Whether the action may take memory that could not be observed.
fn unobserved(node: &Node, action: Option<Action>, diagnostics: &mut Diagnostics) -> Option<bool> {
    const EXPECTED: &str = "allow or deny";
    if let Some(action) = action
        && !action.takes_away()
    {
        let refusal = format!("only actions that take memory away have unobserved, and this is {action}; leave it out");
        return diagnostics.fail(node.position, refusal);
    }
    node.scalar(EXPECTED, diagnostics, |text| match text {
        "allow" => Ok(true),
        "deny" => Ok(false),
        other => Err(QuantityError::form(EXPECTED, other)),
    })
}

/// For how long memory in which no access was ever found must be idle before it is moved.
fn never_accessed(node: &Node, action: Option<Action>, diagnostics: &mut Diagnostics) -> Option<Duration> {
    if let Some(action) = action
        && action.moves() != Some(Moves::Cold)
    {
        let refusal = format!("only demote and migrate_cold have never_accessed, and this is {action}; leave it out");
        return diagnostics.fail(node.position, refusal);
    }
    node.scalar(A_TIME, diagnostics, positive_duration)
}

/// The names of the schemes for whose memory it makes room.
fn makes_room_for(
    node: &Node,
    action: Option<Action>,
    before: &[Option<Scheme>],
    diagnostics: &mut Diagnostics,
) -> Option<Vec<Arc<str>>> {
    if let Some(action) = action
        && action.moves() != Some(Moves::Cold)
    {
        let refusal = format!("only demote and migrate_cold make room for others, and this is {action}; leave it out");
        return diagnostics.fail(node.position, refusal);
    }
    node.list("names of schemes", diagnostics, |node, diagnostics| {
        let name: Arc<str> = node.text("the name of a scheme", diagnostics)?.into();
        match MakesRoomError::check(&name, before.iter().flatten()) {
            Ok(_) => Some(name),
            // The scheme that is meant may be one that could not be read. Then there is a message about it.
            Err(MakesRoomError::NotBefore(_)) if before.iter().any(Option::is_none) => None,
            Err(error) => diagnostics.fail(node.position, error.to_string()),
        }
    })
}

/// One node, a list of nodes with weights, or nodes in the order of preference: the first with room is meant.
fn target_nodes(value: &Node, diagnostics: &mut Diagnostics) -> Option<Destinations> {
    if let Value::Text(_) = &value.value {
        return Some(Destinations::one(value.scalar(A_NODE, diagnostics, node_number)?));
    }
    if let Value::Map(_) = &value.value {
        let fields = Fields::open(value, "a choice of target nodes", &["first_with_room"], diagnostics)?;
        let nodes = fields.require("first_with_room", diagnostics)?;
        let read = |item: &Node, diagnostics: &mut Diagnostics| item.scalar(A_NODE, diagnostics, node_number);
        return first_with_room(&nodes.list("nodes", diagnostics, read)?, nodes.position, diagnostics);
    }
    let nodes = value.list("target nodes, each such as {node: 1, weight: 3}", diagnostics, |item, diagnostics| {
        let fields = Fields::open(item, "a target node", &["node", "weight"], diagnostics)?;
        let number = fields.require("node", diagnostics).and_then(|item| item.scalar(A_NODE, diagnostics, node_number));
        let weight = fields.get_or("weight", 1, |item| item.scalar(A_NODE_WEIGHT, diagnostics, node_weight));
        Some((number?, weight?))
    })?;
    destinations(&nodes, value.position, diagnostics)
}

fn condition(fields: &Fields<'_>, diagnostics: &mut Diagnostics) -> Option<Condition> {
    let any = Condition::ANY;
    let size =
        fields.get_or("size", any.size, |node| node.bounds(A_SIZE, (0, u64::MAX), diagnostics, units::parse_bytes));
    let rate = fields
        .get_or("access_rate", any.rate, |node| node.bounds(A_SHARE, (0.0, 1.0), diagnostics, units::parse_share));
    let hz = fields.get_or("access_frequency", any.hz, |node| {
        node.bounds(A_FREQUENCY, (0.0, f64::INFINITY), diagnostics, units::parse_hertz)
    });
    let age = fields.get_or("age", any.age, |node| {
        node.bounds(A_TIME, (Duration::ZERO, Duration::MAX), diagnostics, units::parse_duration)
    });
    Some(Condition { size: size?, rate: rate?, hz: hz?, age: age? })
}

fn quota(node: &Node, before: &[Option<Scheme>], diagnostics: &mut Diagnostics) -> Option<Quota> {
    let known = ["shared_with", "bytes", "time", "period", "weights", "goals"];
    let fields = Fields::open(node, "a quota", &known, diagnostics)?;
    if let Some(owner) = fields.get("shared_with") {
        return shared_quota(&fields, owner, before, diagnostics);
    }
    let bytes = fields.get_or("bytes", None, |node| {
        node.scalar(A_SIZE, diagnostics, |text| match units::parse_bytes(text) {
            Ok(0) => Err(QuotaError::Nothing.to_string()),
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => Err(error.to_string()),
        })
    });
    let time = fields.get_or("time", None, |node| {
        node.scalar(A_TIME, diagnostics, |text| match units::parse_duration(text) {
            Ok(Duration::ZERO) => Err(QuotaError::Nothing.to_string()),
            Ok(time) => Ok(Some(time)),
            Err(error) => Err(error.to_string()),
        })
    });
    let period =
        fields.get_or("period", Quota::UNLIMITED.period(), |node| node.scalar(A_TIME, diagnostics, positive_duration));
    let weights = fields.get_or("weights", Weights::DEFAULT, |node| weights(node, diagnostics));
    let goals = fields.get_or("goals", Vec::new(), |node| node.list("goals", diagnostics, goal));
    let (bytes, time, period, goals) = (bytes?, time?, period?, goals?);
    if bytes.is_none() && time.is_none() && goals.is_empty() {
        if fields.has_unknown() {
            return None;
        }
        return diagnostics
            .fail(node.position, "this quota has no limit; give bytes, time or goals, or leave out the quota");
    }
    if time.is_some_and(|time| time > period) {
        let position = fields.get("time").map_or(node.position, |node| node.position);
        let message = format!("the time is longer than the period of {}", units::setting::duration(period));
        return diagnostics.fail(position, message);
    }
    match Quota::new(bytes, time, period, weights?, goals) {
        Ok(quota) => Some(quota),
        Err(error) => diagnostics.fail(node.position, error.to_string()),
    }
}

/// The quota of an earlier scheme, `owner`, with weights and goals of its own.
fn shared_quota(
    fields: &Fields<'_>,
    owner: &Node,
    before: &[Option<Scheme>],
    diagnostics: &mut Diagnostics,
) -> Option<Quota> {
    for limit in ["bytes", "time", "period"] {
        if let Some(node) = fields.get(limit) {
            let message = format!("a shared quota has the {limit} of the other scheme; leave this out");
            return diagnostics.fail(node.position, message);
        }
    }
    let weights = fields.get_or("weights", Weights::DEFAULT, |node| weights(node, diagnostics));
    let goals = fields.get_or("goals", Vec::new(), |node| node.list("goals", diagnostics, goal));
    let (weights, goals) = (weights?, goals?);
    let name = owner.text("the name of a scheme", diagnostics)?;
    let known = || before.iter().flatten();
    let owner_quota = known().find(|scheme| *scheme.name == *name).map(|scheme| scheme.quota.clone());
    let quota = owner_quota.unwrap_or(Quota::UNLIMITED).shared(name.into(), weights, goals);
    match quota.owner_among(known()) {
        Ok(_) => Some(quota),
        // The scheme that is meant may be one that could not be read. Then there is a message about it.
        Err(SharedQuotaError::NotBefore(_)) if before.iter().any(Option::is_none) => None,
        Err(error) => diagnostics.fail(owner.position, error.to_string()),
    }
}

fn weights(node: &Node, diagnostics: &mut Diagnostics) -> Option<Weights> {
    const A_WEIGHT: &str = "a weight: a whole number from 0 to 1000";
    let fields = Fields::open(node, "weights", &["size", "access_rate", "age"], diagnostics)?;
    let mut weight = |name| {
        fields.get_or(name, 0, |node| {
            node.scalar(A_WEIGHT, diagnostics, |text| {
                text.parse().ok().filter(|&weight| weight <= 1000).ok_or_else(|| QuantityError::form(A_WEIGHT, text))
            })
        })
    };
    let (size, rate, age) = (weight("size"), weight("access_rate"), weight("age"));
    Weights::new(size?, rate?, age?)
        .or_else(|| diagnostics.fail(node.position, "all weights are zero; give a weight to size, access_rate or age"))
}

const GOALS: [&str; 9] = [
    "psi_some",
    "free_memory",
    "working_set_resident",
    "node_mem_used",
    "node_mem_free",
    "pressure",
    "refaults",
    "returns",
    "fed",
];

fn goal(node: &Node, diagnostics: &mut Diagnostics) -> Option<Goal> {
    let fields = Fields::open(node, "a goal", &GOALS, diagnostics)?;
    let (name, value) =
        only_field(&fields, &GOALS, node, "one goal in each entry, such as `- psi_some: 10ms`", diagnostics)?;
    let share = |diagnostics: &mut Diagnostics| value.scalar(A_SHARE, diagnostics, units::parse_share);
    let (metric, target) = match name {
        "psi_some" => (Metric::StallTime, value.scalar(A_TIME, diagnostics, positive_duration)?.as_secs_f64()),
        "free_memory" => (Metric::FreeMemory, share(diagnostics)?),
        "working_set_resident" => (Metric::WorkingSetResident, share(diagnostics)?),
        "refaults" => (Metric::Refaults, share(diagnostics)?),
        "returns" => (Metric::Returns, share(diagnostics)?),
        "pressure" => {
            let (pressure, target) = cgroup_pressure(value, diagnostics)?;
            (Metric::CgroupPressure(pressure), target)
        }
        "node_mem_used" | "node_mem_free" => {
            let (part, target) = node_part(value, diagnostics)?;
            (if name == "node_mem_used" { Metric::NodeUsed(part) } else { Metric::NodeFree(part) }, target)
        }
        _ => {
            let (feed, target) = fed(value, diagnostics)?;
            (Metric::Fed(feed), target)
        }
    };
    match Goal::new(metric, target) {
        Ok(goal) => Some(goal),
        Err(error) => diagnostics.fail(value.position, error.to_string()),
    }
}

/// A figure of the user, and the number to reach.
fn fed(value: &Node, diagnostics: &mut Diagnostics) -> Option<(Feed, f64)> {
    const A_NUMBER: &str = "a number above zero";
    const SOURCES: [&str; 2] = ["from", "metric"];
    let fields = Fields::open(value, "a fed goal", &["from", "metric", "value"], diagnostics)?;
    let source = only_field(&fields, &SOURCES, value, "one of from (a file) and metric (a name)", diagnostics);
    let feed = source.and_then(|(name, node)| match name {
        "from" => node.text("the name of a file", diagnostics).map(|path| Feed::File(path.into())),
        _ => node.scalar(A_METRIC, diagnostics, metric_name).map(|name| Feed::Named(name.into())),
    });
    let target = fields.require("value", diagnostics).and_then(|node| {
        node.scalar(A_NUMBER, diagnostics, |text| {
            let number = units::parse_decimal(text).filter(|number| *number > 0.0);
            number.ok_or_else(|| QuantityError::form(A_NUMBER, text))
        })
    });
    Some((feed?, target?))
}

const A_METRIC: &str = "the name of a metric, up to 64 letters, digits, - _ and .";

/// The name of a metric that a program feeds.
fn metric_name(text: &str) -> Result<String, QuantityError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_name = (1..=64).contains(&text.len()) && text.chars().all(is_allowed);
    if is_name { Ok(text.into()) } else { Err(QuantityError::form(A_METRIC, text)) }
}

/// A share of time, or a map with it, whose tasks wait, and over what time.
fn cgroup_pressure(value: &Node, diagnostics: &mut Diagnostics) -> Option<(CgroupPressure, f64)> {
    let share = |node: &Node, diagnostics: &mut Diagnostics| node.scalar(A_SHARE, diagnostics, units::parse_share);
    let default = CgroupPressure { cgroup: None, waiting: Waiting::Some, window: PressureWindow::TenSeconds };
    if let Value::Text(_) = &value.value {
        return Some((default, share(value, diagnostics)?));
    }
    const WINDOWS: [PressureWindow; 2] = [PressureWindow::TenSeconds, PressureWindow::Minute];
    let fields = Fields::open(value, "a goal of pressure", &["value", "tasks", "over", "cgroup"], diagnostics)?;
    let target = fields.require("value", diagnostics).and_then(|node| share(node, diagnostics));
    let words = [("some", Waiting::Some), ("full", Waiting::Full)];
    let waiting = fields.get_or("tasks", default.waiting, |node| node.word("kind of tasks", &words, diagnostics));
    let window = fields.get_or("over", default.window, |node| {
        node.scalar("10s or 60s", diagnostics, |text| {
            let time = units::parse_duration(text).map_err(|error| error.to_string())?;
            let known = WINDOWS.into_iter().find(|window| window.length() == time);
            known.ok_or_else(|| "the kernel tells the pressure over 10s and 60s; use one of these".to_owned())
        })
    });
    let cgroup = fields.get_or("cgroup", None, |item| cgroup(item, diagnostics).map(Some));
    Some((CgroupPressure { cgroup: cgroup?, waiting: waiting?, window: window? }, target?))
}

/// A memory node, maybe a cgroup, and the share to reach.
fn node_part(value: &Node, diagnostics: &mut Diagnostics) -> Option<(NodePart, f64)> {
    let fields = Fields::open(value, "a goal of a node", &["node", "cgroup", "value"], diagnostics)?;
    let number = fields.require("node", diagnostics).and_then(|item| item.scalar(A_NODE, diagnostics, node_number));
    let target = fields.require("value", diagnostics);
    let target = target.and_then(|item| item.scalar(A_SHARE, diagnostics, units::parse_share));
    let cgroup = fields.get_or("cgroup", None, |item| cgroup(item, diagnostics).map(Some));
    Some((NodePart { node: number?, cgroup: cgroup? }, target?))
}

/// The path of a cgroup.
fn cgroup(value: &Node, diagnostics: &mut Diagnostics) -> Option<Arc<str>> {
    let path = value.text("a path such as /system.slice", diagnostics)?;
    if !path.starts_with('/') {
        let message = format!("expected a path from the root of the cgroups, such as /{}", shortened(path));
        return diagnostics.fail(value.position, message);
    }
    Some(path.into())
}

/// The one field that a map has, of `names`.
fn only_field<'a, 'n>(
    fields: &Fields<'a>,
    names: &[&'n str],
    node: &Node,
    expected: &str,
    diagnostics: &mut Diagnostics,
) -> Option<(&'n str, &'a Node)> {
    let given: Vec<(&str, &Node)> = names.iter().filter_map(|name| Some((*name, fields.get(name)?))).collect();
    match given.as_slice() {
        [one] => Some(*one),
        _ if fields.has_unknown() => None,
        given => diagnostics.fail(node.position, format!("expected {expected}, found {}", given.len())),
    }
}

/// How often watermarks are checked by default.
const WATERMARK_INTERVAL: Duration = Duration::from_secs(5);

fn watermarks(node: &Node, diagnostics: &mut Diagnostics) -> Option<Watermarks> {
    let known = ["metric", "interval", "high", "mid", "low"];
    let fields = Fields::open(node, "a map of watermarks", &known, diagnostics)?;
    let metrics = [("free_memory", &Metric::FreeMemory), ("pressure", &Metric::Pressure)];
    let metric = fields.require("metric", diagnostics).and_then(|node| node.word("metric", &metrics, diagnostics));
    let interval =
        fields.get_or("interval", WATERMARK_INTERVAL, |node| node.scalar(A_TIME, diagnostics, positive_duration));
    let mut mark = |name| {
        let node = fields.require(name, diagnostics)?;
        Some((node.position, node.scalar(A_SHARE, diagnostics, units::parse_share)?))
    };
    let (high, mid, low) = (mark("high"), mark("mid"), mark("low"));
    let ((_, high), (mid_position, mid), (low_position, low)) = (high?, mid?, low?);
    match Watermarks::new(metric?.clone(), interval?, high, mid, low) {
        Ok(watermarks) => Some(watermarks),
        Err(error) => {
            let position = if mid > high { mid_position } else { low_position };
            diagnostics.fail(position, error.to_string())
        }
    }
}

fn filter(node: &Node, diagnostics: &mut Diagnostics) -> Option<Filter> {
    let fields = Fields::open(node, "a filter", &["allow", "reject"], diagnostics)?;
    let expected = "either allow or reject in each entry, such as `- reject: young`";
    let (verdict, memory) = only_field(&fields, &["allow", "reject"], node, expected, diagnostics)?;
    let (matching, memory) = match memory.get("not") {
        Some(inner) => {
            Fields::open(memory, "a kind of memory", &["not"], diagnostics)?;
            (false, inner)
        }
        None => (true, memory),
    };
    Some(Filter { kind: kind(memory, diagnostics)?, matching, allow: verdict == "allow" })
}

/// Kinds of memory that are one word, and those that are a field with a value.
const WORDS: [&str; 7] = ["active", "anonymous", "compressible", "file", "huge_page", "unmapped", "young"];
const KINDS: [&str; 7] = ["mapping", "address", "process", "command", "cgroup", "huge_page_size", "node"];

fn kind(node: &Node, diagnostics: &mut Diagnostics) -> Option<FilterKind> {
    if let Value::Text(word) = &node.value {
        return match word.as_str() {
            "anonymous" => Some(FilterKind::Anonymous),
            "file" => Some(FilterKind::File),
            "active" => Some(FilterKind::Pages(PageKind::Active)),
            "compressible" => Some(FilterKind::Pages(PageKind::Compressible)),
            "huge_page" => Some(FilterKind::Pages(PageKind::Huge)),
            "unmapped" => Some(FilterKind::Pages(PageKind::Unmapped)),
            "young" => Some(FilterKind::Pages(PageKind::Young)),
            word if KINDS.contains(&word) => {
                diagnostics.fail(node.position, format!("{word} needs a value, such as `{{{word}: …}}`"))
            }
            word => {
                let known: Vec<&str> = WORDS.into_iter().chain(KINDS).chain(["not"]).collect();
                let message =
                    format!("there is no kind of memory \"{}\"; {}", shortened(word), did_you_mean(word, &known));
                diagnostics.fail(node.position, message)
            }
        };
    }
    let fields = Fields::open(node, "a kind of memory", &KINDS, diagnostics)?;
    let (name, value) = only_field(&fields, &KINDS, node, "one kind of memory in each filter", diagnostics)?;
    match name {
        "mapping" => Some(FilterKind::Mapping(Pattern::new(value.text("a name such as \"[heap]\"", diagnostics)?))),
        "command" => Some(FilterKind::Command(Pattern::new(value.text("a name such as redis-*", diagnostics)?))),
        "cgroup" => Some(FilterKind::Cgroup(cgroup(value, diagnostics)?)),
        "huge_page_size" => {
            let sizes = value.bounds(A_SIZE, (0, u64::MAX), diagnostics, units::parse_bytes)?;
            Some(FilterKind::Pages(PageKind::Folio(sizes.min(), sizes.max())))
        }
        "node" => Some(FilterKind::Pages(PageKind::Node(value.scalar(A_NODE, diagnostics, node_number)?))),
        "process" => {
            const A_PID: &str = "a process ID, a whole number above zero";
            let read =
                |text: &str| text.parse().ok().filter(|&pid| pid > 0).ok_or_else(|| QuantityError::form(A_PID, text));
            Some(FilterKind::Process(value.scalar(A_PID, diagnostics, read)?))
        }
        _ => {
            const A_RANGE: &str = "two addresses, such as [0x7f0000000000, 0x7f0000100000]";
            let [start, end] = value.items(A_RANGE, diagnostics)? else {
                return diagnostics.fail(value.position, format!("expected {A_RANGE}"));
            };
            let mut address = |node: &Node| node.scalar(A_RANGE, diagnostics, units::parse_address);
            let (start, end) = (address(start), address(end));
            AddrRange::new(start?, end?).map(FilterKind::Address).or_else(|| {
                diagnostics.fail(value.position, "the range is empty or reversed; write the lower address first")
            })
        }
    }
}
