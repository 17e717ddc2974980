//! The list of memcgs and their generations.

use crate::cgroup::is_below;

/// A memory control group that the kernel accounts by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memcg {
    /// Its number in this list. It has no other meaning.
    pub id: u64,
    /// The path of its cgroup in the hierarchy that accounts memory: `/` for the root, and for all memory if the kernel
    /// accounts no cgroups.
    pub path: String,
    /// Its memory by node, in the order of the list.
    pub nodes: Vec<NodeGenerations>,
}

/// The generations of a memcg on one memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeGenerations {
    /// The number of the node.
    pub node: u32,
    /// The number of the youngest generation.
    pub youngest: u64,
}

/// The memcg that accounts the memory of a process of the cgroup at `path`: that of the cgroup itself, or of its
/// nearest ancestor that has one. `None` if two have this path, because one of them has been removed.
pub fn memcg_of<'a>(memcgs: &'a [Memcg], path: &str) -> Option<&'a Memcg> {
    let nearest = memcgs.iter().filter(|memcg| is_below(path, &memcg.path)).max_by_key(|memcg| memcg.path.len())?;
    let same = memcgs.iter().filter(|memcg| memcg.path == nearest.path).count();
    (same == 1).then_some(nearest)
}

/// Parses the list. The error is the line that is not as documented.
pub(super) fn parse(text: &str) -> Result<Vec<Memcg>, &str> {
    let mut memcgs: Vec<Memcg> = Vec::new();
    for line in text.lines() {
        let known = match line.trim_start().split_once(char::is_whitespace) {
            Some(("memcg", rest)) => memcg(rest).map(|memcg| memcgs.push(memcg)),
            Some(("node", rest)) => node(&mut memcgs, rest),
            Some((generation, _)) => youngest(&mut memcgs, generation),
            None if line.trim().is_empty() => Some(()),
            None => None,
        };
        known.ok_or(line)?;
    }
    // Without a generation there is nothing to age.
    memcgs.iter_mut().for_each(|memcg| memcg.nodes.retain(|node| node.youngest != NONE));
    Ok(memcgs)
}

/// Stands for the number of the youngest generation before one was read.
const NONE: u64 = u64::MAX;

/// A number and a path, which may be empty and may have blanks.
fn memcg(rest: &str) -> Option<Memcg> {
    let rest = rest.trim_start();
    let (id, path) = rest.split_once(' ').unwrap_or((rest, ""));
    let path = if path.is_empty() { "/" } else { path };
    Some(Memcg { id: id.parse().ok()?, path: path.into(), nodes: Vec::new() })
}

fn node(memcgs: &mut [Memcg], rest: &str) -> Option<()> {
    let node = rest.trim().parse().ok()?;
    memcgs.last_mut()?.nodes.push(NodeGenerations { node, youngest: NONE });
    Some(())
}

/// Generations are listed from the oldest to the youngest.
fn youngest(memcgs: &mut [Memcg], generation: &str) -> Option<()> {
    memcgs.last_mut()?.nodes.last_mut()?.youngest = generation.parse().ok()?;
    Some(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    const LIST: &str = "\
memcg     1 /
 node     0
          0       3568          0           0 
          1       3568        120        6510 
 node     1
          7         12          0           0 
memcg     4 /a b/c
 node     0
         24        488          0           0 
         25          4      16384           0 
memcg    65 /a b
";

    #[test]
    fn the_youngest_generation_is_the_last_of_each_node() {
        let memcgs = parse(LIST).unwrap();
        let of = |node, youngest| NodeGenerations { node, youngest };
        let expected = [(1, "/", vec![of(0, 1), of(1, 7)]), (4, "/a b/c", vec![of(0, 25)]), (65, "/a b", vec![])];
        let expected = expected.map(|(id, path, nodes)| Memcg { id, path: path.into(), nodes });
        assert_eq!(memcgs, expected);
    }

    #[test]
    fn without_cgroups_there_is_one_memcg_for_all_memory() {
        let memcgs = parse("memcg     0 \n node     0\n          3          1          2           3 \n").unwrap();
        assert_eq!((memcgs[0].path.as_str(), memcgs[0].nodes[0].youngest), ("/", 3));
        assert_eq!(memcg_of(&memcgs, "/any/thing"), Some(&memcgs[0]));
    }

    #[test]
    fn what_is_not_documented_is_an_error() {
        for line in ["memcg x /", " node x", "memcg", "          x          0", "          1          2"] {
            assert_eq!(parse(line).err(), Some(line));
        }
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn a_process_belongs_to_the_nearest_cgroup_that_is_accounted() {
        let mut memcgs = parse(LIST).unwrap();
        let id = |memcgs: &[Memcg], path| memcg_of(memcgs, path).map(|memcg| memcg.id);
        assert_eq!(id(&memcgs, "/a b/c"), Some(4));
        assert_eq!(id(&memcgs, "/a b/c/d/e"), Some(4));
        assert_eq!(id(&memcgs, "/a b/cd"), Some(65));
        assert_eq!(id(&memcgs, "/x"), Some(1));
        // One of two cgroups with the same path has been removed, and still has pages.
        memcgs.push(Memcg { id: 9, ..memcgs[1].clone() });
        assert_eq!(id(&memcgs, "/a b/c"), None);
    }
}
