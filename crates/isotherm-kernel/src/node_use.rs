//! Reads how much of a memory node is used, by all or by one cgroup.

use std::path::{Path, PathBuf};
use std::{fs, io};

use isotherm_core::NodeId;
use isotherm_core::scheme::NodePart;
use thiserror::Error;

use crate::nodes::meminfo_bytes;

/// Why the use of a node cannot be read, and how to fix it.
#[derive(Debug, Error)]
pub enum NodeUseError {
    /// The machine has no such node, or its kernel has no NUMA.
    #[error("there is no node {node}: {path} cannot be read (`ls /sys/devices/system/node` lists the nodes)")]
    NoNode {
        /// The node.
        node: NodeId,
        /// The file that has the size of its memory.
        path: PathBuf,
        /// Why it cannot be read.
        source: io::Error,
    },
    /// The node has no memory.
    #[error("node {0} has no memory")]
    Empty(NodeId),
    /// The cgroup does not exist, or the memory controller is not enabled for it.
    #[error(
        "the memory of the cgroup {cgroup} by node cannot be read from {path} (cgroup version 2 with the memory \
         controller is needed)"
    )]
    Cgroup {
        /// The cgroup.
        cgroup: String,
        /// Its file.
        path: PathBuf,
        /// Why it cannot be read.
        source: io::Error,
    },
}

/// The share of the memory of `part` that is used, 0 to 1. `root` stands for `/`.
///
/// Memory of a cgroup is its pages on LRU lists, as for the goals `node_memcg_used_bp` of the kernel's DAMON (Linux
/// `Documentation/mm/damon/design.rst`, "Aim-oriented Feedback-driven Auto-tuning").
///
/// # Errors
/// Fails if there is no such node or cgroup, or a file cannot be read.
pub fn node_used_share(root: &Path, part: &NodePart) -> Result<f64, NodeUseError> {
    let (text, total) = node_meminfo(root, part.node)?;
    let used = match &part.cgroup {
        None => total.saturating_sub(meminfo_bytes(&text, "MemFree:").unwrap_or(0)),
        Some(cgroup) => cgroup_bytes(root, cgroup, part.node)?,
    };
    Ok((used as f64 / total as f64).min(1.0))
}

/// The bytes of memory that a node has. `root` stands for `/`.
///
/// # Errors
/// Fails if there is no such node, or it has no memory.
pub fn node_size(root: &Path, node: NodeId) -> Result<u64, NodeUseError> {
    node_meminfo(root, node).map(|(_, total)| total)
}

/// The kernel's figures for the memory of a node, and the bytes that the node has, more than 0.
fn node_meminfo(root: &Path, node: NodeId) -> Result<(String, u64), NodeUseError> {
    let path = root.join(format!("sys/devices/system/node/node{node}/meminfo"));
    let text = fs::read_to_string(&path).map_err(|source| NodeUseError::NoNode { node, path, source })?;
    let total = meminfo_bytes(&text, "MemTotal:").filter(|&total| total > 0).ok_or(NodeUseError::Empty(node))?;
    Ok((text, total))
}

/// The bytes of a cgroup on LRU lists of this node.
fn cgroup_bytes(root: &Path, cgroup: &str, node: NodeId) -> Result<u64, NodeUseError> {
    let path = root.join("sys/fs/cgroup").join(cgroup.trim_start_matches('/')).join("memory.numa_stat");
    let text =
        fs::read_to_string(&path).map_err(|source| NodeUseError::Cgroup { cgroup: cgroup.into(), path, source })?;
    let field = format!("N{node}=");
    let lists = ["inactive_anon ", "active_anon ", "inactive_file ", "active_file "];
    let of_list = |line: &str| -> Option<u64> {
        lists.iter().find(|list| line.starts_with(**list))?;
        line.split_whitespace().find_map(|word| word.strip_prefix(&field))?.parse().ok()
    };
    Ok(text.lines().filter_map(of_list).sum())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    const MEMINFO: &str = "Node 1 MemTotal:        1000 kB\nNode 1 MemFree:          250 kB\n";
    const NUMA_STAT: &str = "anon N0=999 N1=999\ninactive_anon N0=1 N1=102400\nactive_anon N0=2 N1=102400\n\
                             inactive_file N0=3 N1=51200\nactive_file N0=4 N1=0\nunevictable N0=0 N1=777\n";

    fn root() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/devices/system/node/node1/meminfo", MEMINFO);
        write("sys/devices/system/node/node2/meminfo", "Node 2 MemTotal: 0 kB\nNode 2 MemFree: 0 kB\n");
        write("sys/fs/cgroup/a/b/memory.numa_stat", NUMA_STAT);
        root
    }

    fn used(node: u32, cgroup: Option<&str>) -> Result<f64, String> {
        let part = NodePart { node: NodeId(node), cgroup: cgroup.map(Into::into) };
        node_used_share(root().path(), &part).map_err(|error| error.to_string())
    }

    #[test]
    fn the_share_of_a_node_is_of_its_own_memory() {
        assert_eq!(used(1, None), Ok(0.75));
        assert_eq!(node_size(root().path(), NodeId(1)).unwrap(), 1000 << 10);
        assert_eq!(used(1, Some("/a/b")), Ok(0.25));
    }

    #[test]
    fn a_node_and_a_cgroup_that_do_not_exist_are_errors() {
        assert!(used(7, None).unwrap_err().contains("there is no node 7"));
        assert!(used(2, None).unwrap_err().contains("no memory"));
        assert!(used(1, Some("/c")).unwrap_err().contains("the cgroup /c"));
    }
}
