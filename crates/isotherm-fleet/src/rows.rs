//! The rows of the minutes of a host.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use isotherm_core::survey::{NodeSums, PageSums, WINDOWS};
use isotherm_core::{TargetId, unit_in};
use isotherm_record::{Cost, Host};

use crate::classes::Classes;
use crate::minutes::{Done, Minute};
use crate::row::{Row, int, kind};

/// What a cgroup is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The container.
    pub container: Option<Arc<str>>,
    /// Its pod.
    pub pod: Option<Arc<str>>,
    /// The namespace of the pod.
    pub namespace: Option<Arc<str>>,
}

/// Says what the cgroup with this path is called.
pub type NamesOf<'a> = &'a dyn Fn(&str) -> Names;

/// The service of what services share with each other.
pub(crate) const SHARED_SERVICE: &str = "(shared)";

/// Figures that can be below zero: differences of sums.
type Signed = BTreeMap<Option<i64>, Figures>;

/// A program in a cgroup.
type Program = (Option<Arc<str>>, Arc<str>);

/// The figures of a row that come from a survey.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    present: i64,
    touched: i64,
    unobservable: i64,
    unknown: i64,
    swapped: i64,
    swapped_is_known: bool,
    swapped_is_bound: bool,
    lazily_freed: i64,
    within: [i64; WINDOWS.len()],
}

impl From<&PageSums> for Figures {
    fn from(sums: &PageSums) -> Self {
        let PageSums { figures, kinds, within, .. } = sums;
        Self {
            present: int(figures.present),
            touched: int(figures.touched),
            unobservable: int(figures.unobservable),
            unknown: int(figures.unknown),
            swapped: int(figures.swapped.least()),
            swapped_is_known: !figures.swapped.is_unknown(),
            swapped_is_bound: figures.swapped.is_bound(),
            lazily_freed: int(kinds.lazily_freed),
            within: within.map(int),
        }
    }
}

impl Figures {
    /// Adds figures, or subtracts them. What is known of swap is known of the sum.
    fn add(&mut self, other: &Self, sign: i64) {
        self.present += sign * other.present;
        self.touched += sign * other.touched;
        self.unobservable += sign * other.unobservable;
        self.unknown += sign * other.unknown;
        self.swapped += sign * other.swapped;
        self.swapped_is_known |= other.swapped_is_known;
        self.swapped_is_bound |= other.swapped_is_bound;
        self.lazily_freed += sign * other.lazily_freed;
        for (sum, bytes) in self.within.iter_mut().zip(other.within) {
            *sum += sign * bytes;
        }
    }
}

/// Adds sums, by node where the nodes are known. What no node has is without a node.
fn add_by_node(to: &mut Signed, sums: &PageSums, nodes: &[NodeSums]) {
    let mut rest = Figures::from(sums);
    for NodeSums { node, sums } in nodes {
        // Swap is not on a node.
        let on_node = Figures { swapped: 0, swapped_is_known: true, swapped_is_bound: false, ..Figures::from(sums) };
        to.entry(Some(int(node.0))).or_default().add(&on_node, 1);
        rest.add(&Figures { swapped_is_known: false, ..on_node }, -1);
    }
    to.entry(None).or_default().add(&rest, 1);
}

/// The rows of one minute of a host.
pub(crate) fn rows(host: &Host, minute: i64, groups: &BTreeMap<Arc<str>, &Minute>, names: NamesOf) -> Vec<Row> {
    let basis =
        Row { minute, host_name: host.name.as_str().into(), boot: host.boot_id.as_str().into(), ..Row::default() };
    let mut found = Vec::new();
    // A process that several groups watch counts in the smallest one.
    let mut by_size: Vec<_> = groups.iter().collect();
    by_size.sort_by_key(|(_, of)| of.surveyed().count());
    let mut claimed = HashSet::new();
    let mut inner: Vec<(HashSet<TargetId>, Signed)> = Vec::new();
    for (group, of) in by_size {
        let basis = Row { group_name: Arc::clone(group), service: Arc::clone(group), ..basis.clone() };
        if of.has_survey {
            let mut own: HashMap<Program, (Signed, Classes)> = HashMap::new();
            for (id, target) in of.surveyed() {
                if claimed.insert(*id) {
                    let cgroup = target.info.cgroup.as_deref().map(Arc::from);
                    let (sums, classes) = own.entry((cgroup, program(&target.info.command))).or_default();
                    add_by_node(sums, &target.sums, &target.by_node);
                    classes.add(&target.classes);
                }
            }
            for ((cgroup, command), (sums, classes)) in own {
                let row = Row {
                    kind: kind::MEMORY.into(),
                    command: Some(command),
                    ..in_cgroup(&basis, cgroup.as_ref(), names)
                };
                let mut rows = with_sums(&row, of, &sums);
                // Frequencies are not known by node. Each row of memory has one without a node.
                rows.iter_mut().filter(|row| row.node.is_none()).for_each(|row| classes.fill(row));
                found.append(&mut rows);
            }
            found.push(shared(&basis, of, &mut inner, names));
        }
        found.push(of_group(&basis, of, names));
    }
    if let Some(system) = groups.values().find_map(|of| of.system) {
        found.push(Row {
            kind: kind::HOST.into(),
            service: "".into(),
            host_memory_bytes: Some(int(system.total)),
            host_available_bytes: Some(int(system.available)),
            host_swapped_bytes: Some(int(system.swap_total.saturating_sub(system.swap_free))),
            ..basis
        });
    }
    found.sort();
    found
}

/// What the rows of the memory of a group, and of the groups within it, count more than once.
fn shared(basis: &Row, of: &Minute, inner: &mut Vec<(HashSet<TargetId>, Signed)>, names: NamesOf) -> Row {
    let row = match one_cgroup(of) {
        Some(cgroup) => in_cgroup(basis, Some(&cgroup), names),
        None => Row { service: SHARED_SERVICE.into(), ..basis.clone() },
    };
    let row = Row { kind: kind::SHARED.into(), ..row };
    let Some(total) = of.total else {
        return Row { shared_unknown: i64::from(of.surveyed().count() > 1), ..row };
    };
    let mut excess = Figures::from(&total);
    of.surveyed().for_each(|(_, target)| excess.add(&Figures::from(&target.sums), -1));
    // The total does not say of which memory it is not known whether it was accessed.
    excess.unknown = 0;
    let ids: HashSet<TargetId> = of.surveyed().map(|(id, _)| *id).collect();
    for (_, theirs) in inner.iter().filter(|(theirs, _)| theirs.is_subset(&ids)) {
        theirs.values().for_each(|figures| excess.add(figures, -1));
    }
    // All sums are on the row without a node: processes and the total need not know the same nodes.
    excess.swapped_is_bound = false;
    excess.swapped_is_known = total.figures.swapped.known().is_some()
        && of.surveyed().all(|(_, target)| target.sums.figures.swapped.known().is_some());
    let sums = Signed::from([(None, excess)]);
    let mut rows = with_sums(&row, of, &sums);
    inner.push((ids, sums));
    rows.pop().unwrap_or(row)
}

/// The cgroup of all targets. `None` if there are several.
fn one_cgroup(of: &Minute) -> Option<Arc<str>> {
    let mut all = of.surveyed().map(|(_, target)| target.info.cgroup.as_deref());
    let first = all.next()??;
    all.all(|other| other == Some(first)).then(|| first.into())
}

fn of_group(basis: &Row, of: &Minute, names: NamesOf) -> Row {
    let cgroup = of.limit.as_ref().map(|(path, _)| Arc::clone(path)).or_else(|| one_cgroup(of));
    let mut row = Row { kind: kind::GROUP.into(), ..in_cgroup(basis, cgroup.as_ref(), names) };
    row.limit_bytes = of.limit.as_ref().map(|(_, bytes)| int(*bytes));
    if let Some(Done { freed, watched, returned, moved }) = of.done {
        row.freed_bytes = Some(int(freed));
        row.watched_bytes = Some(int(watched));
        row.returned_bytes = Some(int(returned));
        row.moved_bytes = Some(int(moved));
    }
    if let Some(Cost { holds_ns, reads, clears, .. }) = of.cost {
        row.cpu_ns = of.cost.map(|cost| int(cost.cpu_time().as_nanos()));
        row.holds_ns = holds_ns.map(int);
        row.reads = Some(int(reads));
        row.clears = Some(int(clears));
    }
    row
}

/// The row with the names of a cgroup.
fn in_cgroup(basis: &Row, cgroup: Option<&Arc<str>>, names: NamesOf) -> Row {
    let Some(cgroup) = cgroup else { return basis.clone() };
    let Names { container, pod, namespace } = names(cgroup);
    let service = match (&container, &namespace) {
        (Some(container), Some(namespace)) => format!("{namespace}/{container}").into(),
        (Some(container), None) => Arc::clone(container),
        (None, _) => unit_in(cgroup).map_or_else(|| Arc::clone(&basis.service), Arc::from),
    };
    Row { service, container, pod, namespace, cgroup: Some(Arc::clone(cgroup)), ..basis.clone() }
}

/// A row for each node.
fn with_sums(basis: &Row, of: &Minute, sums: &Signed) -> Vec<Row> {
    let row = |(node, figures): (&Option<i64>, &Figures)| {
        let within = |nth: usize| (of.watched >= WINDOWS[nth]).then_some(figures.within[nth]);
        Row {
            node: *node,
            present_bytes: Some(figures.present),
            touched_bytes: Some(figures.touched),
            unobservable_bytes: Some(figures.unobservable),
            unknown_bytes: Some(figures.unknown),
            swapped_bytes: figures.swapped_is_known.then_some(figures.swapped),
            swapped_bounds: figures.swapped_is_bound.into(),
            lazily_freed_bytes: Some(figures.lazily_freed),
            within_1s_bytes: within(0),
            within_2s_bytes: within(1),
            within_5s_bytes: within(2),
            within_10s_bytes: within(3),
            within_30s_bytes: within(4),
            within_60s_bytes: within(5),
            within_120s_bytes: within(6),
            within_300s_bytes: within(7),
            within_600s_bytes: within(8),
            within_1800s_bytes: within(9),
            ..basis.clone()
        }
    };
    sums.iter().map(row).collect()
}

/// The name of the program of a command line.
fn program(command: &str) -> Arc<str> {
    if command == "physical memory" {
        return command.into();
    }
    let first = command.split(' ').next().unwrap_or_default();
    first.rsplit('/').next().unwrap_or_default().into()
}
