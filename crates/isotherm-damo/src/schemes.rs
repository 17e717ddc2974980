//! The JSON (or YAML) of damo, DAMON's own tool: its schemes, as far as isotherm has the same.
//!
//! Whole configurations as `damo args damon` writes them are read, of which only the schemes are taken, and lists of schemes as
//! for `damo schemes`. What isotherm has not is an error, never left out silently. A number without a unit is in the unit that
//! the field's name tells.

use std::path::Path;
use std::time::Duration;

use isotherm_core::scheme::{
    ClosedInterval, Condition, Filter, FilterKind, Goal, HUGE_PAGE_SIZE, Metric, PageKind, Quota, Scheme, Watermarks,
    Weights,
};
use isotherm_core::{AddrRange, PAGE_SIZE};
use isotherm_scheme::form::{Fields, Names, Node, Value, action, at_least_one, flag, list, may_act, or, scalar, text};
use isotherm_scheme::units::{self, A_SHARE, A_SIZE, A_TIME};
use isotherm_scheme::{Complaints, Document};

/// Reads the schemes in a file: in isotherm's own forms, or in damo's.
///
/// # Errors
/// If it cannot be read, or if anything in it is wrong: all that is found wrong is told.
pub fn read_schemes(path: &Path) -> Result<Vec<Scheme>, Complaints> {
    parse_schemes(&path.display().to_string(), &isotherm_scheme::read_text(path)?)
}

/// Reads the schemes in `text`, in isotherm's own forms or in damo's; `file` is what errors call it.
///
/// # Errors
/// All that is found wrong, in the order of lines.
pub fn parse_schemes(file: &str, text: &str) -> Result<Vec<Scheme>, Complaints> {
    let document = Document::parse(file, text)?;
    match document.tree() {
        Some(root) if is_damos(root) => document.read(|complaints| schemes(root, complaints)),
        _ => document.schemes(),
    }
}

/// Whether a document is damo's.
fn is_damos(root: &Node) -> bool {
    let is_scheme = |node: &Node| node.get("access_pattern").is_some();
    let begins_with_one = |node: &Node| matches!(&node.value, Value::List(items) if items.iter().any(is_scheme));
    root.get("kdamonds").is_some()
        || root.get("contexts").is_some()
        || is_scheme(root)
        || begins_with_one(root)
        || root.get("schemes").is_some_and(begins_with_one)
}

/// The schemes of all contexts.
fn schemes(root: &Node, complaints: &mut Complaints) -> Vec<Scheme> {
    let mut nodes = Vec::new();
    gather(root, &mut nodes, complaints);
    let mut names = Names::default();
    let mut made = Vec::new();
    for node in nodes {
        let nth = made.len();
        made.push(scheme(node, nth, &mut names, complaints));
    }
    at_least_one(made, root.place, complaints)
}

/// The nodes of all schemes below `node`: of kdamonds, of their contexts, or of a list.
fn gather<'a>(node: &'a Node, into: &mut Vec<&'a Node>, complaints: &mut Complaints) {
    match &node.value {
        Value::Map(_) if node.get("access_pattern").is_some() => into.push(node),
        Value::Map(_) => {
            let inner = ["kdamonds", "contexts", "schemes"].into_iter().find_map(|name| Some((name, node.get(name)?)));
            match inner {
                Some((name, inner)) => match &inner.value {
                    Value::List(items) if name == "schemes" => into.extend(items),
                    Value::List(items) => items.iter().for_each(|item| gather(item, into, complaints)),
                    Value::Null => {}
                    _ => _ = list(inner, name, complaints),
                },
                None => _ = complaints.at::<()>(node.place, "expected damo's kdamonds, contexts or schemes"),
            }
        }
        Value::List(items) => into.extend(items),
        _ => _ = complaints.at::<()>(node.place, format!("expected a scheme of damo's, found {}", node.what())),
    }
}

/// Fields of a scheme; those that damo only writes are known, and say nothing.
const SCHEME: [&str; 15] = [
    "name",
    "action",
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

fn scheme(node: &Node, nth: usize, names: &mut Names, complaints: &mut Complaints) -> Option<Scheme> {
    let fields = Fields::open(node, "a scheme of damo's", &SCHEME, complaints)?;
    let given = fields.get("name").and_then(|node| Some((text(node, "a name", complaints)?, node.place)));
    let name = names.name(given, nth, node.place, complaints);

    let named = fields.need("action", complaints);
    let action = named.and_then(|node| scalar(node, "an action such as pageout", complaints, action));
    let inside = or(fields.get("inside"), false, |node| flag(node, complaints));
    if let (Some(action), Some(node), Some(inside)) = (action, named, inside) {
        may_act(action, inside, node.place, "write \"inside\": true beside it, which damo does not have,", complaints);
    }
    if let Some(node) = fields.get("max_nr_snapshots")
        && scalar(node, "a number", complaints, |text| Ok(text != "0"))?
    {
        return complaints.at(node.place, "isotherm has no max_nr_snapshots; end the run after a time with --duration");
    }
    let condition = fields.need("access_pattern", complaints).and_then(|node| condition(node, complaints));
    let micros = Duration::from_micros(1);
    let interval = or(fields.get("apply_interval_us"), None, |node| optional_time(node, micros, complaints));
    let quota = or(fields.get("quotas"), Quota::UNLIMITED, |node| quota(node, complaints));
    let watermarks = or(fields.get("watermarks"), None, |node| watermarks(node, complaints));
    let mut all = Some(Vec::new());
    for name in ["core_filters", "filters", "ops_filters"] {
        let some = or(fields.get(name), Vec::new(), |node| {
            let made: Vec<_> = list(node, "filters", complaints)?.iter().map(|node| filter(node, complaints)).collect();
            made.into_iter().collect()
        });
        all = all.zip(some).map(|(mut all, some)| {
            all.extend(some);
            all
        });
    }
    Some(Scheme {
        inside: inside?,
        apply_interval: interval?,
        quota: quota?,
        watermarks: watermarks?,
        filters: all?,
        ..Scheme::new(&name, condition?, action?)
    })
}

fn condition(node: &Node, complaints: &mut Complaints) -> Option<Condition> {
    let fields = Fields::open(node, "an access pattern", &["sz_bytes", "nr_accesses", "age"], complaints)?;
    let any = Condition::ANY;
    let size = or(fields.get("sz_bytes"), any.size, |node| pair(node, (0, u64::MAX), A_SIZE, complaints, units::size));
    let rate = or(fields.get("nr_accesses"), any.rate, |node| {
        pair(node, (0.0, 1.0), A_SHARE, complaints, |text| {
            if text.contains("sample") {
                return Err("a count of samples means another rate at other intervals; write it in percent".into());
            }
            // damo writes the highest number there is for no bound.
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            if digits == u64::MAX.to_string() { Ok(1.0) } else { units::share(text, Some(100.0)) }
        })
    });
    let age = or(fields.get("age"), any.age, |node| {
        pair(node, (Duration::ZERO, Duration::MAX), A_TIME, complaints, |text| {
            if text.contains("aggr") {
                return Err("a count of aggregations means another time at other intervals; write a time".into());
            }
            // With --raw damo writes nanoseconds here, where it reads microseconds: then no bound is this number.
            if text == "18446744073709551615000" {
                return Err(
                    "`damo --raw` writes times in another unit than it reads them; write the file without --raw".into(),
                );
            }
            let time = units::time(text, Some(Duration::from_micros(1)))?;
            Ok(if time >= Duration::from_micros(u64::MAX / 1000) { Duration::MAX } else { time })
        })
    });
    Some(Condition { size: size?, rate: rate?, age: age? })
}

fn pair<T: PartialOrd + Copy>(
    node: &Node,
    ends: (T, T),
    wanted: &str,
    complaints: &mut Complaints,
    read: impl Fn(&str) -> Result<T, String>,
) -> Option<ClosedInterval<T>> {
    let fields = Fields::open(node, "bounds", &["min", "max"], complaints)?;
    let mut end = |name| {
        let node = fields.need(name, complaints)?;
        scalar(node, wanted, complaints, |text| match text {
            "min" => Ok(ends.0),
            "max" => Ok(ends.1),
            text => read(text),
        })
    };
    let (min, max) = (end("min"), end("max"));
    ClosedInterval::new(min?, max?).or_else(|| complaints.at(node.place, "min is over max; exchange them"))
}

/// A time, of `bare` without a unit; none if it is zero or `max`.
fn optional_time(node: &Node, bare: Duration, complaints: &mut Complaints) -> Option<Option<Duration>> {
    scalar(node, A_TIME, complaints, |text| match text {
        "max" => Ok(None),
        text => units::time(text, Some(bare)).map(|time| (!time.is_zero()).then_some(time)),
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

fn quota(node: &Node, complaints: &mut Complaints) -> Option<Quota> {
    let fields = Fields::open(node, "quotas", &QUOTA, complaints)?;
    let millis = Duration::from_millis(1);
    let time = or(fields.get("time_ms"), None, |node| optional_time(node, millis, complaints));
    let bytes = or(fields.get("sz_bytes"), None, |node| {
        scalar(node, A_SIZE, complaints, |text| match text {
            "max" => Ok(None),
            text => units::size(text).map(|bytes| (bytes > 0).then_some(bytes)),
        })
    });
    let period = or(fields.get("reset_interval_ms"), None, |node| optional_time(node, millis, complaints));
    let weights = or(fields.get("weights"), Weights::DEFAULT, |node| weights(node, complaints));
    let goals = or(fields.get("goals"), Vec::new(), |node| {
        let made: Vec<_> = list(node, "goals", complaints)?.iter().map(|node| goal(node, complaints)).collect();
        made.into_iter().collect()
    });
    for name in ["fail_charge_num", "fail_charge_denom"] {
        if let Some(node) = fields.get(name)
            && !matches!(&node.value, Value::Text(text) if text == "0")
        {
            return complaints.at(node.place, "isotherm charges what was refused like what was done; write 0");
        }
    }
    if let Some(node) = fields.get("goal_tuner")
        && text(node, "a tuner", complaints)? != "consist"
    {
        return complaints.at(node.place, "isotherm has one way to tune a quota, which is nearest to damo's consist");
    }
    let (bytes, time, goals, weights, period) = (bytes?, time?, goals?, weights?, period?);
    if bytes.is_none() && time.is_none() && goals.is_empty() {
        return Some(Quota::UNLIMITED);
    }
    let Some(period) = period else {
        return complaints.at(node.place, "these quotas need reset_interval_ms, a time above zero");
    };
    Quota::new(bytes, time, period, weights, goals).map_err(|why| complaints.at::<()>(node.place, why.to_string())).ok()
}

/// Parts of a thousand: `5 %`, or a number of them.
fn permil(text: &str) -> Result<f64, String> {
    units::share(text, Some(1000.0))
}

fn weights(node: &Node, complaints: &mut Complaints) -> Option<Weights> {
    let fields = Fields::open(node, "weights", &["sz_permil", "nr_accesses_permil", "age_permil"], complaints)?;
    let mut weight = |name| {
        let read = |text: &str| permil(text).map(|share| (share * 1000.0).round() as u32);
        or(fields.get(name), 0, |node| scalar(node, A_SHARE, complaints, read))
    };
    let (size, rate, age) = (weight("sz_permil"), weight("nr_accesses_permil"), weight("age_permil"));
    // damo writes all of them as zero for weights that were not given.
    Some(Weights::new(size?, rate?, age?).unwrap_or(Weights::DEFAULT))
}

fn goal(node: &Node, complaints: &mut Complaints) -> Option<Goal> {
    let known = ["metric", "target_value", "current_value", "nid", "path", "complement"];
    let fields = Fields::open(node, "a goal", &known, complaints)?;
    let named = fields.need("metric", complaints)?;
    let metric = text(named, "a metric", complaints)?;
    if metric != "some_mem_psi_us" {
        let message = format!(
            "isotherm has no goal {metric:?} in damo's form; in its own (docs/schemes.md) it has psi_some, free_memory, \
             working_set_resident and fed"
        );
        return complaints.at(named.place, message);
    }
    let target = fields.need("target_value", complaints)?;
    let time = optional_time(target, Duration::from_micros(1), complaints)?;
    Goal::new(Metric::StallTime, time.unwrap_or_default().as_secs_f64())
        .map_err(|why| complaints.at::<()>(target.place, why.to_string()))
        .ok()
}

fn watermarks(node: &Node, complaints: &mut Complaints) -> Option<Option<Watermarks>> {
    let known = ["metric", "interval_us", "high_permil", "mid_permil", "low_permil"];
    let fields = Fields::open(node, "watermarks", &known, complaints)?;
    let named = fields.need("metric", complaints)?;
    match text(named, "a metric", complaints)? {
        "none" => return Some(None),
        "free_mem_rate" => {}
        other => return complaints.at(named.place, format!("expected none or free_mem_rate, found {other:?}")),
    }
    let every = fields.need("interval_us", complaints);
    let every = every.and_then(|node| optional_time(node, Duration::from_micros(1), complaints));
    let mut mark = |name| {
        let node = fields.need(name, complaints)?;
        scalar(node, A_SHARE, complaints, permil)
    };
    let (high, mid, low) = (mark("high_permil"), mark("mid_permil"), mark("low_permil"));
    let made = Watermarks::new(Metric::FreeMemory, every?.unwrap_or_default(), high?, mid?, low?);
    made.map_err(|why| complaints.at::<()>(node.place, why.to_string())).ok().map(Some)
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

fn filter(node: &Node, complaints: &mut Complaints) -> Option<Filter> {
    let fields = Fields::open(node, "a filter", &FILTER, complaints)?;
    let named = fields.need("filter_type", complaints)?;
    let kind = match text(named, "a type of filter", complaints)? {
        "anon" => FilterKind::Anonymous,
        "young" => FilterKind::Pages(PageKind::Young),
        "memcg" => {
            let path = text(fields.need("memcg_path", complaints)?, "a path", complaints)?;
            FilterKind::Cgroup(format!("/{}", path.trim_start_matches('/')).into())
        }
        "addr" => {
            let range = fields.need("address_range", complaints)?;
            let ends = Fields::open(range, "an address range", &["start", "end"], complaints)?;
            let mut end = |name| {
                let node = ends.need(name, complaints)?;
                scalar(node, "an address", complaints, |text| units::address(&text.replace(',', "")))
            };
            let (start, end) = (end("start"), end("end"));
            let empty = "this range is empty or reversed";
            FilterKind::Address(AddrRange::new(start?, end?).or_else(|| complaints.at(range.place, empty))?)
        }
        "hugepage_size" => {
            let range = fields.need("hugepage_size", complaints)?;
            let sizes: Vec<u64> = match list(range, "two sizes", complaints)? {
                [min, max] => [min, max].into_iter().map(|n| scalar(n, A_SIZE, complaints, units::size)).collect(),
                _ => None,
            }?;
            if sizes[0] <= PAGE_SIZE || sizes[0] > HUGE_PAGE_SIZE || sizes[1] < HUGE_PAGE_SIZE {
                return complaints
                    .at(range.place, "isotherm tells huge pages of 2 MiB from all others, and no other sizes");
            }
            FilterKind::Pages(PageKind::Huge)
        }
        other => {
            let message = format!(
                "isotherm has no filter {other:?}; it has anon, memcg, young, hugepage_size and addr of damo's"
            );
            return complaints.at(named.place, message);
        }
    };
    let matching = or(fields.get("matching"), true, |node| flag(node, complaints));
    let allow = fields.get("allow").or_else(|| fields.get("filter_pass"));
    let allow = or(allow, false, |node| flag(node, complaints));
    Some(Filter { kind, matching: matching?, allow: allow? })
}
