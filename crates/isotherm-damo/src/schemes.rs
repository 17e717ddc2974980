//! Schemes in damo's JSON (or YAML), as far as isotherm has the same.
//!
//! A file is a whole configuration, as `damo args damon` writes it, from which only the schemes are read; or a list of
//! schemes, as `damo schemes` takes it. What isotherm does not have is an error, and is never left out silently. A
//! number without a unit is in the unit that damo gives to the field.

use std::path::Path;
use std::time::Duration;

use isotherm_core::AddrRange;
use isotherm_core::scheme::{
    ClosedInterval, Condition, Destinations, Filter, FilterKind, Goal, Metric, NodePart, PageKind, Quota, Scheme,
    Watermarks, Weights,
};
use isotherm_core::units::{self, A_SHARE, A_SIZE, A_TIME, QuantityError};
use isotherm_scheme::form::{
    A_NODE, A_NODE_WEIGHT, AN_ACTION, Fields, Names, Node, Value, action, at_least_one, check_inside, destinations,
    node_number, node_weight, with_destinations,
};
use isotherm_scheme::{Diagnostics, Document, Position};

/// Reads the schemes in a file, which is in one of isotherm's own forms or in damo's.
///
/// # Errors
/// As [`isotherm_scheme::read_text`] and [`parse_schemes`].
pub fn read_schemes(path: &Path) -> Result<Vec<Scheme>, Diagnostics> {
    parse_schemes(&path.display().to_string(), &isotherm_scheme::read_text(path)?)
}

/// Reads the schemes in `text`, which is in one of isotherm's own forms or in damo's. `file` is the name of the file in
/// messages.
///
/// # Errors
/// All errors in the text, in the order of their positions.
pub fn parse_schemes(file: &str, text: &str) -> Result<Vec<Scheme>, Diagnostics> {
    let document = Document::parse(file, text)?;
    match document.root() {
        Some(root) if is_damo(root) => document.read(|diagnostics| schemes(root, diagnostics)),
        _ => document.schemes(),
    }
}

/// Whether a document is damo's: it has fields that isotherm's own form does not have.
fn is_damo(root: &Node) -> bool {
    let is_scheme = |node: &Node| node.get("access_pattern").is_some();
    let has_scheme = |node: &Node| matches!(&node.value, Value::List(items) if items.iter().any(is_scheme));
    root.get("kdamonds").is_some()
        || root.get("contexts").is_some()
        || is_scheme(root)
        || has_scheme(root)
        || root.get("schemes").is_some_and(has_scheme)
}

/// The schemes of all contexts.
fn schemes(root: &Node, diagnostics: &mut Diagnostics) -> Vec<Scheme> {
    let mut nodes = Vec::new();
    collect(root, &mut nodes, diagnostics);
    let mut names = Names::default();
    let schemes = nodes.iter().enumerate().map(|(i, node)| scheme(node, i, &mut names, diagnostics)).collect();
    at_least_one(schemes, root.position, diagnostics)
}

/// Collects the schemes in `node`: a scheme, a list of schemes, or a map with kdamonds, contexts or schemes.
fn collect<'a>(node: &'a Node, schemes: &mut Vec<&'a Node>, diagnostics: &mut Diagnostics) {
    match &node.value {
        Value::Map(_) if node.get("access_pattern").is_some() => schemes.push(node),
        Value::Map(_) => {
            let inner = ["kdamonds", "contexts", "schemes"].into_iter().find_map(|name| Some((name, node.get(name)?)));
            match inner {
                Some((_, Node { value: Value::Null, .. })) => {}
                Some(("schemes", inner)) => schemes.extend(inner.items("schemes", diagnostics).unwrap_or_default()),
                Some((name, inner)) => {
                    let items = inner.items(name, diagnostics).unwrap_or_default();
                    items.iter().for_each(|item| collect(item, schemes, diagnostics));
                }
                None => {
                    diagnostics.fail::<()>(node.position, "expected damo's kdamonds, contexts or schemes");
                }
            }
        }
        Value::List(items) => schemes.extend(items),
        Value::Null | Value::Text(_) => {
            diagnostics
                .fail::<()>(node.position, "expected a map with damo's contexts or schemes, or a list of schemes");
        }
    }
}

/// The fields of a scheme. Some are only written by damo, and are ignored.
const SCHEME: [&str; 16] = [
    "name",
    "action",
    "target_nid",
    "dests",
    "access_pattern",
    "apply_interval_us",
    "quotas",
    "watermarks",
    "filters",
    "core_filters",
    "ops_filters",
    "stats",
    "tried_regions",
    "max_nr_snapshots",
    "comments",
    "inside",
];

const MICROSECOND: Duration = Duration::from_micros(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn scheme(node: &Node, index: usize, names: &mut Names, diagnostics: &mut Diagnostics) -> Option<Scheme> {
    let fields = Fields::open(node, "a scheme of damo", &SCHEME, diagnostics)?;
    let given = fields.get("name").and_then(|node| Some((node.text("a name", diagnostics)?, node.position)));
    let name = names.name(given, index, node.position, diagnostics);

    let action_node = fields.require("action", diagnostics);
    let action = action_node.and_then(|node| node.scalar(AN_ACTION, diagnostics, action));
    let inside = fields.get_or("inside", false, |node| node.flag(diagnostics));
    if let (Some(action), Some(node), Some(inside)) = (action, action_node, inside) {
        let how = "add \"inside\": true to the scheme, a field that damo does not have";
        check_inside(action, inside, node.position, how, diagnostics);
    }
    let to = target_nodes(&fields, diagnostics);
    let action = match (action, action_node, to) {
        (Some(action), Some(node), Some(to)) => {
            let to = to.filter(|_| action.destinations().is_some());
            let how = "add \"target_nid\", the number of a memory node, or \"dests\"";
            with_destinations(action, to, node.position, how, diagnostics)
        }
        _ => None,
    };
    let snapshots = fields.get_or("max_nr_snapshots", (), |node| {
        zero(node, "isotherm has no max_nr_snapshots; end the run with --duration", diagnostics)
    });
    let condition = fields.require("access_pattern", diagnostics).and_then(|node| condition(node, diagnostics));
    let interval = fields.get_or("apply_interval_us", None, |node| optional_time(node, MICROSECOND, diagnostics));
    let default_quota = action.map_or(Quota::UNLIMITED, Quota::default_of);
    let quota = fields.get_or("quotas", default_quota, |node| quota(node, diagnostics));
    let watermarks = fields.get_or("watermarks", None, |node| watermarks(node, diagnostics));
    // DAMON applies the filters of its core before those of its operations layer.
    let filters = ["core_filters", "filters", "ops_filters"]
        .map(|name| fields.get_or(name, Vec::new(), |node| node.list("filters", diagnostics, filter)));
    let filters: Option<Vec<Vec<Filter>>> = filters.into_iter().collect();
    snapshots?;
    Some(Scheme {
        inside: inside?,
        apply_interval: interval?,
        quota: quota?,
        watermarks: watermarks?,
        filters: filters?.concat(),
        ..Scheme::new(&name, condition?, action?)
    })
}

/// The nodes to move memory to: those of `dests`, each with its weight; else `target_nid`. damo writes -1, or null, for
/// no node.
#[allow(clippy::option_option, reason = "the outer one tells whether there was an error, as in all readers")]
fn target_nodes(fields: &Fields<'_>, diagnostics: &mut Diagnostics) -> Option<Option<(Destinations, Position)>> {
    let dests = fields.get_or("dests", Vec::new(), |node| {
        node.list("destinations", diagnostics, |item, diagnostics| {
            let fields = Fields::open(item, "a destination", &["id", "weight"], diagnostics)?;
            let id = fields.require("id", diagnostics).and_then(|id| id.scalar(A_NODE, diagnostics, node_number));
            let weight = fields.require("weight", diagnostics);
            let weight = weight.and_then(|weight| weight.scalar(A_NODE_WEIGHT, diagnostics, node_weight));
            Some((id?, weight?))
        })
    })?;
    if let (Some(node), false) = (fields.get("dests"), dests.is_empty()) {
        return Some(Some((destinations(&dests, node.position, diagnostics)?, node.position)));
    }
    let Some(node) = fields.get("target_nid") else { return Some(None) };
    let number = node.scalar(A_NODE, diagnostics, |text| match text {
        "-1" => Ok(None),
        text => node_number(text).map(Some),
    })?;
    Some(number.map(|number| (Destinations::one(number), node.position)))
}

/// Reports a field that isotherm does not have, unless it is 0, which turns it off.
fn zero(node: &Node, message: &str, diagnostics: &mut Diagnostics) -> Option<()> {
    node.scalar("0", diagnostics, |text| if text == "0" { Ok(()) } else { Err(message) })
}

fn condition(node: &Node, diagnostics: &mut Diagnostics) -> Option<Condition> {
    let fields = Fields::open(node, "an access pattern", &["sz_bytes", "nr_accesses", "age"], diagnostics)?;
    let any = Condition::ANY;
    let size = fields.get_or("sz_bytes", any.size, |node| {
        bounds(node, A_SIZE, (0, u64::MAX), diagnostics, |text| units::parse_bytes(text).map_err(message))
    });
    let rate =
        fields.get_or("nr_accesses", any.rate, |node| bounds(node, A_SHARE, (0.0, 1.0), diagnostics, access_rate));
    let age =
        fields.get_or("age", any.age, |node| bounds(node, A_TIME, (Duration::ZERO, Duration::MAX), diagnostics, age));
    Some(Condition { size: size?, rate: rate?, age: age?, hz: Condition::ANY.hz })
}

fn access_rate(text: &str) -> Result<f64, String> {
    if text.contains("sample") {
        return Err(
            "isotherm has no access rate in samples, which depends on the intervals; write it in percent".into()
        );
    }
    if is_u64_max(text.trim_end_matches('%')) {
        return Ok(1.0);
    }
    units::parse_share_of(text, 100.0).map_err(message)
}

fn age(text: &str) -> Result<Duration, String> {
    if text.contains("aggr") {
        return Err("isotherm has no age in aggregations, which depends on the intervals; write a time".into());
    }
    // `damo --raw` writes an age in nanoseconds, and reads it in microseconds. No bound is this number then.
    if text == "18446744073709551615000" {
        return Err("`damo --raw` writes times in another unit than it reads; write the file without --raw".into());
    }
    match units::parse_duration_or(text, MICROSECOND) {
        // An age that does not fit in 584 years is no bound.
        Err(QuantityError::TooLarge { .. }) => Ok(Duration::MAX),
        other => other.map_err(message),
    }
}

/// Whether a number is the highest of 64 bits, which damo writes for no bound.
fn is_u64_max(text: &str) -> bool {
    units::parse_count(text) == Ok(u64::MAX)
}

fn message(error: QuantityError) -> String {
    error.to_string()
}

/// The bounds of a pair, which both must be given.
fn bounds<T: PartialOrd + Copy>(
    node: &Node,
    expected: &str,
    limits: (T, T),
    diagnostics: &mut Diagnostics,
    read: impl Fn(&str) -> Result<T, String>,
) -> Option<ClosedInterval<T>> {
    let fields = Fields::open(node, "a pair of bounds", &["min", "max"], diagnostics)?;
    let (min, max) = (fields.require("min", diagnostics), fields.require("max", diagnostics));
    min.and(max)?;
    node.bounds(expected, limits, diagnostics, read)
}

/// A time above zero. None for 0 and `max`, which both mean no time.
fn optional_time(node: &Node, unit: Duration, diagnostics: &mut Diagnostics) -> Option<Option<Duration>> {
    node.scalar(A_TIME, diagnostics, |text| match text {
        "max" => Ok(None),
        text => units::parse_duration_or(text, unit).map(|time| (!time.is_zero()).then_some(time)),
    })
}

const QUOTA: [&str; 11] = [
    "time_ms",
    "sz_bytes",
    "reset_interval_ms",
    "fail_charge_num",
    "fail_charge_denom",
    "goals",
    "goal_tuner",
    "effective_sz_bytes",
    "weights",
    "charged_bytes",
    "comments",
];

fn quota(node: &Node, diagnostics: &mut Diagnostics) -> Option<Quota> {
    let fields = Fields::open(node, "a map of quotas", &QUOTA, diagnostics)?;
    let time = fields.get_or("time_ms", None, |node| optional_time(node, MILLISECOND, diagnostics));
    let bytes = fields.get_or("sz_bytes", None, |node| {
        node.scalar(A_SIZE, diagnostics, |text| match text {
            "max" => Ok(None),
            text => units::parse_bytes(text).map(|bytes| (bytes > 0).then_some(bytes)),
        })
    });
    let period = fields.get_or("reset_interval_ms", None, |node| optional_time(node, MILLISECOND, diagnostics));
    let weights = fields.get_or("weights", Weights::DEFAULT, |node| weights(node, diagnostics));
    let goals = fields.get_or("goals", Vec::new(), |node| node.list("goals", diagnostics, goal));
    let charges = ["fail_charge_num", "fail_charge_denom"].map(|name| {
        let message = "isotherm counts refused memory for the quota as other memory; write 0";
        fields.get_or(name, (), |node| zero(node, message, diagnostics))
    });
    let tuner = fields.get_or("goal_tuner", (), |node| {
        node.scalar("a tuner", diagnostics, |text| match text {
            "consist" => Ok(()),
            _ => Err("isotherm has one tuner of quotas, which is nearest to damo's consist; write consist"),
        })
    });
    tuner.and(charges[0]).and(charges[1])?;
    let (bytes, time, goals, weights, period) = (bytes?, time?, goals?, weights?, period?);
    if bytes.is_none() && time.is_none() && goals.is_empty() {
        return Some(Quota::UNLIMITED);
    }
    let Some(period) = period else {
        return diagnostics.fail(node.position, "these quotas need reset_interval_ms, a time above zero");
    };
    match Quota::new(bytes, time, period, weights, goals) {
        Ok(quota) => Some(quota),
        Err(error) => diagnostics.fail(node.position, error.to_string()),
    }
}

/// A share. A number without a unit counts thousandths.
fn permil(text: &str) -> Result<f64, QuantityError> {
    units::parse_share_of(text, 1000.0)
}

fn weights(node: &Node, diagnostics: &mut Diagnostics) -> Option<Weights> {
    let fields =
        Fields::open(node, "a map of weights", &["sz_permil", "nr_accesses_permil", "age_permil"], diagnostics)?;
    let mut weight = |name| {
        let share = fields.get_or(name, 0.0, |node| node.scalar(A_SHARE, diagnostics, permil))?;
        Some((share * 1000.0).round() as u32)
    };
    let (size, rate, age) = (weight("sz_permil"), weight("nr_accesses_permil"), weight("age_permil"));
    // damo writes zeros for weights that were not given.
    Some(Weights::new(size?, rate?, age?).unwrap_or(Weights::DEFAULT))
}

fn goal(node: &Node, diagnostics: &mut Diagnostics) -> Option<Goal> {
    let known = ["metric", "target_value", "current_value", "nid", "path", "complement"];
    let fields = Fields::open(node, "a goal", &known, diagnostics)?;
    let metric = fields.require("metric", diagnostics)?;
    let name = metric.text("a metric", diagnostics)?;
    let target = fields.require("target_value", diagnostics);
    let node_part = |diagnostics: &mut Diagnostics| {
        let nid = fields.require("nid", diagnostics).and_then(|nid| nid.scalar(A_NODE, diagnostics, node_number));
        let of_cgroup = name.starts_with("node_memcg");
        let cgroup = match of_cgroup.then(|| fields.require("path", diagnostics)) {
            Some(path) => Some(path?.text("a path", diagnostics)?.into()),
            None => None,
        };
        Some(NodePart { node: nid?, cgroup })
    };
    let (metric, value) = match name {
        "some_mem_psi_us" => {
            let time = optional_time(target?, MICROSECOND, diagnostics)?.unwrap_or_default();
            (Metric::StallTime, time.as_secs_f64())
        }
        "node_mem_used_bp" | "node_memcg_used_bp" => {
            (Metric::NodeUsed(node_part(diagnostics)?), target?.scalar(A_SHARE, diagnostics, basis_points)?)
        }
        "node_mem_free_bp" | "node_memcg_free_bp" => {
            (Metric::NodeFree(node_part(diagnostics)?), target?.scalar(A_SHARE, diagnostics, basis_points)?)
        }
        other => {
            let message = format!(
                "isotherm does not read damo's goal {other:?}; its own form has psi_some, free_memory, \
                 working_set_resident, node_mem_used, node_mem_free and fed (docs/schemes.md)"
            );
            return diagnostics.fail(metric.position, message);
        }
    };
    match Goal::new(metric, value) {
        Ok(goal) => Some(goal),
        Err(error) => diagnostics.fail(target?.position, error.to_string()),
    }
}

/// A share. A number without a unit counts ten-thousandths.
fn basis_points(text: &str) -> Result<f64, QuantityError> {
    units::parse_share_of(text, 10_000.0)
}

fn watermarks(node: &Node, diagnostics: &mut Diagnostics) -> Option<Option<Watermarks>> {
    let known = ["metric", "interval_us", "high_permil", "mid_permil", "low_permil"];
    let fields = Fields::open(node, "a map of watermarks", &known, diagnostics)?;
    let metric = fields.require("metric", diagnostics)?;
    let metric = match metric.text("a metric", diagnostics)? {
        "none" => return Some(None),
        "free_mem_rate" => Metric::FreeMemory,
        other => {
            let message = format!("isotherm has no watermarks on damo's metric {other:?}; write none or free_mem_rate");
            return diagnostics.fail(metric.position, message);
        }
    };
    let interval = fields.require("interval_us", diagnostics);
    let interval = interval.and_then(|node| optional_time(node, MICROSECOND, diagnostics));
    let mut mark = |name| fields.require(name, diagnostics)?.scalar(A_SHARE, diagnostics, permil);
    let (high, mid, low) = (mark("high_permil"), mark("mid_permil"), mark("low_permil"));
    match Watermarks::new(metric, interval?.unwrap_or_default(), high?, mid?, low?) {
        Ok(watermarks) => Some(Some(watermarks)),
        Err(error) => diagnostics.fail(node.position, error.to_string()),
    }
}

const FILTER: [&str; 9] = [
    "filter_type",
    "matching",
    "allow",
    "filter_pass",
    "memcg_path",
    "address_range",
    "damon_target_idx",
    "hugepage_size",
    "probe_hits_wsum_range",
];

fn filter(node: &Node, diagnostics: &mut Diagnostics) -> Option<Filter> {
    let fields = Fields::open(node, "a filter", &FILTER, diagnostics)?;
    let kind = filter_kind(&fields, diagnostics);
    let matching = fields.get_or("matching", true, |node| node.flag(diagnostics));
    // Old versions of damo call it filter_pass.
    let name = if fields.get("allow").is_some() { "allow" } else { "filter_pass" };
    let allow = fields.get_or(name, false, |node| node.flag(diagnostics));
    Some(Filter { kind: kind?, matching: matching?, allow: allow? })
}

fn filter_kind(fields: &Fields<'_>, diagnostics: &mut Diagnostics) -> Option<FilterKind> {
    let type_node = fields.require("filter_type", diagnostics)?;
    match type_node.text("a type of filter", diagnostics)? {
        "anon" => Some(FilterKind::Anonymous),
        "young" => Some(FilterKind::Pages(PageKind::Young)),
        "active" => Some(FilterKind::Pages(PageKind::Active)),
        "unmapped" => Some(FilterKind::Pages(PageKind::Unmapped)),
        "memcg" => {
            let path = fields.require("memcg_path", diagnostics)?.text("a path", diagnostics)?;
            Some(FilterKind::Cgroup(format!("/{}", path.trim_start_matches('/')).into()))
        }
        "addr" => {
            let range = fields.require("address_range", diagnostics)?;
            let ends = Fields::open(range, "an address range", &["start", "end"], diagnostics)?;
            let mut end =
                |name| ends.require(name, diagnostics)?.scalar("an address", diagnostics, units::parse_address);
            let (start, end) = (end("start"), end("end"));
            AddrRange::new(start?, end?)
                .map(FilterKind::Address)
                .or_else(|| diagnostics.fail(range.position, "the range is empty or reversed"))
        }
        "hugepage_size" => {
            let range = fields.require("hugepage_size", diagnostics)?;
            let sizes = range.list("two sizes", diagnostics, |node, diagnostics| {
                node.scalar(A_SIZE, diagnostics, units::parse_bytes)
            })?;
            match sizes.as_slice() {
                [min, max] if min <= max => Some(FilterKind::Pages(PageKind::Folio(*min, *max))),
                [_, _] => diagnostics.fail(range.position, "the sizes are reversed; write the lower one first"),
                _ => diagnostics.fail(range.position, format!("expected two sizes, found {}", sizes.len())),
            }
        }
        other => {
            let known = "anon, memcg, young, active, unmapped, hugepage_size and addr";
            let message = format!("isotherm has no filter {other:?} of damo; it has {known}");
            diagnostics.fail(type_node.position, message)
        }
    }
}
