//! Advice on the memory of cgroups: requests and limits for Kubernetes, beside what is in force, with the reason.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use isotherm_kernel::cgroup::{self, CgroupMemory, CgroupVersion, Hierarchy};
use isotherm_kernel::{Containers, system_memory};
use isotherm_report::right_size::{CgroupNeeds, Charged, RightSize, needs, right_size};
use isotherm_report::{ReportError, Selection, Source};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What pages count as that the processes of a cgroup share, if that is not known.
const COUNTED_AGAIN: &str = "Pages that its processes share count for each of them, so that it may need less.";

/// How much memory a cgroup should have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Advice {
    /// The group that it is about.
    pub group: String,
    /// The path of the cgroup. `None` if it is not known.
    pub cgroup: Option<String>,
    /// The container, its pod and the namespace of that, if they are known.
    pub container: Option<String>,
    /// The pod.
    pub pod: Option<String>,
    /// The namespace of the pod.
    pub namespace: Option<String>,
    /// What is in force.
    pub now: LimitsInForce,
    /// The resources of a container, as Kubernetes writes them. `None` if there is no advice.
    pub resources: Option<Resources>,
    /// How much memory is needed, and why.
    pub size: Option<RightSize>,
    /// Why there is no advice.
    pub withheld: Option<String>,
}

/// Requests and limits of a container, as Kubernetes writes them: `memory: 474Mi`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// What the container gets in any case.
    pub requests: BTreeMap<String, String>,
    /// What it must not exceed.
    pub limits: BTreeMap<String, String>,
}

/// What a cgroup has, and may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitsInForce {
    /// The version of the hierarchy. `None` if nothing can be read.
    pub version: Option<u8>,
    /// Bytes that are charged: `memory.current`, in version 1 `memory.usage_in_bytes`.
    pub current_bytes: Option<u64>,
    /// `memory.high`. `None` if there is no limit, and in version 1.
    pub high_bytes: Option<u64>,
    /// `memory.max`, in version 1 `memory.limit_in_bytes`. `None` if there is no limit.
    pub max_bytes: Option<u64>,
    /// The lowest such limit of the cgroup and of those above it.
    pub lowest_bytes: Option<u64>,
}

/// The advice on each cgroup of a recording or a history that is there now, below `root`, which stands for `/`. The
/// working set is that within `window`.
///
/// # Errors
/// If the source cannot be read.
pub fn advise(
    root: &Path,
    source: &dyn Source,
    selection: &Selection,
    window: Duration,
    containers: &Containers,
) -> Result<Vec<Advice>, ReportError> {
    let hierarchy = Hierarchy::find(root).ok();
    let accounting = |path: &str| {
        let found = hierarchy.as_ref().filter(|of| of.version() == CgroupVersion::V2);
        let found = found.and_then(|hierarchy| CgroupMemory::open(hierarchy, path).ok());
        found.map_or_else(|| path.to_owned(), |cgroup| cgroup.path().to_owned())
    };
    let all = needs(source, selection, window, &accounting)?;
    let on_each = all.iter().filter_map(|of| on_cgroup(root, hierarchy.as_ref(), of, window, containers));
    Ok(on_each.collect())
}

/// The advice on a cgroup. `None` if it is not there any more.
fn on_cgroup(
    root: &Path,
    hierarchy: Option<&Hierarchy>,
    of: &CgroupNeeds,
    window: Duration,
    containers: &Containers,
) -> Option<Advice> {
    let mut advice = Advice { cgroup: of.path.clone(), ..Advice::default() };
    let mut charged = Charged::default();
    if let (Some(path), Some(hierarchy)) = (&of.path, hierarchy) {
        let found = cgroup::memory_limits(hierarchy, path);
        if found.is_none() && hierarchy.directory().is_some() {
            return None;
        }
        let found = found.unwrap_or_default();
        advice.now = LimitsInForce {
            version: Some(hierarchy.version().number()),
            current_bytes: found.current,
            high_bytes: found.high,
            max_bytes: found.max,
            lowest_bytes: found.lowest.map(|(_, bytes)| bytes),
        };
        charged.current = found.current;
        if let Some(charges) = cgroup::charges(hierarchy, path) {
            charged.unmapped = Some(charges.unmapped_cache.saturating_add(charges.kernel));
            charged.pressure = charges.pressure;
            let has_room = system_memory(root).ok().map(|memory| charges.may_swap && memory.swap_free > 0);
            charged.unswappable = has_room.map(|has_room| if has_room { 0 } else { charges.anonymous });
        }
        if let Some(names) = containers.names_in(path) {
            advice.container = Some(names.container);
            (advice.pod, advice.namespace) = (names.pod, names.namespace);
        }
    }
    match right_size(&of.needs, window, &charged) {
        Ok(mut size) => {
            size.unknown.extend((!of.counted_once).then(|| COUNTED_AGAIN.to_owned()));
            advice.resources = Some(Resources::new(&size));
            advice.size = Some(size);
        }
        Err(why) => advice.withheld = Some(why),
    }
    Some(advice)
}

impl Resources {
    fn new(size: &RightSize) -> Self {
        let memory = |bytes: u64| BTreeMap::from([("memory".into(), quantity(bytes))]);
        Self { requests: memory(size.request_bytes), limits: memory(size.limit_bytes) }
    }
}

/// A size as Kubernetes writes it, in whole mebibytes, rounded up.
fn quantity(bytes: u64) -> String {
    format!("{}Mi", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_report::right_size::{Need, WINDOW};

    use super::*;

    const MIB: u64 = 1 << 20;

    /// An hour and a half in which `/a` needed 400 MiB.
    fn needed() -> CgroupNeeds {
        let minute = Duration::from_secs(60);
        let need = |nth| Need { time: minute * nth, held: minute, bytes: 400 * MIB };
        CgroupNeeds { path: Some("/a".into()), counted_once: true, needs: (0..90).map(need).collect() }
    }

    #[test]
    fn advice_is_beside_what_is_in_force_and_says_what_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/self/cgroup", "0::/\n");
        write("proc/self/mountinfo", "30 1 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
        std::fs::create_dir_all(root.path().join("cg")).unwrap();
        let containers = Containers::new(root.path());
        let hierarchy = Hierarchy::find(root.path()).unwrap();
        let of = |needed: &CgroupNeeds| on_cgroup(root.path(), Some(&hierarchy), needed, WINDOW, &containers);
        assert_eq!(of(&needed()), None, "it is not there any more");

        write("cg/a/memory.current", &(900 * MIB).to_string());
        write("cg/a/memory.max", &(2048 * MIB).to_string());
        write("cg/a/memory.high", "max\n");
        write("cg/a/memory.stat", &format!("anon {}\nkernel {}\nfile 0\n", 500 * MIB, 10 * MIB));
        let advice = of(&needed()).unwrap();
        assert_eq!(
            advice.now,
            LimitsInForce {
                version: Some(2),
                current_bytes: Some(900 * MIB),
                high_bytes: None,
                max_bytes: Some(2048 * MIB),
                lowest_bytes: Some(2048 * MIB),
            }
        );
        // 410 MiB and 15 %.
        assert_eq!(
            serde_json::to_string(&advice.resources).unwrap(),
            "{\"requests\":{\"memory\":\"472Mi\"},\"limits\":{\"memory\":\"472Mi\"}}"
        );
        assert!(advice.size.unwrap().confidence.starts_with("low: 1 h 30 min"));
        // A cgroup that may not use swap has none.
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
        write("proc/meminfo", &meminfo);
        write("cg/a/memory.swap.max", "0\n");
        let advice = of(&needed()).unwrap();
        assert_eq!(advice.resources.unwrap().requests["memory"], "587Mi");
        let short = CgroupNeeds { needs: needed().needs[..50].to_vec(), ..needed() };
        let advice = of(&short).unwrap();
        assert!(advice.resources.is_none() && advice.withheld.unwrap().contains("at least 1 h are needed"));
    }

    #[test]
    fn sizes_are_whole_mebibytes_as_kubernetes_writes_them() {
        assert_eq!([0, 1, 474 * MIB, 474 * MIB + 1].map(quantity), ["0Mi", "1Mi", "474Mi", "475Mi"]);
    }
}
