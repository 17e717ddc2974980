//! isotherm's own form: YAML with everything that a scheme can have.

use std::time::Duration;

use isotherm_core::AddrRange;
use isotherm_core::scheme::{
    Condition, Filter, FilterKind, Goal, Metric, PageKind, Pattern, Quota, QuotaError, Scheme, Watermarks, Weights,
};
use isotherm_core::units::setting;

use crate::complaint::Complaints;
use crate::fields::{Fields, bounds, flag, list, meant, or, scalar, text, word};
use crate::parts::{Names, action, at_least_one, interval, may_act};
use crate::tree::{Node, Value};
use crate::units::{self, A_SHARE, A_SIZE, A_TIME};

const SCHEME: [&str; 10] =
    ["name", "size", "access_rate", "age", "action", "inside", "apply_interval", "quota", "watermarks", "filters"];

/// The schemes of a document: a map with the field `schemes`, or the list itself.
pub(crate) fn schemes(root: &Node, complaints: &mut Complaints) -> Vec<Scheme> {
    let of_list = match &root.value {
        Value::Map(_) => Fields::open(root, "a scheme file", &["schemes"], complaints)
            .and_then(|fields| fields.need("schemes", complaints)),
        _ => Some(root),
    };
    let Some((place, items)) = of_list.and_then(|node| Some((node.place, list(node, "schemes", complaints)?))) else {
        return Vec::new();
    };
    let mut names = Names::default();
    let made = items.iter().enumerate().map(|(nth, node)| scheme(node, nth, &mut names, complaints)).collect();
    at_least_one(made, place, complaints)
}

fn scheme(node: &Node, nth: usize, names: &mut Names, complaints: &mut Complaints) -> Option<Scheme> {
    let fields = Fields::open(node, "a scheme", &SCHEME, complaints)?;
    let given = fields.get("name").and_then(|node| Some((text(node, "a name", complaints)?, node.place)));
    let name = names.name(given, nth, node.place, complaints);
    let condition = condition(&fields, complaints);
    let inside = or(fields.get("inside"), false, |node| flag(node, complaints));
    let named = fields.need("action", complaints);
    let action = named.and_then(|node| scalar(node, "an action such as pageout", complaints, action));
    if let (Some(action), Some(node), Some(inside)) = (action, named, inside) {
        may_act(action, inside, node.place, "write `inside: true` beside it", complaints);
    }
    let apply_interval =
        or(fields.get("apply_interval"), None, |node| scalar(node, A_TIME, complaints, interval).map(Some));
    let quota = or(fields.get("quota"), Quota::UNLIMITED, |node| quota(node, complaints));
    let watermarks = or(fields.get("watermarks"), None, |node| watermarks(node, complaints).map(Some));
    let filters = or(fields.get("filters"), Vec::new(), |node| filters(node, complaints));
    Some(Scheme {
        name: name.into(),
        condition: condition?,
        action: action?,
        inside: inside?,
        apply_interval: apply_interval?,
        quota: quota?,
        watermarks: watermarks?,
        filters: filters?,
    })
}

fn condition(fields: &Fields<'_>, complaints: &mut Complaints) -> Option<Condition> {
    let any = Condition::ANY;
    let size = or(fields.get("size"), any.size, |node| bounds(node, A_SIZE, (0, u64::MAX), complaints, units::size));
    let rate = or(fields.get("access_rate"), any.rate, |node| {
        bounds(node, A_SHARE, (0.0, 1.0), complaints, |text| units::share(text, None))
    });
    let age = or(fields.get("age"), any.age, |node| {
        bounds(node, A_TIME, (Duration::ZERO, Duration::MAX), complaints, |text| units::time(text, None))
    });
    Some(Condition { size: size?, rate: rate?, age: age? })
}

fn quota(node: &Node, complaints: &mut Complaints) -> Option<Quota> {
    let known = ["bytes", "time", "period", "weights", "goals"];
    let fields = Fields::open(node, "a quota", &known, complaints)?;
    let above_zero = |zero: bool| if zero { Err(QuotaError::Nothing.to_string()) } else { Ok(()) };
    let bytes = or(fields.get("bytes"), None, |node| {
        scalar(node, A_SIZE, complaints, |text| {
            let bytes = units::size(text)?;
            above_zero(bytes == 0).map(|()| Some(bytes))
        })
    });
    let time = or(fields.get("time"), None, |node| {
        scalar(node, A_TIME, complaints, |text| {
            let time = units::time(text, None)?;
            above_zero(time.is_zero()).map(|()| Some(time))
        })
    });
    let period = or(fields.get("period"), Quota::UNLIMITED.period(), |node| scalar(node, A_TIME, complaints, interval));
    let weights = or(fields.get("weights"), Weights::DEFAULT, |node| weights(node, complaints));
    let goals = or(fields.get("goals"), Vec::new(), |node| {
        let goals = list(node, "goals", complaints)?.iter().map(|node| goal(node, complaints)).collect::<Vec<_>>();
        goals.into_iter().collect()
    });
    let (bytes, time, period, goals) = (bytes?, time?, period?, goals?);
    if bytes.is_none() && time.is_none() && goals.is_empty() {
        if fields.is_strange {
            return None;
        }
        return complaints.at(node.place, "this quota limits nothing; give bytes, time or goals, or leave it out");
    }
    if time.is_some_and(|time| time > period) {
        let place = fields.get("time").map_or(node.place, |node| node.place);
        return complaints.at(
            place,
            format!("more time than a period has ({}); shorten it or lengthen the period", setting::duration(period)),
        );
    }
    Quota::new(bytes, time, period, weights?, goals)
        .map_err(|why| complaints.at::<()>(node.place, why.to_string()))
        .ok()
}

fn weights(node: &Node, complaints: &mut Complaints) -> Option<Weights> {
    let fields = Fields::open(node, "weights", &["size", "access_rate", "age"], complaints)?;
    let mut weight = |name| {
        or(fields.get(name), 0, |node| {
            let wanted = "a weight: a whole number from 0 to 1000";
            let read = |text: &str| text.parse().ok().filter(|&weight| weight <= 1000);
            scalar(node, wanted, complaints, |text| read(text).ok_or_else(|| units::expected(wanted, text)))
        })
    };
    let (size, rate, age) = (weight("size"), weight("access_rate"), weight("age"));
    Weights::new(size?, rate?, age?)
        .or_else(|| complaints.at(node.place, "all weights are zero; give at least one of size, access_rate and age"))
}

const GOALS: [&str; 4] = ["psi_some", "free_memory", "working_set_resident", "fed"];

fn goal(node: &Node, complaints: &mut Complaints) -> Option<Goal> {
    let fields = Fields::open(node, "a goal", &GOALS, complaints)?;
    let given: Vec<(&str, &Node)> = GOALS.iter().filter_map(|name| Some((*name, fields.get(name)?))).collect();
    let [(name, value)] = given.as_slice() else {
        if fields.is_strange {
            return None;
        }
        let message = format!("expected one goal an entry, such as `- psi_some: 10ms`, found {}", given.len());
        return complaints.at(node.place, message);
    };
    let (metric, target) = match *name {
        "psi_some" => (Metric::StallTime, scalar(value, A_TIME, complaints, interval)?.as_secs_f64()),
        "fed" => {
            let fields = Fields::open(value, "a fed goal", &["from", "value"], complaints)?;
            let from = fields.need("from", complaints).and_then(|node| text(node, "the name of a file", complaints));
            let wanted = "a number above zero";
            let number =
                |text: &str| units::decimal(text).filter(|n| *n > 0.0).ok_or_else(|| units::expected(wanted, text));
            let target = fields.need("value", complaints).and_then(|node| scalar(node, wanted, complaints, number));
            (Metric::Fed(from?.into()), target?)
        }
        name => {
            let share = scalar(value, A_SHARE, complaints, |text| units::share(text, None))?;
            (if name == "free_memory" { Metric::FreeMemory } else { Metric::WorkingSetResident }, share)
        }
    };
    Goal::new(metric, target).map_err(|why| complaints.at::<()>(value.place, why.to_string())).ok()
}

fn watermarks(node: &Node, complaints: &mut Complaints) -> Option<Watermarks> {
    let known = ["metric", "interval", "high", "mid", "low"];
    let fields = Fields::open(node, "watermarks", &known, complaints)?;
    let metrics = [("free_memory", &Metric::FreeMemory), ("pressure", &Metric::Pressure)];
    let metric = fields.need("metric", complaints).and_then(|node| word(node, "metric", &metrics, complaints));
    let every = or(fields.get("interval"), Duration::from_secs(5), |node| scalar(node, A_TIME, complaints, interval));
    let mut mark = |name| {
        let node = fields.need(name, complaints)?;
        Some((node.place, scalar(node, A_SHARE, complaints, |text| units::share(text, None))?))
    };
    let (high, mid, low) = (mark("high"), mark("mid"), mark("low"));
    let ((_, high), (mid_at, mid), (low_at, low)) = (high?, mid?, low?);
    let place = if mid > high { mid_at } else { low_at };
    let made = Watermarks::new(metric?.clone(), every?, high, mid, low);
    made.map_err(|why| complaints.at::<()>(place, why.to_string())).ok()
}

fn filters(node: &Node, complaints: &mut Complaints) -> Option<Vec<Filter>> {
    let made = list(node, "filters", complaints)?.iter().map(|node| filter(node, complaints)).collect::<Vec<_>>();
    made.into_iter().collect()
}

fn filter(node: &Node, complaints: &mut Complaints) -> Option<Filter> {
    let fields = Fields::open(node, "a filter", &["allow", "reject"], complaints)?;
    let (allow, what) = match (fields.get("allow"), fields.get("reject")) {
        (Some(what), None) => (true, what),
        (None, Some(what)) => (false, what),
        _ if fields.is_strange => return None,
        _ => {
            let message = "expected one of allow and reject an entry, such as `- reject: young`";
            return complaints.at(node.place, message);
        }
    };
    let (matching, what) = match what.get("not") {
        Some(inner) => {
            Fields::open(what, "a filter's memory", &["not"], complaints)?;
            (false, inner)
        }
        None => (true, what),
    };
    Some(Filter { kind: kind(what, complaints)?, matching, allow })
}

const WORDS: [&str; 4] = ["anonymous", "file", "huge_page", "young"];
const KINDS: [&str; 5] = ["mapping", "address", "process", "command", "cgroup"];

fn kind(node: &Node, complaints: &mut Complaints) -> Option<FilterKind> {
    if let Value::Text(word) = &node.value {
        return match word.as_str() {
            "anonymous" => Some(FilterKind::Anonymous),
            "file" => Some(FilterKind::File),
            "huge_page" => Some(FilterKind::Pages(PageKind::Huge)),
            "young" => Some(FilterKind::Pages(PageKind::Young)),
            other if KINDS.contains(&other) => {
                let message = format!("{other} needs to know which, such as `{{{other}: …}}`");
                complaints.at(node.place, message)
            }
            other => {
                let known: Vec<&str> = WORDS.into_iter().chain(KINDS).chain(["not"]).collect();
                complaints.at(node.place, format!("there is no kind of memory {other:?}; {}", meant(other, &known)))
            }
        };
    }
    let fields = Fields::open(node, "a filter's memory", &KINDS, complaints)?;
    let given: Vec<(&str, &Node)> = KINDS.iter().filter_map(|name| Some((*name, fields.get(name)?))).collect();
    let [(name, value)] = given.as_slice() else {
        if fields.is_strange {
            return None;
        }
        return complaints.at(node.place, format!("expected one kind of memory a filter, found {}", given.len()));
    };
    match *name {
        "mapping" => Some(FilterKind::Mapping(Pattern::new(text(value, "a name such as \"[heap]\"", complaints)?))),
        "command" => Some(FilterKind::Command(Pattern::new(text(value, "a name such as redis-*", complaints)?))),
        "cgroup" => {
            let path = text(value, "a path such as /system.slice", complaints)?;
            if !path.starts_with('/') {
                let message = format!("expected a cgroup's path from the root of the hierarchy, such as /{path}");
                return complaints.at(value.place, message);
            }
            Some(FilterKind::Cgroup(path.into()))
        }
        "process" => {
            let wanted = "the ID of a process, a whole number above zero";
            let read =
                |text: &str| text.parse().ok().filter(|&pid| pid > 0).ok_or_else(|| units::expected(wanted, text));
            Some(FilterKind::Process(scalar(value, wanted, complaints, read)?))
        }
        _ => {
            let wanted = "two addresses, such as [0x7f0000000000, 0x7f0000100000]";
            let Value::List(ends) = &value.value else {
                return complaints.at(value.place, format!("expected {wanted}, found {}", value.what()));
            };
            let [from, to] = ends.as_slice() else {
                return complaints.at(value.place, format!("expected {wanted}, found {}", ends.len()));
            };
            let from = scalar(from, wanted, complaints, units::address);
            let to = scalar(to, wanted, complaints, units::address);
            let empty = "this range is empty or reversed; the first address must be the lower";
            AddrRange::new(from?, to?).map(FilterKind::Address).or_else(|| complaints.at(value.place, empty))
        }
    }
}
