//! Reads the memory nodes of the machine, and finds their tiers.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::{fs, io};

use isotherm_core::{Node, NodeId, TierError, Tiers};
use thiserror::Error;

const NODES: &str = "sys/devices/system/node";
const TIERS: &str = "sys/devices/virtual/memory_tiering";

/// Why the memory nodes cannot be read.
#[derive(Debug, Error)]
pub enum NodesError {
    /// The kernel has no NUMA.
    #[error(
        "{0} is missing: the kernel is built without NUMA, or /sys is not mounted (use a kernel with CONFIG_NUMA, and \
         mount /sys)"
    )]
    NoNuma(PathBuf),
    /// A file cannot be read.
    #[error("{path} cannot be read")]
    File {
        /// Its path.
        path: PathBuf,
        /// Why it cannot be read.
        source: io::Error,
    },
    /// A file has other contents than the kernel's documentation says.
    #[error("{path} cannot be understood: {text:?}")]
    Contents {
        /// Its path.
        path: PathBuf,
        /// A part of its contents.
        text: String,
    },
    /// A description of the tiers is wrong.
    #[error(transparent)]
    Described(#[from] TierError),
}

/// The memory tiers of the machine: as they are `described`, such as `0,1/2`; else as the kernel has them; else, where
/// it has none or puts all nodes into one, by processors and distances ([`Tiers::new`]). `root` stands for `/`.
///
/// # Errors
/// If the nodes or the kernel's tiers cannot be read, or the description is wrong.
pub fn tiers(root: &Path, described: Option<&str>) -> Result<Tiers, NodesError> {
    let nodes = memory_nodes(root)?;
    match described {
        Some(described) => Ok(Tiers::described(nodes, described)?),
        None => Ok(Tiers::new(nodes, &kernel_tiers(root)?)),
    }
}

/// The online nodes that have memory, by their numbers (Linux `Documentation/ABI/stable/sysfs-devices-node`). `root`
/// stands for `/`.
///
/// # Errors
/// If the kernel has no NUMA, or a file cannot be read or understood. A node that goes offline meanwhile is left out.
pub fn memory_nodes(root: &Path) -> Result<Vec<Node>, NodesError> {
    let directory = root.join(NODES);
    let online = list(&directory, "online")?;
    let mut nodes = Vec::new();
    for &id in &online {
        match node(&directory, id, &online) {
            Ok(node) => nodes.extend(node.filter(|node| node.size > 0)),
            Err(NodesError::File { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(nodes)
}

/// The numbers of the nodes that have memory, in ascending order (Linux
/// `Documentation/ABI/stable/sysfs-devices-node`). `root` stands for `/`.
///
/// # Errors
/// If the kernel has no NUMA, or the file cannot be read or understood.
pub fn nodes_with_memory(root: &Path) -> Result<Vec<NodeId>, NodesError> {
    list(&root.join(NODES), "has_memory")
}

/// The kernel's memory tiers, the fastest first; none if the kernel has no tiers (before Linux 6.1). `root` stands for
/// `/`. The faster a tier is, the smaller is its number (Linux
/// `Documentation/ABI/testing/sysfs-kernel-mm-memory-tiers`).
///
/// # Errors
/// If a file cannot be read or understood.
fn kernel_tiers(root: &Path) -> Result<Vec<Vec<NodeId>>, NodesError> {
    let directory = root.join(TIERS);
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|source| NodesError::File { path: directory.clone(), source })?,
    };
    let mut tiers = BTreeMap::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("memory_tier")?.parse::<u32>().ok());
        let Some(number) = number else { continue };
        let path = entry.path().join("nodelist");
        match fs::read_to_string(&path) {
            // The tier goes when its last node goes offline.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            text => _ = tiers.insert(number, ids(&path, text)?),
        }
    }
    Ok(tiers.into_values().filter(|tier| !tier.is_empty()).collect())
}

/// The numbers in a file that lists nodes.
fn list(directory: &Path, name: &str) -> Result<Vec<NodeId>, NodesError> {
    let path = directory.join(name);
    match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(NodesError::NoNuma(directory.into())),
        text => ids(&path, text),
    }
}

/// A node; `None` if its figures are missing, as of a node that has no memory.
fn node(directory: &Path, id: NodeId, online: &[NodeId]) -> Result<Option<Node>, NodesError> {
    let read = |name: &str| {
        let path = directory.join(format!("node{id}/{name}"));
        let text = fs::read_to_string(&path).map_err(|source| NodesError::File { path: path.clone(), source })?;
        Ok::<_, NodesError>((path, text))
    };
    let (_, meminfo) = read("meminfo")?;
    let (Some(size), Some(free)) = (meminfo_bytes(&meminfo, "MemTotal:"), meminfo_bytes(&meminfo, "MemFree:")) else {
        return Ok(None);
    };
    let (_, processors) = read("cpulist")?;
    let (path, text) = read("distance")?;
    let wrong = || NodesError::Contents { path: path.clone(), text: part(&text) };
    // The distances to the online nodes, in the order of their numbers.
    let distances: Result<Vec<u32>, _> = text.split_whitespace().map(str::parse).collect();
    let distances = distances.map_err(|_| wrong())?;
    if distances.len() != online.len() {
        return Err(wrong());
    }
    let distances = online.iter().copied().zip(distances).collect();
    Ok(Some(Node { id, size, free, has_processors: !processors.trim().is_empty(), distances }))
}

/// A figure of a line such as `Node 0 MemTotal:  1024 kB`, in bytes.
pub(crate) fn meminfo_bytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.split_once(name))?.1;
    let kib: u64 = rest.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1 << 10)
}

/// The numbers in a list such as `0-1,3`, in ascending order.
fn ids(path: &Path, text: io::Result<String>) -> Result<Vec<NodeId>, NodesError> {
    let text = text.map_err(|source| NodesError::File { path: path.into(), source })?;
    let wrong = || NodesError::Contents { path: path.into(), text: part(&text) };
    let mut ids = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else { return Err(wrong()) };
        if first > last || last - first > MOST_NODES {
            return Err(wrong());
        }
        ids.extend((first..=last).map(NodeId));
    }
    Ok(ids)
}

/// No kernel has more nodes (`MAX_NUMNODES`).
const MOST_NODES: u32 = 1024;

/// The beginning of a text, for an error.
fn part(text: &str) -> String {
    text.trim().chars().take(80).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::TierOrigin;

    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    /// A machine with these nodes: size and free memory in KiB, processors, distances.
    fn with_nodes(online: &str, nodes: &[(u32, u64, u64, &str, &str)]) -> tempfile::TempDir {
        let root = machine(&[("sys/devices/system/node/online", online)]);
        for (id, size, free, processors, distances) in nodes {
            let directory = root.path().join(format!("{NODES}/node{id}"));
            fs::create_dir_all(&directory).unwrap();
            let meminfo = format!("Node {id} MemTotal:  {size} kB\nNode {id} MemFree:  {free} kB\n");
            fs::write(directory.join("meminfo"), meminfo).unwrap();
            fs::write(directory.join("cpulist"), format!("{processors}\n")).unwrap();
            fs::write(directory.join("distance"), format!("{distances}\n")).unwrap();
        }
        root
    }

    #[test]
    fn the_nodes_with_memory_are_read() {
        let root = with_nodes(
            "0-1,3\n",
            &[(0, 2048, 1024, "0-3", "10 20 30"), (1, 0, 0, "4-7", "20 10 30"), (3, 4096, 4000, "", "30 30 10")],
        );
        let nodes = memory_nodes(root.path()).unwrap();
        let figures: Vec<_> = nodes.iter().map(|node| (node.id.0, node.size, node.free, node.has_processors)).collect();
        assert_eq!(figures, [(0, 2 << 20, 1 << 20, true), (3, 4 << 20, 4000 << 10, false)]);
        assert_eq!(nodes[1].distances, [(NodeId(0), 30), (NodeId(1), 30), (NodeId(3), 10)].into());
    }

    #[test]
    fn a_node_that_has_gone_offline_is_left_out() {
        let root = with_nodes("0-1\n", &[(0, 2048, 1024, "0", "10 20")]);
        assert_eq!(memory_nodes(root.path()).unwrap().len(), 1);
    }

    #[test]
    fn a_kernel_without_numa_and_wrong_contents_are_errors() {
        let none = memory_nodes(machine(&[]).path()).unwrap_err();
        assert!(matches!(none, NodesError::NoNuma(_)), "{none}");
        for online in ["x", "1-0", "0-99999999"] {
            let wrong = memory_nodes(with_nodes(online, &[]).path()).unwrap_err();
            assert!(wrong.to_string().contains(online), "{wrong}");
        }
        for distances in ["10", "10 x"] {
            let wrong = memory_nodes(with_nodes("0-1", &[(0, 1, 1, "0", distances)]).path()).unwrap_err();
            assert!(matches!(wrong, NodesError::Contents { .. }), "{wrong}");
        }
    }

    #[test]
    fn the_tiers_of_the_kernel_are_in_the_order_of_their_numbers() {
        let tier = |number: u32, nodes: &'static str| (format!("{TIERS}/memory_tier{number}/nodelist"), nodes);
        let files = [tier(22, "2"), tier(4, "0-1"), tier(100, "3,5"), tier(200, "")];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, nodes)| (path.as_str(), *nodes)).collect();
        let tiers = kernel_tiers(machine(&files).path()).unwrap();
        let ids = |ids: &[u32]| ids.iter().copied().map(NodeId).collect::<Vec<_>>();
        assert_eq!(tiers, [ids(&[0, 1]), ids(&[2]), ids(&[3, 5])]);
        assert!(kernel_tiers(machine(&[]).path()).unwrap().is_empty());
        assert!(kernel_tiers(machine(&[(&format!("{TIERS}/memory_tier4/nodelist"), "?")]).path()).is_err());
    }

    #[test]
    fn tiers_are_those_of_the_user_or_of_the_kernel_or_follow_from_processors_and_distances() {
        let root =
            with_nodes("0-2", &[(0, 9, 9, "0-3", "10 20 30"), (1, 9, 9, "", "20 10 20"), (2, 9, 9, "", "30 20 10")]);
        let found = |described| {
            let tiers = tiers(root.path(), described)?;
            Ok::<_, NodesError>((tiers.to_string(), tiers.origin()))
        };
        assert_eq!(found(None).unwrap(), ("0/1/2".into(), TierOrigin::Distances));
        assert_eq!(found(Some("0,2/1")).unwrap(), ("0,2/1".into(), TierOrigin::User));
        assert!(matches!(found(Some("0/1")), Err(NodesError::Described(TierError::Missing(NodeId(2))))));
        let has = |number: u32, nodes: &str| {
            let tier = root.path().join(format!("{TIERS}/memory_tier{number}"));
            fs::create_dir_all(&tier).unwrap();
            fs::write(tier.join("nodelist"), nodes).unwrap();
        };
        has(4, "0-2");
        assert_eq!(found(None).unwrap().1, TierOrigin::Distances, "the kernel does not know how fast they are");
        has(4, "0");
        has(22, "1-2");
        assert_eq!(found(None).unwrap(), ("0/1,2".into(), TierOrigin::Kernel));
    }

    #[test]
    fn this_machine_has_memory() {
        match memory_nodes(Path::new("/")) {
            Ok(nodes) => assert!(nodes.iter().all(|node| node.free <= node.size) && !nodes.is_empty(), "{nodes:?}"),
            Err(error) => assert!(matches!(error, NodesError::NoNuma(_)), "{error}"),
        }
    }
}
