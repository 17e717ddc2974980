//! Names that programs of the machine keep in files: those of containers, and those of code that is made at run time.

use isotherm_kernel::{Selection, Selector};

use crate::bytes;
use crate::scratch::Scratch;

/// The ID of the container in which process 7 is.
const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

thread_local! {
    /// Process 7 in a container, process 8 in none. The files of all runtimes have the same contents.
    static ROOT: Scratch = {
        let files = Scratch::new("input");
        for (pid, cgroup) in [(7, format!("docker/{ID}")), (8, "system.slice".into())] {
            let directory = files.path(&format!("proc/{pid}"));
            std::fs::create_dir_all(&directory).expect("a temporary directory can be written");
            let write = |name: &str, content: String| {
                std::fs::write(directory.join(name), content).expect("a temporary directory can be written");
            };
            write("comm", "server\n".into());
            write("stat", format!("{pid} (server) S 1"));
            write("cmdline", "server\0".into());
            write("cgroup", format!("0::/{cgroup}\n"));
        }
        files.link(&format!("var/lib/docker/containers/{ID}/config.v2.json"));
        files.link("var/lib/containers/storage/overlay-containers/containers.json");
        files
    };
}

/// The processes of the container with this name, where the files of container runtimes hold `data`.
fn in_container(name: &str, data: &[u8]) -> Vec<u32> {
    ROOT.with(|files| {
        files.input(data);
        let selection = Selection { any: vec![Selector::Container(name.into())], ..Selection::default() };
        selection.find(&files.path("")).expect("the processes can be listed")
    })
}

/// Looks for a container by its name in the JSON of Docker and Podman.
///
/// # Panics
/// If the reader panics, or a process is found that is in no container.
pub fn container_names(data: &[u8]) {
    let found = in_container("web", data);
    assert!(found.is_empty() || found == [7], "{found:?}");
    // The ID is that of the cgroup, whatever the files hold.
    assert_eq!(in_container(&ID[..12], data), [7]);
}

/// Reads the names of the functions that a just-in-time compiler has written.
///
/// # Panics
/// If the reader panics, or a function is found that no line names.
pub fn perf_map(data: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        let map = isotherm_probes::stacks::PerfMap::parse(data);
        for address in [0, 1, 0x1000, 0x7f00_0000_0010, u64::MAX] {
            if let Some((name, offset)) = map.find(address) {
                assert!(!name.is_empty() && offset <= address, "{name:?} {offset} {address}");
                let start = format!("{:x}", address - offset);
                let text = String::from_utf8_lossy(data).to_lowercase();
                assert!(text.contains(&start), "{start} in {text:?}");
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = data;
}

pub(crate) fn container_seeds() -> Vec<Vec<u8>> {
    bytes(&[
        r#"{"ID": "x", "State": {"Running": true, "Pid": 7}, "Name": "/web", "Config": {"Labels": {"a": "b"}}}"#,
        &format!(r#"[{{"id": "{ID}", "names": ["cache", "web"], "layer": "x"}}, {{"id": "9", "names": null}}, {{}}]"#),
        "[]",
    ])
}

pub(crate) fn perf_map_seeds() -> Vec<Vec<u8>> {
    bytes(&[
        "7f0000000000 20 LazyCompile:~main /srv/app.js:1\n7f0000000040 8 Stub:CEntry\n",
        "1000 10 void org.example.Main.main(java.lang.String[])\r\n1000 20 again\n0 1 null\n",
        "ffffffffffffffff 1 py::<module>:/srv/app.py\n",
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_name_the_container() {
        let found: Vec<_> = container_seeds().iter().map(|seed| in_container("web", seed)).collect();
        assert_eq!(found, [vec![7], vec![7], vec![]]);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_seeds_name_functions() {
        let found = perf_map_seeds().into_iter().zip([0x7f00_0000_0010, 0x1000, u64::MAX]).map(|(seed, address)| {
            isotherm_probes::stacks::PerfMap::parse(&seed).find(address).map(|(name, _)| name.into_owned())
        });
        let expected = ["LazyCompile:~main /srv/app.js:1", "again", "py::<module>:/srv/app.py"];
        assert_eq!(found.collect::<Vec<_>>(), expected.map(|name| Some(name.to_owned())));
    }
}
