//! Containers, by the cgroups that their runtimes make, and by the files in which these keep their names.
//!
//! | runtime | a part of the cgroup's path | names |
//! |---|---|---|
//! | Docker | `docker-ID.scope`, `docker/ID` | `/var/lib/docker/containers/ID/config.v2.json` |
//! | Podman | `libpod-ID.scope`, `libpod-ID` | `/var/lib/containers/storage/*-containers/containers.json` |
//! | containerd, CRI-O | `cri-containerd-ID.scope`, `crio-ID.scope`, `ID` | those of Kubernetes or nerdctl |
//! | containerd (ctr) | `NAMESPACE/NAME` | `/run/containerd/io.containerd.runtime.v2.task/NAMESPACE/NAME` |
//! | nerdctl | `nerdctl-ID.scope` | `/var/lib/nerdctl/HASH/names/NAMESPACE/NAME` |
//! | Kubernetes | `kubepods-…-podUID.slice`, `podUID` | `/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log` |
//! | LXC, Incus | `lxc.payload.NAME` | the cgroup's |
//! | systemd-nspawn | `machine-NAME.scope` | the cgroup's |
//!
//! An ID has 64 hexadecimal digits. A client of containerd may choose another one, which is a name here.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use isotherm_core::text_of;
use isotherm_input::Input;

/// An ID is named by this many of its first characters, or more.
const LEAST_OF_ID: usize = 4;

/// A file of a runtime that is larger is not read.
const LARGEST_FILE: u64 = 16 << 20;

/// What a container is called, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerNames {
    /// Its name, or the first characters of its ID.
    pub container: String,
    /// The pod, in Kubernetes: its name, or its UID.
    pub pod: Option<String>,
    /// The namespace of the pod.
    pub namespace: Option<String>,
}

/// So many characters of an ID stand for it, as runtimes show it.
const SHOWN_OF_ID: usize = 12;

/// The containers of the machine.
#[derive(Debug)]
pub struct Containers {
    root: PathBuf,
    /// The names of a container, by its ID.
    names: RefCell<HashMap<String, Vec<String>>>,
}

impl Containers {
    /// Those of the machine whose `/` is `root`.
    pub fn new(root: &Path) -> Self {
        Self { root: root.into(), names: RefCell::default() }
    }

    /// Forgets the names, which may change.
    pub fn forget(&self) {
        self.names.borrow_mut().clear();
    }

    /// What the innermost container is called that the cgroup at `path` belongs to. `None` if it is that of none.
    pub fn names_in(&self, path: &str) -> Option<ContainerNames> {
        let mut found: Option<ContainerNames> = None;
        let mut pod_uid = None;
        for part in path.split('/') {
            if let Some(name) = name_in(part) {
                found = Some(ContainerNames { container: name, ..ContainerNames::default() });
            } else if let Some(uid) = pod_in(part) {
                pod_uid = Some(uid);
            } else if let Some(id) = id_in(part) {
                found = Some(self.names_of_container(id, pod_uid.take()));
            }
        }
        found
    }

    fn names_of_container(&self, id: &str, pod_uid: Option<String>) -> ContainerNames {
        if let Some([pod, namespace, container]) = self.in_kubernetes(id).next() {
            return ContainerNames { container, pod: Some(pod), namespace: Some(namespace) };
        }
        let mut known = self.names.borrow_mut();
        let names = known.entry(id.into()).or_insert_with(|| self.names_of(id));
        let container = names.first().map_or_else(|| id.chars().take(SHOWN_OF_ID).collect(), String::clone);
        ContainerNames { container, pod: pod_uid, namespace: None }
    }

    /// The names of the pod, the namespace and the container that kubelet has for a container.
    fn in_kubernetes(&self, id: &str) -> impl Iterator<Item = [String; 3]> {
        let suffix = format!("-{id}.log");
        self.entries("var/log/containers").into_iter().filter_map(move |log| {
            let name = log.rsplit('/').next()?.strip_suffix(&suffix)?;
            let parts: Vec<String> = name.split('_').map(String::from).collect();
            parts.try_into().ok()
        })
    }

    /// Whether the cgroup at `path` is that of the container or pod that `wanted` names, or lies below it.
    pub(super) fn is_in(&self, path: &str, wanted: &str) -> bool {
        let mut above = "";
        path.split('/').any(|part| {
            if part == wanted && self.has_task(above, part) {
                return true;
            }
            above = part;
            if let Some(name) = name_in(part) {
                return name == wanted;
            }
            if let Some(uid) = pod_in(part) {
                return uid == wanted.replace('_', "-");
            }
            let Some(id) = id_in(part) else { return false };
            wanted.len() >= LEAST_OF_ID && id.starts_with(wanted) || self.has_name(id, wanted)
        })
    }

    /// Whether containerd runs a container of this name in this namespace.
    fn has_task(&self, namespace: &str, name: &str) -> bool {
        let tasks = self.root.join("run/containerd/io.containerd.runtime.v2.task");
        !namespace.is_empty() && tasks.join(namespace).join(name).is_dir()
    }

    fn has_name(&self, id: &str, wanted: &str) -> bool {
        let mut known = self.names.borrow_mut();
        let names = known.entry(id.into()).or_insert_with(|| self.names_of(id));
        names.iter().any(|name| name == wanted)
    }

    /// The names that runtimes know a container by.
    fn names_of(&self, id: &str) -> Vec<String> {
        let mut names = Vec::new();
        if let Some(config) = self.json(&format!("var/lib/docker/containers/{id}/config.v2.json")) {
            names.extend(config["Name"].as_str().map(|name| name.trim_start_matches('/').to_owned()));
        }
        for driver in ["overlay", "btrfs", "vfs", "zfs"] {
            let list = self.json(&format!("var/lib/containers/storage/{driver}-containers/containers.json"));
            for container in list.iter().filter_map(|list| list.as_array()).flatten() {
                if container["id"] == id {
                    let all = container["names"].as_array().into_iter().flatten();
                    names.extend(all.filter_map(|name| name.as_str()).map(String::from));
                }
            }
        }
        // nerdctl has a file for each name, which holds the ID.
        for hash in self.entries("var/lib/nerdctl") {
            for namespace in self.entries(&format!("{hash}/names")) {
                for name in self.entries(&namespace) {
                    if self.text(&name).is_some_and(|content| content.trim() == id) {
                        names.extend(name.rsplit('/').next().map(String::from));
                    }
                }
            }
        }
        for [pod, namespace, container] in self.in_kubernetes(id) {
            names.extend([format!("{namespace}/{pod}"), pod, container]);
        }
        names
    }

    fn text(&self, path: &str) -> Option<String> {
        Input::new(&self.root.join(path)).limited_to(LARGEST_FILE).text().ok()
    }

    fn json(&self, path: &str) -> Option<serde_json::Value> {
        serde_json::from_str(&self.text(path)?).ok()
    }

    /// The paths of the entries of a directory, relative to the root.
    fn entries(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(directory)).into_iter().flatten().flatten();
        entries.map(|entry| format!("{directory}/{}", text_of(entry.file_name().as_bytes()))).collect()
    }
}

/// The ID of the container in a part of a cgroup's path: 64 hexadecimal digits at its end. The monitors of containers
/// (conmon) have cgroups of their own, which are left out.
fn id_in(part: &str) -> Option<&str> {
    let part = part.strip_suffix(".scope").unwrap_or(part);
    if part.contains("conmon") {
        return None;
    }
    let id = part.rsplit(['-', ':']).next()?;
    (id.len() == 64 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))).then_some(id)
}

/// The UID of the pod in a part of a cgroup's path, with hyphens.
fn pod_in(part: &str) -> Option<String> {
    let part = part.strip_suffix(".slice").unwrap_or(part);
    let (_, uid) = part.rsplit_once("pod").filter(|(before, _)| before.is_empty() || before.ends_with('-'))?;
    let is_uid = uid.len() >= 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'-' | b'_'));
    is_uid.then(|| uid.replace('_', "-"))
}

/// The name of the container in a part of a cgroup's path, where it is there itself.
fn name_in(part: &str) -> Option<String> {
    if let Some(name) = part.strip_prefix("lxc.payload.") {
        return Some(name.into());
    }
    let name = part.strip_prefix("machine-")?.strip_suffix(".scope")?;
    // systemd writes a hyphen of a name as \x2d (systemd.unit(5)).
    Some(name.replace("\\x2d", "-"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const POD: &str = "6f1d9e4a-1c2b-4d3e-8f9a-0b1c2d3e4f50";

    fn made(files: &[(String, String)]) -> (tempfile::TempDir, Containers) {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let containers = Containers::new(root.path());
        (root, containers)
    }

    #[test]
    fn a_container_is_found_by_its_id_in_the_cgroups_of_all_runtimes() {
        let (_root, containers) = made(&[]);
        for path in [
            format!("/system.slice/docker-{ID}.scope"),
            format!("/docker/{ID}"),
            format!("/machine.slice/libpod-{ID}.scope/container"),
            format!("/kubepods.slice/x/cri-containerd-{ID}.scope"),
            format!("/kubepods/besteffort/pod{POD}/{ID}"),
            format!("/system.slice/kubepods.slice:cri-containerd:{ID}"),
        ] {
            assert!(containers.is_in(&path, ID) && containers.is_in(&path, &ID[..12]), "{path}");
            assert!(!containers.is_in(&path, "012") && !containers.is_in(&path, "fedc"), "{path}");
        }
        assert!(!containers.is_in(&format!("/machine.slice/libpod-conmon-{ID}.scope"), ID));
    }

    #[test]
    fn a_process_of_a_nested_container_belongs_to_all_containers_around_it() {
        let (inner, other) = (ID.replace('0', "7"), ID.replace('0', "9"));
        let (_root, containers) =
            made(&[(format!("var/lib/docker/containers/{ID}/config.v2.json"), r#"{"Name": "/outer"}"#.into())]);
        for around in [
            format!("/docker/{ID}"),
            format!("/system.slice/docker-{ID}.scope"),
            format!("/lxc.payload.outer/docker/{ID}"),
            format!("/kubepods.slice/kubepods-pod{}.slice/cri-containerd-{ID}.scope", POD.replace('-', "_")),
        ] {
            for nested in [format!("{around}/docker/{inner}"), format!("{around}/system.slice/docker-{inner}.scope")] {
                for wanted in [ID, "outer", &inner[..12]] {
                    assert!(containers.is_in(&nested, wanted), "{wanted} in {nested}");
                }
                assert!(!containers.is_in(&nested, &other[..12]), "{nested}");
            }
            assert!(!containers.is_in(&around, &inner[..12]), "a process of the outer one alone");
        }
        let in_pod = format!("/kubepods/burstable/pod{POD}/{ID}/docker/{inner}");
        assert!(containers.is_in(&in_pod, POD) && containers.is_in(&in_pod, &inner));
    }

    #[test]
    fn the_cgroup_of_a_container_says_what_it_is_called() {
        let other = ID.replace('0', "9");
        let (_root, containers) = made(&[
            (format!("var/lib/docker/containers/{ID}/config.v2.json"), r#"{"Name": "/web"}"#.into()),
            (format!("var/log/containers/pod-1_shop_cart-{other}.log"), String::new()),
        ]);
        let names = |path: &str| {
            let found = containers.names_in(path)?;
            Some((found.container, found.pod.unwrap_or_default(), found.namespace.unwrap_or_default()))
        };
        let expected = |container: &str, pod: &str, namespace: &str| {
            Some((container.to_owned(), pod.to_owned(), namespace.to_owned()))
        };
        assert_eq!(names(&format!("/docker/{ID}")), expected("web", "", ""));
        let of_pod = |id: &str| format!("/kubepods/besteffort/pod{POD}/{id}");
        assert_eq!(names(&of_pod(&other)), expected("cart", "pod-1", "shop"));
        assert_eq!(names(&of_pod(&ID.replace('0', "7"))), expected("7123456789ab", POD, ""));
        assert_eq!(names("/lxc.payload.db/init.scope"), expected("db", "", ""));
        assert_eq!(names("/system.slice/redis.service"), None);
    }

    #[test]
    fn a_pod_is_found_by_its_uid() {
        let (_root, containers) = made(&[]);
        let slice = format!("/kubepods.slice/kubepods-burstable-pod{}.slice/x", POD.replace('-', "_"));
        for path in [slice, format!("/kubepods/besteffort/pod{POD}/{ID}")] {
            assert!(containers.is_in(&path, POD), "{path}");
            assert!(!containers.is_in(&path, &POD.replace('6', "7")), "{path}");
        }
    }

    #[test]
    fn a_container_is_found_by_its_name() {
        let other = ID.replace('0', "9");
        let (_root, containers) = made(&[
            (format!("var/lib/docker/containers/{ID}/config.v2.json"), r#"{"Name": "/web"}"#.into()),
            (
                "var/lib/containers/storage/overlay-containers/containers.json".into(),
                format!(r#"[{{"id": "{other}", "names": ["cache", "c2"]}}, {{"id": "{ID}"}}]"#),
            ),
            ("var/lib/nerdctl/1935db59/names/default/proxy".into(), format!("{ID}\n")),
            (format!("var/log/containers/pod-1_shop_cart-{other}.log"), String::new()),
            ("run/containerd/io.containerd.runtime.v2.task/default/plain/config.json".into(), "{}".into()),
        ]);
        let (path, second) = (format!("/docker/{ID}"), format!("/machine.slice/libpod-{other}.scope"));
        assert!(["web", "proxy"].iter().all(|name| containers.is_in(&path, name)));
        assert!(["cache", "c2", "pod-1", "cart", "shop/pod-1"].iter().all(|name| containers.is_in(&second, name)));
        assert!(!containers.is_in(&path, "cache") && !containers.is_in(&second, "web"));
        assert!(containers.is_in("/default/plain", "plain") && containers.is_in("/default/plain/below", "plain"));
        assert!(!containers.is_in("/other/plain", "plain") && !containers.is_in("/default/web", "default"));
        assert!(containers.is_in("/lxc.payload.db/init.scope", "db"));
        assert!(containers.is_in(r"/machine.slice/machine-my\x2dbox.scope", "my-box"));
    }
}
